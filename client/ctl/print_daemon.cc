#include "client/ctl/print_daemon.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <utility>

#include "client/ctl/print_values.h"
#include "client/ctl/table.h"
#include "formats/base/counted.h"
#include "formats/base/parse.h"
#include "formats/base/printable.h"

namespace ckptctl {
namespace {

using Align = Table::Align;

std::string health_lines(const Json& document) {
  const Json conditions = member(document, "conditions");
  if (!conditions.is_array()) return {};  // an older daemon does not report it
  if (conditions.empty()) return "health:    ok\n";
  std::string out = member(document, "can_save") == false
                        ? "health:    NOT SAVING: no snapshot can be taken\n"
                        : "health:    degraded\n";
  for (const Json& condition : conditions) {
    out += fmt::format("  {} for {}: {}\n    to do: {}\n", text(condition, "name"),
                       age(condition, "seconds"), text(condition, "reason"),
                       text(condition, "remedy"));
  }
  return out;
}

std::string disk_line(const Json& document) {
  const Json disk = member(document, "disk");
  if (!disk.is_object()) return {};
  std::string line =
      fmt::format("disk:      {} of {} free", size(disk, "free_bytes"), size(disk, "total_bytes"));
  if (const std::string mount = text(disk, "mount_point"); mount != "-") line += " on " + mount;
  const Json kept = member(disk, "reserve_bytes");
  if (!kept.is_number_unsigned() || kept == 0) return line + "\n";
  const Json free = member(disk, "free_bytes");
  const bool keeps_all = free.is_number_unsigned() && free <= kept;
  const std::string reserve = size(disk, "reserve_bytes");
  line += keeps_all ? fmt::format(", all of it kept by disk_reserve ({})", reserve)
                    : fmt::format(", of which disk_reserve keeps {}", reserve);
  return line + "\n";
}

// Free slabs are used first. Then new snapshots evict durable and held slabs, except while a
// restore reads them or a joining group needs them.
std::string slabs_text(const Json& slabs) {
  std::string listed;
  uint64_t used = 0;
  uint64_t evictable = 0;
  for (const auto& [state, number] : slabs.items()) {
    if (!number.is_number_unsigned() || number == 0) continue;
    const auto count = number.get<uint64_t>();
    listed += fmt::format("{}{} {}", listed.empty() ? "" : ", ", count, ckpt::base::escaped(state));
    if (state != "free") used += count;
    if (state == "durable" || state == "held") evictable += count;
  }
  if (evictable > 0)
    listed += fmt::format("; {} used, of which at most {} evictable", used, evictable);
  return listed;
}

std::string memory_line(const Json& document) {
  std::string line = fmt::format("arenas:    {}", size(document, "arena_bytes"));
  if (!member(document, "arena_bytes_max").is_null()) {
    line += " of " + size(document, "arena_bytes_max");
  }
  line += fmt::format(", {} prepared for new sessions", size(document, "warm_pool_bytes"));
  const std::string slabs = slabs_text(member(document, "slabs"));
  return line + (slabs.empty() ? "" : "; slabs: " + slabs) + "\n";
}

std::string scrub_line(const Json& document) {
  const Json scrub = member(document, "scrub");
  if (!scrub.is_object()) return {};
  const bool ever = !member(scrub, "seconds_since_last_pass").is_null();
  return fmt::format("scrub:     {}, {}; {}, {} to read\n", text(scrub, "state"),
                     ever ? "last pass " + age(scrub, "seconds_since_last_pass") + " ago"
                          : "no pass has ended yet",
                     counted(scrub, "damaged_units", "damaged unit"),
                     counted(scrub, "commits_waiting", "commit"));
}

// The step, or a note that a run in training has none yet.
std::string durable_step(const Json& run) {
  const bool none_yet = member(run, "step").is_null() && member(run, "trained") == true;
  return none_yet ? "none yet" : text(run, "step");
}

// Whether ranks train the run. An older daemon does not report that ranks may return.
std::string trained(const Json& run) {
  return member(run, "awaited") == true ? "awaited" : text(run, "trained");
}

// Why nothing newer is durable. An older daemon does not report waiting snapshots.
std::string stale_reason(const Json& run) {
  if (const Json failing = member(run, "failing"); failing.is_object()) {
    return text(failing, "reason");
  }
  const Json waiting = member(run, "waiting");
  // Short waits are normal.
  constexpr double kReportSecondsMin = 2;
  const Json seconds = member(waiting, "seconds");
  if (!seconds.is_number() || seconds.get<double>() < kReportSecondsMin) return "";
  return fmt::format("{} not written yet, the oldest, of step {}, for {}",
                     counted(waiting, "snapshots", "snapshot"), text(waiting, "first_step"),
                     age(waiting, "seconds"));
}

// The last durable step of each run.
std::string durable_table(const Json& document) {
  Table table({{"RUN"},
               {"DURABLE STEP", Align::kRight},
               {"AGE", Align::kRight},
               {"LINEAGE", Align::kRight},
               {"TRAINED"},
               {"SAVES FAILED", Align::kRight},
               {"WHY"}});
  for (const Json& run : member(document, "durable")) {
    const Json failing = member(run, "failing");
    table.add({text(run, "run"), durable_step(run), age(run, "age_seconds"), text(run, "lineage"),
               trained(run), failing.is_object() ? text(failing, "snapshots") : "-",
               stale_reason(run)});
  }
  return table.empty() ? "" : "\n" + table.text();
}

std::string sessions_table(const Json& document) {
  Table table({{"SESSION", Align::kRight},
               {"PROCESS", Align::kRight},
               {"USER", Align::kRight},
               {"CLIENT"},
               {"RUN"},
               {"RANK", Align::kRight},
               {"EPOCH", Align::kRight},
               {"ARENA", Align::kRight}});
  for (const Json& session : member(document, "sessions")) {
    table.add({text(session, "session"), text(session, "process"), text(session, "user"),
               text(session, "client"), text(session, "run"), text(session, "rank"),
               text(session, "epoch"), size(session, "arena_bytes")});
  }
  return table.empty() ? "" : "\n" + table.text();
}

std::string holds_table(const Json& document) {
  Table table({{"HELD VIEW"},
               {"CLIENT"},
               {"PROCESS", Align::kRight},
               {"USER", Align::kRight},
               {"SINCE"},
               {"IDLE", Align::kRight}});
  for (const Json& hold : member(document, "holds")) {
    table.add({commit_name(hold), text(hold, "client"), text(hold, "process"), text(hold, "user"),
               text(hold, "since"), age(hold, "idle_seconds")});
  }
  return table.empty() ? "" : "\n" + table.text();
}

// A rule as text, with the flag that sets it: "the newest 3 commits".
std::string count_line(const Json& rules, const char* name, const char* flag, const char* before,
                       const char* one) {
  const Json count = member(rules, name);
  if (!count.is_number_unsigned() || count == 0) return {};
  const std::string rule_flag = fmt::format("--keep-{} {}", flag, text(count));
  return fmt::format("  {:<24} {} {}\n", rule_flag, before, counted(count, one));
}

std::string rule_lines(const Json& rules) {
  std::string out;
  out += count_line(rules, "last", "last", "the newest", "commit");
  out += count_line(rules, "hourly", "hourly", "the newest of each of the last", "hour");
  out += count_line(rules, "daily", "daily", "the newest of each of the last", "day");
  out += count_line(rules, "weekly", "weekly", "the newest of each of the last", "week");
  out += count_line(rules, "monthly", "monthly", "the newest of each of the last", "month");
  out += count_line(rules, "yearly", "yearly", "the newest of each of the last", "year");
  out += count_line(rules, "every_steps", "every-steps", "the first of every", "step");
  if (const Json within = member(rules, "within_seconds");
      within.is_number_unsigned() && within != 0) {
    out += fmt::format("  {:<24} all that are at most {} older than the newest\n", "--keep-within",
                       age(rules, "within_seconds"));
  }
  for (const Json& tag : member(rules, "tags")) {
    out += fmt::format("  {:<24} those with this tag\n", "--keep-tag " + text(tag));
  }
  for (const Json& best : member(rules, "best")) {
    const bool highest = member(best, "highest") == true;
    const std::string rule_flag = fmt::format("--keep-best {}:{}{}", text(best, "metric"),
                                              text(best, "count"), highest ? ":highest" : "");
    out += fmt::format("  {:<24} the {} with the {} {}\n", rule_flag, text(best, "count"),
                       highest ? "highest" : "lowest", text(best, "metric"));
  }
  return out;
}

}  // namespace

std::string print_status(const Json& document) {
  // "ready" beside "NOT SAVING" would read as a contradiction.
  const bool running =
      member(document, "state") == "ready" && member(document, "can_save") == false;
  std::string out = fmt::format(
      "ckptd:     {}, up {}, {} in store {}\n", running ? "running" : text(document, "state"),
      age(document, "uptime_seconds"), counted(document, "runs", "run"), text(document, "store"));
  out += health_lines(document);
  out += disk_line(document);
  out += fmt::format(
      "writes:    {} since the start, by {} ({}{}); journal of {}\n",
      size(document, "segment_bytes_written"), text(document, "engine"), text(document, "io_shape"),
      member(document, "zero_copy") == true ? ", zero copy" : "", size(document, "journal_bytes"));
  out += memory_line(document);
  out += fmt::format("snapshots: {} open\n", text(document, "snapshots_open"));
  out += scrub_line(document);
  return out + durable_table(document) + sessions_table(document) + holds_table(document);
}

std::string print_keep(const Json& document) {
  const std::string run = text(document, "run");
  const std::string rules = rule_lines(member(document, "rules"));
  std::string out =
      rules.empty() ? fmt::format(
                          "run {} has no rules: `ckptctl prune {}` needs some, as in "
                          "`ckptctl keep {} --keep-last 5`\n",
                          run, run, run)
                    : fmt::format("run {} keeps what one of these rules keeps:\n{}", run, rules);
  std::string pins;
  for (const Json& pin : member(document, "pins")) {
    pins += (pins.empty() ? "" : ", ") + commit_name(run, pin);
  }
  return out + (pins.empty() ? "no commit is pinned\n" : "pinned: " + pins + "\n");
}

std::string print_gc(const Json& document) {
  const Json waiting = member(document, "deletions_waiting");
  const bool waits = waiting.is_number_unsigned() && waiting != 0;
  const Json error = member(document, "error");
  std::string out;
  if (member(document, "freed_bytes") != 0) {
    out = fmt::format("{} of disk space freed, {} removed\n", size(document, "freed_bytes"),
                      counted(document, "segments_removed", "segment"));
  } else if (!waits && error.is_null()) {
    out = "nothing to free: the space of earlier removals is free already\n";
  }
  if (waits) {
    out += fmt::format("{} for {}\n",
                       ckpt::base::counted(waiting.get<uint64_t>(), "deletion still waits",
                                           "deletions still wait"),
                       text(document, "waiting_for"));
  }
  if (!error.is_null()) {
    out += fmt::format("space was not freed: {}\n", text(error));
  }
  return out;
}

std::string print_pin(const Json& document) {
  const bool pinned = member(document, "pinned") == true;
  return fmt::format(
      "{} is {}\n", commit_name(document),
      pinned ? "pinned: no rule removes it" : "no longer pinned: the rules decide about it again");
}

std::string print_tag(const Json& document) {
  if (member(document, "removed") == true) {
    return fmt::format("tag {} removed from run {}\n", text(document, "tag"),
                       text(document, "run"));
  }
  std::string before;
  if (const Json from = member(document, "moved_from"); from.is_object()) {
    before = fmt::format(" (was {})", commit_name(text(document, "run"), from));
  }
  return fmt::format("tag {} names {}{}\n", text(document, "tag"), commit_name(document), before);
}

std::string print_wait(const Json& document) {
  return fmt::format("{} is {}\n", commit_name(document), text(document, "level"));
}

std::string print_rebuild(const Json& document) {
  return fmt::format("the catalog was rebuilt from {}: {} of {}\n",
                     counted(document, "records", "journal record"),
                     counted(document, "commits", "commit"), counted(document, "runs", "run"));
}

}  // namespace ckptctl

#include "client/ctl/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "client/ctl/blobs_verb.h"
#include "client/ctl/log_tree.h"
#include "client/ctl/print_damage.h"
#include "client/ctl/print_values.h"
#include "client/ctl/table.h"
#include "formats/base/counted.h"
#include "formats/base/json_dump.h"
#include "formats/base/parse.h"
#include "formats/base/printable.h"

namespace ckptctl {

using Align = Table::Align;

Json member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found != object.end() ? *found : Json(nullptr);
}

// Names and reasons come from clients and files: escape them. A newline could forge a line.
std::string text(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) {
    return value.get<std::string>().empty() ? "-" : ckpt::base::escaped(value.get<std::string>());
  }
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return ckpt::base::dump_json(value);
}
std::string text(const Json& object, const char* name) { return text(member(object, name)); }

std::string counted(const Json& value, std::string_view one) {
  return value == 1 ? ckpt::base::counted(1, one) : fmt::format("{} {}s", text(value), one);
}
std::string counted(const Json& object, const char* name, std::string_view one) {
  return counted(member(object, name), one);
}

std::string size(const Json& object, const char* name) {
  const Json bytes = member(object, name);
  return bytes.is_number_unsigned() ? ckpt::base::format_size(bytes.get<uint64_t>()) : text(bytes);
}

std::string age(const Json& object, const char* name) {
  const Json seconds = member(object, name);
  if (!seconds.is_number()) return text(seconds);
  return ckpt::base::format_age(std::chrono::nanoseconds(
      static_cast<int64_t>(std::clamp(seconds.get<double>(), 0.0, 1e9) * 1e9)));
}

std::string commit_name(std::string_view run, const Json& commit) {
  const Json lineage = member(commit, "lineage");
  const std::string of_lineage = lineage.is_null() ? "" : "~" + text(lineage);
  return fmt::format("{}{}@{}", run, of_lineage, text(commit, "step"));
}
std::string commit_name(const Json& commit) { return commit_name(text(commit, "run"), commit); }

namespace {

// ["a", "b"] -> "a b"; {"loss": 2.5} -> "loss=2.5"
std::string joined(const Json& values) {
  std::string out;
  for (const auto& [key, value] : values.items()) {
    if (!out.empty()) out += ' ';
    out += values.is_object() ? ckpt::base::escaped(key) + "=" + text(value) : text(value);
  }
  return out.empty() ? "-" : out;
}

std::string parent_name(const Json& run) {
  const Json parent = member(run, "parent");
  return parent.is_object() ? commit_name(parent) : text(parent);
}

std::string print_deleted(const Json& document) {
  Table table({{"COMMIT"}, {"TIME"}, {"DELETED"}, {"UNITS LEFT", Align::kRight}, {"REASON"}});
  for (const Json& commit : document) {
    // An older daemon does not send names: without its run, the commit is ~LINEAGE@STEP.
    const bool named = !member(commit, "name").is_null();
    table.add({named ? text(commit, "name") : commit_name("", commit), text(commit, "time"),
               text(commit, "deleted"), text(commit, "units_left"), text(commit, "reason")});
  }
  return table.text();
}

std::string print_removed_runs(const Json& document) {
  Table table({{"RUN"},
               {"CREATED"},
               {"REMOVED"},
               {"COMMITS", Align::kRight},
               {"SIZE", Align::kRight},
               {"WHY"}});
  for (const Json& run : document) {
    table.add({text(run, "run"), text(run, "created"), text(run, "removed"), text(run, "commits"),
               size(run, "bytes"), text(run, "reason")});
  }
  return table.text();
}

// The findings of verify and scrub, a line each. `what` precedes the reason.
std::string finding_lines(const Json& findings, std::string_view what = {}) {
  std::string out;
  for (const Json& finding : findings) {
    // A finding without a run is about the journal or the catalog.
    if (member(finding, "run") != "") {
      out += commit_name(finding) + " unit ";
    }
    out += fmt::format("{}: {}{}\n", text(finding, "unit"), what, text(finding, "reason"));
  }
  return out;
}

constexpr const char* kNoErrors = "no errors";

size_t count(const Json& object, const char* name) {
  const Json value = member(object, name);
  return value.is_number_integer() ? value.get<size_t>() : 0;
}

// An error count is meaningless while something could not be checked. Runs that the caller may not
// read are not covered, so a check of nothing must not read as a check without errors.
std::string checked_line(const Json& checked, const std::string& errors, size_t unchecked) {
  if (errors == kNoErrors && unchecked == 0 && count(checked, "commits") == 0) {
    return "nothing checked: the store has no commit that you may read\n";
  }
  const std::string could_not =
      unchecked == 0 ? "" : fmt::format(", {} COULD NOT BE CHECKED", unchecked);
  return fmt::format("{} checked in {}, {}{}\n", size(checked, "checked_bytes"),
                     counted(checked, "commits", "commit"), errors, could_not);
}

std::string error_count(size_t errors, std::string_view one, std::string_view many) {
  return errors == 0 ? kNoErrors : ckpt::base::counted(errors, one, many);
}

}  // namespace

std::string print_runs(const Json& document) {
  if (!document.empty() && document.front().contains("removed")) {
    return print_removed_runs(document);
  }
  if (document.empty()) return "no runs that you may read\n";
  Table table({{"RUN"},
               {"PARENT"},
               {"CREATED"},
               {"LAST STEP", Align::kRight},
               {"COMMITS", Align::kRight},
               {"SIZE", Align::kRight}});
  for (const Json& run : document) {
    table.add({text(run, "run"), parent_name(run), text(run, "created"), text(run, "last_step"),
               text(run, "commits"), size(run, "bytes")});
  }
  return table.text();
}

std::string print_log(const Json& document) {
  if (!document.empty() && document.front().contains("deleted")) return print_deleted(document);
  Table table({{"COMMIT"},
               {"LINEAGE", Align::kRight},
               {"TIME"},
               {"LEVEL"},
               {"UNITS", Align::kRight},
               {"EXPERTS", Align::kRight},
               {"SIZE", Align::kRight},
               {"PLT", Align::kRight},
               {"LOST", Align::kRight},
               {"ALARMS", Align::kRight},
               {"TAGS"},
               {"METRICS"}});
  const std::vector<TreeLine> lines = log_tree(document);
  const bool drawn = lines.size() > document.size();  // a single line of history needs no drawing
  for (const TreeLine& line : lines) {
    if (!line.row) {
      table.add({line.drawing, "", "", "", "", "", "", "", "", "", "", ""});
      continue;
    }
    const Json& commit = document[*line.row];
    table.add({(drawn ? line.drawing : "") + text(commit, "name"), text(commit, "lineage"),
               text(commit, "time"), level_of_commit(commit), text(commit, "units"),
               text(commit, "experts"), size(commit, "bytes"), text(commit, "plt"),
               text(commit, "lost_so_far"), text(commit, "alarms"), joined(member(commit, "tags")),
               joined(member(commit, "metrics"))});
  }
  return table.text() + log_damage_lines(document);
}

std::string print_alarms(const Json& document) {
  Table table({{"STEP", Align::kRight}, {"LINEAGE", Align::kRight}, {"TIME"}, {"TAKEN"}, {"WHAT"}});
  for (const Json& alarm : document) {
    const Json more = member(alarm, "count");
    table.add({text(alarm, "step"), text(alarm, "lineage"), text(alarm, "time"),
               member(alarm, "refused") == true ? "refused" : "yes",
               more.is_null() ? text(alarm, "text") : fmt::format("and {} more", text(more))});
  }
  return table.empty() ? "no alarms\n" : table.text();
}

std::string print_show(const Json& document) {
  const bool complete = member(document, "complete") == true;
  std::string damage;
  if (member(document, "damaged_units") > 0) {
    damage = fmt::format(", {} DAMAGED", counted(document, "damaged_units", "unit"));
  }
  if (!member(document, "damaged").is_null()) damage = ", DAMAGED";
  std::string out = fmt::format("{}, {}{}\n", commit_name(document),
                                complete ? "complete" : "NOT complete", damage);
  Table table({{"UNIT"},
               {"VERSION", Align::kRight},
               {"STALE", Align::kRight},
               {"LEVEL"},
               {"SIZE", Align::kRight},
               {"CRC32C"}});
  for (const Json& unit : member(document, "units")) {
    const bool missing = member(unit, "version_step").is_null();
    table.add({text(unit, "unit"), missing ? "missing" : text(unit, "version_step"),
               text(unit, "staleness"), level_of_unit(unit), size(unit, "bytes"),
               text(unit, "crc32c")});
  }
  return out + table.text() + blob_table(member(document, "blobs")) + show_damage_lines(document);
}

std::string print_unit(const Json& document) {
  std::string out = fmt::format("run {} unit {}, {}\n", text(document, "run"),
                                text(document, "unit"), size(document, "bytes"));
  Table tensors({{"TENSOR"}, {"DTYPE"}, {"SHAPE"}, {"OFFSET", Align::kRight}});
  for (const Json& tensor : member(document, "tensors")) {
    tensors.add({text(tensor, "name"), text(tensor, "dtype"), text(tensor, "shape"),
                 text(tensor, "offset")});
  }
  if (!tensors.empty()) out += tensors.text() + "\n";
  Table versions({{"STEP", Align::kRight},
                  {"LINEAGE", Align::kRight},
                  {"TIME"},
                  {"SIZE", Align::kRight},
                  {"CRC32C"},
                  {"FRAGMENTS", Align::kRight},
                  {"DAMAGE"}});
  for (const Json& version : member(document, "versions")) {
    const Json fragments = member(version, "fragments");
    versions.add({text(version, "step"), text(version, "lineage"), text(version, "time"),
                  size(version, "bytes"), text(version, "crc32c"),
                  fragments.is_array() ? std::to_string(fragments.size()) : text(fragments),
                  member(version, "damage").is_null() ? "" : text(version, "damage")});
  }
  return out + versions.text();
}

std::string print_experts(const Json& document) {
  Table table({{"LAYER", Align::kRight},
               {"EXPERT", Align::kRight},
               {"VERSION", Align::kRight},
               {"STALE", Align::kRight},
               {"LOST TOKENS", Align::kRight},
               {"LOST SO FAR", Align::kRight}});
  for (const Json& layer : member(document, "layers")) {
    for (const Json& expert : member(layer, "experts")) {
      table.add({text(layer, "layer"), text(expert, "expert"), text(expert, "version_step"),
                 text(expert, "staleness"), text(expert, "lost_tokens"),
                 text(expert, "lost_so_far")});
    }
  }
  return table.text();
}

std::string print_diff(const Json& document) {
  Table table({{"UNIT"},
               {"CHANGE"},
               {"FROM", Align::kRight},
               {"TO", Align::kRight},
               {"SIZE", Align::kRight},
               {"RELATIVE NORM", Align::kRight},
               {"WHY NO NORM"}});
  for (const Json& unit : member(document, "units")) {
    table.add({text(unit, "unit"), text(unit, "change"), text(unit, "from_step"),
               text(unit, "to_step"), size(unit, "bytes"), text(unit, "relative_norm"),
               unit.contains("reason") ? text(unit, "reason") : ""});
  }
  return fmt::format("{} -> {}: {} changed, {}\n{}{}", commit_name(member(document, "from")),
                     commit_name(member(document, "to")),
                     ckpt::base::counted(member(document, "units").size(), "unit"),
                     size(document, "bytes"), table.text(),
                     blob_change_table(member(document, "blobs")));
}

std::string print_verify(const Json& document) {
  const Json errors = member(document, "errors");
  const Json unchecked = member(document, "unchecked");
  return finding_lines(errors) + finding_lines(unchecked, "could not be checked: ") +
         checked_line(
             document,
             error_count(errors.size() + count(document, "errors_left_out"), "ERROR", "ERRORS"),
             unchecked.size() + count(document, "unchecked_left_out"));
}

std::string print_scrub(const Json& document) {
  const Json pass = member(document, "pass");
  const Json last = member(document, "last_pass");
  size_t errors = member(document, "errors").size();
  std::string out = finding_lines(member(document, "errors"));
  if (const Json more = member(document, "errors_left_out"); more.is_number_integer()) {
    const uint64_t findings = more.get<uint64_t>();
    out += fmt::format("{} not remembered by name: ckptd's log has them\n",
                       ckpt::base::counted(findings, "more finding is", "more findings are"));
    errors += more.get<uint64_t>();
  }
  if (pass.is_object()) {
    out += fmt::format("pass {} began {}, {}: {} of about {} checked\n", text(pass, "number"),
                       text(pass, "began"), text(document, "state"), size(pass, "checked_bytes"),
                       size(document, "store_bytes"));
  }
  if (!last.is_object()) return out + "no pass has ended yet\n";
  return out +
         fmt::format("pass {} ended {}: {}", text(last, "number"), text(last, "ended"),
                     checked_line(last,
                                  error_count(errors, "UNIT IS KNOWN TO BE DAMAGED",
                                              "UNITS ARE KNOWN TO BE DAMAGED"),
                                  count(last, "unchecked"))) +
         (count(last, "unchecked") == 0 ? ""
                                        : fmt::format("the last that could not be checked: {}\n",
                                                      text(last, "unchecked_reason")));
}

std::string print_grants(const Json& document) {
  Table table({{"USER", Align::kRight}, {"MAY"}});
  std::string hints;
  table.add({text(document, "owner"), "everything: it is the owner's"});
  for (const Json& grant : member(document, "grants")) {
    std::string rights;
    for (const Json& right : member(grant, "rights")) {
      rights += (rights.empty() ? "" : ", ") + text(right);
    }
    table.add({text(grant, "user"), std::move(rights)});
    if (member(grant, "may_connect") != false) continue;
    hints += fmt::format(
        "user {} may not connect yet: add {} to allow_uids in ckptd's configuration file and "
        "restart ckptd\n",
        text(grant, "user"), text(grant, "user"));
  }
  return table.text() + hints;
}

std::string print_export(const Json& document) {
  const Json removed = member(document, "removed");
  const std::string gone =
      removed.empty() ? "" : fmt::format("removed of the earlier export: {}\n", joined(removed));
  return fmt::format("{} written to {}: {}, {} in {}\n{}", commit_name(document),
                     text(document, "out"), counted(document, "tensors", "tensor"),
                     size(document, "bytes"),
                     ckpt::base::counted(member(document, "files").size(), "file"), gone);
}

std::string print_import(const Json& document) {
  const Json count = member(document, "experts");
  const bool any = count.is_number_unsigned() && count > 0;
  const std::string experts = any ? ", " + counted(count, "expert") : "";
  return fmt::format("{} imported from {}: {} in {}{}, {}{}\n", commit_name(document),
                     text(document, "folder"), counted(document, "tensors", "tensor"),
                     counted(document, "units", "unit"), experts, size(document, "bytes"),
                     member(document, "resumable") == true ? "; it can be resumed" : "");
}

}  // namespace ckptctl

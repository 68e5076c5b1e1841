// Plans as text for users: the plan of a restore, and the removals of a prune or rm.
#include <fmt/format.h>

#include "client/ctl/print.h"
#include "client/ctl/print_values.h"
#include "client/ctl/table.h"

namespace ckptctl {
namespace {

// The time of reading from a source: "26 ms", "3.2 s".
std::string short_time(const Json& source) {
  const Json seconds = member(source, "seconds");
  if (!seconds.is_number() || seconds.get<double>() >= 1) return age(source, "seconds");
  constexpr double kMs = 1000;
  const double ms = seconds.get<double>() * kMs;
  return ms < 1 ? "< 1 ms" : fmt::format("{:.0f} ms", ms);
}

// "; removes its tag best", if the commit has tags.
std::string removed_tags_suffix(const Json& removed) {
  std::string names;
  const Json tags = member(removed, "tags");
  for (const Json& tag : tags) names += " " + text(tag);
  if (names.empty()) return {};
  return fmt::format("; removes its {}{}", tags.size() == 1 ? "tag" : "tags", names);
}

}  // namespace

std::string print_restore_plan(const Json& document) {
  Table table({{"SOURCE"}, {"SIZE", Table::Align::kRight}, {"TIME", Table::Align::kRight}});
  for (const Json& source : member(document, "sources")) {
    table.add({text(source, "source"), size(source, "bytes"), short_time(source)});
  }
  std::string out = commit_name(document) + "\n" + table.text();
  for (const Json& note : member(document, "notes")) out += "note: " + text(note) + "\n";
  return out;
}

std::string print_prune(const Json& document) {
  const auto reasons_of = [](const Json& kept) {
    std::string reasons;
    for (const Json& reason : member(kept, "reasons")) {
      reasons += (reasons.empty() ? "" : ", ") + text(reason);
    }
    return reasons;
  };
  const bool dry = member(document, "dry_run") == true;
  const std::string run = text(document, "run");
  Table table({{"COMMIT"},
               {"TIME"},
               {dry ? "WOULD BE" : "IS"},
               {"SIZE", Table::Align::kRight},
               {"UNITS LEFT", Table::Align::kRight},
               {"WHY"}});
  for (const Json& kept : member(document, "kept")) {
    table.add({commit_name(run, kept), text(kept, "time"), "kept", "-", "-", reasons_of(kept)});
  }
  for (const Json& removed : member(document, "removed")) {
    table.add({commit_name(run, removed), text(removed, "time"), "removed", size(removed, "bytes"),
               text(removed, "units_left"),
               text(removed, "reason") + removed_tags_suffix(removed)});
  }
  // The answer gives only the count of entries that did not fit.
  const Json left_out = member(document, "left_out");
  const auto all = [&](const char* name) {
    const Json more = member(left_out, name);
    return member(document, name).size() + (more.is_number_unsigned() ? more.get<size_t>() : 0);
  };
  std::string out = table.text();
  if (left_out.is_object()) {
    out += fmt::format("and {} kept, {} removed that are not listed here: ckptd's log has those\n",
                       text(left_out, "kept"), text(left_out, "removed"));
  }
  return out + fmt::format("{} kept, {} {}, {}\n", all("kept"), all("removed"),
                           dry ? "would be removed" : "removed", size(document, "bytes"));
}

}  // namespace ckptctl

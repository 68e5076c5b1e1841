#include "trainer/report/replan_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace moetrain::report {
namespace {

using nlohmann::ordered_json;

std::vector<uint64_t> read_loads(Fields& entry) {
  std::vector<uint64_t> loads;
  const auto& values = entry.array("loads");
  loads.reserve(values.size());
  for (const auto& load : values) {
    if (!load.is_number_unsigned()) {
      entry.fail("loads", "holds something that is no count");
      return {};
    }
    loads.push_back(load.get<uint64_t>());
  }
  if (loads.empty()) entry.fail("loads", "is empty");
  return loads;
}

// [rank]: its experts, each of them one of `experts`, which all have a slot.
std::vector<std::vector<uint32_t>> read_slots(Fields& ranks, const char* name, size_t experts) {
  std::vector<std::vector<uint32_t>> slots;
  const auto& lists = ranks.array(name);
  slots.reserve(lists.size());
  for (const auto& rank : lists) {
    std::vector<uint32_t>& of_rank = slots.emplace_back();
    if (!rank.is_array()) {
      ranks.fail(name, "holds something that is no list of experts");
      return {};
    }
    of_rank.reserve(rank.size());
    for (const auto& expert : rank) {
      if (!expert.is_number_unsigned() || expert.get<uint64_t>() >= experts) {
        ranks.fail(name, "holds something that is no expert with a load");
        return {};
      }
      of_rank.push_back(expert.get<uint32_t>());
    }
  }
  std::vector<bool> held(experts);
  for (const auto& of_rank : slots) {
    for (const uint32_t expert : of_rank) held[expert] = true;
  }
  if (std::ranges::find(held, false) != held.end()) ranks.fail(name, "leaves an expert out");
  return slots;
}

Replan read_replan(Fields& entry) {
  Replan replan{.step = entry.count("step"),
                .moved = entry.flag("moved"),
                .gain_ms = entry.number("gain_ms"),
                .cost_ms = entry.number("cost_ms"),
                .bytes = entry.count("bytes"),
                .plan_ms = entry.number("plan_ms"),
                .migrate_ms = entry.number("migrate_ms"),
                .loads = read_loads(entry)};
  const uint64_t layer = entry.count("layer");
  if (layer > std::numeric_limits<uint32_t>::max()) entry.fail("layer", "is too large");
  replan.layer = static_cast<uint32_t>(layer);
  Fields balance = entry.object("max_over_mean");
  replan.max_over_mean_before = balance.number("before");
  replan.max_over_mean_after = balance.number("after");
  entry.absorb(balance);
  Fields ranks = entry.object("ranks");
  replan.ranks_before = read_slots(ranks, "before", replan.loads.size());
  replan.ranks_after = read_slots(ranks, "after", replan.loads.size());
  if (replan.ranks_before.size() != replan.ranks_after.size()) {
    ranks.fail("after", "has another number of ranks than before");
  }
  entry.absorb(ranks);
  return replan;
}

}  // namespace

ordered_json replans_json(const std::vector<Replan>& replans) {
  ordered_json all = ordered_json::array();
  for (const Replan& replan : replans) {
    all.push_back(
        {{"step", replan.step},
         {"moved", replan.moved},
         {"max_over_mean",
          {{"before", replan.max_over_mean_before}, {"after", replan.max_over_mean_after}}},
         {"gain_ms", replan.gain_ms},
         {"cost_ms", replan.cost_ms},
         {"bytes", replan.bytes},
         {"plan_ms", replan.plan_ms},
         {"migrate_ms", replan.migrate_ms},
         {"layer", replan.layer},
         {"loads", replan.loads},
         {"ranks", {{"before", replan.ranks_before}, {"after", replan.ranks_after}}}});
  }
  return all;
}

void read_replans(Fields& top, const std::string& origin, std::vector<Replan>& replans) {
  const auto& entries = top.array_or_empty("replans");
  replans.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    Fields entry(entries[i], origin, fmt::format("replans[{}]", i));
    replans.push_back(read_replan(entry));
    top.absorb(entry);
  }
}

}  // namespace moetrain::report

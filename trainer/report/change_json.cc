#include "trainer/report/change_json.h"

#include <limits>

namespace moetrain::report {

namespace {

constexpr uint64_t kRankMax = std::numeric_limits<uint32_t>::max();

uint32_t read_small(Fields& entry, const char* name) {
  const uint64_t value = entry.count(name);
  if (value > kRankMax) entry.fail(name, "is too large");
  return static_cast<uint32_t>(value);
}

std::vector<uint32_t> read_rank_list(Fields& entry, const char* name) {
  const auto& listed = entry.array(name);
  std::vector<uint32_t> ranks;
  ranks.reserve(listed.size());
  for (const auto& rank : listed) {
    if (!rank.is_number_unsigned() || rank.get<uint64_t>() > kRankMax) {
      entry.fail(name, "holds something that is no rank");
      return {};
    }
    ranks.push_back(rank.get<uint32_t>());
  }
  return ranks;
}

}  // namespace

nlohmann::ordered_json changes_json(const std::vector<MemberChange>& changes) {
  auto all = nlohmann::ordered_json::array();
  for (const MemberChange& change : changes) {
    all.push_back({{"step", change.step},
                   {"joined", change.joined},
                   {"left", change.left},
                   {"group", change.group},
                   {"effective_replicas", change.effective_replicas},
                   {"bytes_moved", change.bytes_moved},
                   {"plan_ms", change.plan_ms},
                   {"migrate_ms", change.migrate_ms},
                   {"memory_bytes", change.memory_bytes},
                   {"memory_bound", change.memory_bound}});
  }
  return all;
}

void read_changes(Fields& top, const std::string& origin, std::vector<MemberChange>& changes) {
  const auto& listed = top.array_or_empty("changes");
  changes.reserve(listed.size());
  for (size_t i = 0; i < listed.size(); ++i) {
    Fields entry(listed[i], origin, fmt::format("changes[{}]", i));
    changes.push_back({.step = entry.count("step"),
                       .joined = read_rank_list(entry, "joined"),
                       .left = read_rank_list(entry, "left"),
                       .group = read_small(entry, "group"),
                       .effective_replicas = read_small(entry, "effective_replicas"),
                       .bytes_moved = entry.count("bytes_moved"),
                       .plan_ms = entry.number("plan_ms"),
                       .migrate_ms = entry.number("migrate_ms"),
                       .memory_bytes = entry.count_or("memory_bytes", 0),
                       .memory_bound = entry.count_or("memory_bound", 0)});
    top.absorb(entry);
  }
}

}  // namespace moetrain::report

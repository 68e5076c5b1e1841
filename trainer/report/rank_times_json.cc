#include "trainer/report/rank_times_json.h"

#include <fmt/format.h>

#include <limits>

namespace moetrain::report {

nlohmann::ordered_json rank_times_json(const std::vector<RankTime>& times) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const RankTime& time : times) {
    all.push_back({{"rank", time.rank},
                   {"steps", time.steps},
                   {"own_ms", time.own_ms},
                   {"waited_ms", time.waited_ms},
                   {"slowest", time.slowest},
                   {"more_ms", time.more_ms}});
  }
  return all;
}

void read_rank_times(Fields& top, const std::string& origin, std::vector<RankTime>& times) {
  const auto& entries = top.array_or_empty("rank_times");
  times.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    Fields entry(entries[i], origin, fmt::format("rank_times[{}]", i));
    const uint64_t rank = entry.count("rank");
    if (rank > std::numeric_limits<uint32_t>::max()) entry.fail("rank", "is too large");
    const RankTime time{.rank = static_cast<uint32_t>(rank),
                        .steps = entry.count("steps"),
                        .own_ms = entry.number("own_ms"),
                        .waited_ms = entry.number("waited_ms"),
                        .slowest = entry.count("slowest"),
                        .more_ms = entry.number("more_ms")};
    if (!times.empty() && time.rank <= times.back().rank) entry.fail("rank", "does not ascend");
    if (time.slowest > time.steps) entry.fail("slowest", "is more than all steps");
    top.absorb(entry);
    times.push_back(time);
  }
}

}  // namespace moetrain::report

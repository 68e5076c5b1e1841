#include "formats/expert_tokens.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ckpt {
namespace {

using Pair = std::pair<uint32_t, uint32_t>;

Pair pair_of(const ExpertTokens& count) { return {count.layer, count.expert}; }
bool before(const ExpertTokens& count, const Pair& pair) { return pair_of(count) < pair; }

std::vector<Pair> experts_of(const std::vector<UnitSpec>& units) {
  std::vector<Pair> pairs;
  for (const UnitSpec& unit : units) {
    if (unit.expert) pairs.emplace_back(unit.layer.value_or(0), *unit.expert);
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace

Result<ExpertTokenCounts> check_expert_tokens(const std::vector<fb::ExpertTokens>& counts,
                                              const std::vector<UnitSpec>& units) {
  ExpertTokenCounts sorted;
  if (counts.empty()) return sorted;
  if (counts.size() > kExpertTokensMax) {
    return make_error(ErrorCode::kInvalidArgument, "token counts of {} experts, the most is {}",
                      counts.size(), kExpertTokensMax);
  }
  sorted.reserve(counts.size());
  for (const fb::ExpertTokens& count : counts) {
    sorted.push_back({count.layer(), count.expert(), count.tokens()});
  }
  std::sort(sorted.begin(), sorted.end());
  const auto twice =
      std::adjacent_find(sorted.begin(), sorted.end(),
                         [](const auto& a, const auto& b) { return pair_of(a) == pair_of(b); });
  if (twice != sorted.end()) {
    return make_error(ErrorCode::kInvalidArgument, "layer {} expert {}: its tokens are given twice",
                      twice->layer, twice->expert);
  }
  const std::vector<Pair> known = experts_of(units);
  for (const ExpertTokens& count : sorted) {
    if (std::binary_search(known.begin(), known.end(), pair_of(count))) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "layer {} expert {}: token counts of an expert that no unit has", count.layer,
                      count.expert);
  }
  return sorted;
}

std::vector<fb::ExpertTokens> to_fb(const ExpertTokenCounts& counts) {
  std::vector<fb::ExpertTokens> out;
  out.reserve(counts.size());
  for (const ExpertTokens& count : counts) {
    out.emplace_back(count.layer, count.expert, count.tokens);
  }
  return out;
}

Status check_not_less(const ExpertTokenCounts& earlier, Step earlier_step,
                      const ExpertTokenCounts& later) {
  auto old = earlier.begin();
  for (const ExpertTokens& count : later) {
    old = std::lower_bound(old, earlier.end(), pair_of(count), before);
    if (old == earlier.end()) break;
    if (pair_of(*old) != pair_of(count) || count.tokens >= old->tokens) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "layer {} expert {}: {} tokens, but {} by step {}: counts are cumulative",
                      count.layer, count.expert, count.tokens, old->tokens, earlier_step);
  }
  return {};
}

std::optional<uint64_t> tokens_of(const ExpertTokenCounts& counts, uint32_t layer,
                                  uint32_t expert) {
  const Pair pair{layer, expert};
  const auto found = std::lower_bound(counts.begin(), counts.end(), pair, before);
  if (found == counts.end() || pair_of(*found) != pair) return std::nullopt;
  return found->tokens;
}

}  // namespace ckpt

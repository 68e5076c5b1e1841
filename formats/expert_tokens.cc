#include "formats/expert_tokens.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

#include "formats/base/checked.h"

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

// `what` is counted: "tokens", "lost tokens".
Result<ExpertTokenCounts> sorted_once(const std::vector<fb::ExpertTokens>& counts,
                                      std::string_view what) {
  if (counts.size() > kExpertTokensMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} of {} experts, the most is {}", what,
                      counts.size(), kExpertTokensMax);
  }
  ExpertTokenCounts sorted;
  sorted.reserve(counts.size());
  for (const fb::ExpertTokens& count : counts) {
    sorted.push_back({count.layer(), count.expert(), count.tokens()});
  }
  std::sort(sorted.begin(), sorted.end());
  const auto twice =
      std::adjacent_find(sorted.begin(), sorted.end(),
                         [](const auto& a, const auto& b) { return pair_of(a) == pair_of(b); });
  if (twice != sorted.end()) {
    return make_error(ErrorCode::kInvalidArgument, "layer {} expert {}: its {} are given twice",
                      twice->layer, twice->expert, what);
  }
  return sorted;
}

}  // namespace

Result<ExpertTokenCounts> expert_token_counts(const std::vector<fb::ExpertTokens>& tokens,
                                              const std::vector<fb::ExpertTokens>& lost) {
  CKPT_ASSIGN(ExpertTokenCounts counts, sorted_once(tokens, "tokens"));
  CKPT_ASSIGN(const ExpertTokenCounts losses, sorted_once(lost, "lost tokens"));
  uint64_t sum = 0;
  auto count = counts.begin();
  for (const ExpertTokens& loss : losses) {
    count = std::lower_bound(count, counts.end(), pair_of(loss), before);
    if (count == counts.end() || pair_of(*count) != pair_of(loss)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "layer {} expert {}: its lost tokens are given, but not its tokens",
                        loss.layer, loss.expert);
    }
    if (loss.tokens > count->tokens) {
      return make_error(ErrorCode::kInvalidArgument, "layer {} expert {}: {} tokens lost of {}",
                        loss.layer, loss.expert, loss.tokens, count->tokens);
    }
    const auto more = base::checked_add(sum, loss.tokens);
    if (!more) {
      return make_error(ErrorCode::kInvalidArgument,
                        "layer {} expert {}: with its {} lost tokens their sum exceeds 64 bits",
                        loss.layer, loss.expert, loss.tokens);
    }
    sum = *more;
    count->lost = loss.tokens;
  }
  return counts;
}

Result<ExpertTokenCounts> check_expert_tokens(const std::vector<fb::ExpertTokens>& tokens,
                                              const std::vector<fb::ExpertTokens>& lost,
                                              const std::vector<UnitSpec>& units) {
  CKPT_ASSIGN(ExpertTokenCounts counts, expert_token_counts(tokens, lost));
  if (counts.empty()) return counts;
  const std::vector<Pair> known = experts_of(units);
  for (const ExpertTokens& count : counts) {
    if (std::binary_search(known.begin(), known.end(), pair_of(count))) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "layer {} expert {}: token counts of an expert that no unit has", count.layer,
                      count.expert);
  }
  return counts;
}

std::vector<fb::ExpertTokens> tokens_to_fb(const ExpertTokenCounts& counts) {
  std::vector<fb::ExpertTokens> out;
  out.reserve(counts.size());
  for (const ExpertTokens& count : counts) {
    out.emplace_back(count.layer, count.expert, count.tokens);
  }
  return out;
}

std::vector<fb::ExpertTokens> lost_to_fb(const ExpertTokenCounts& counts) {
  std::vector<fb::ExpertTokens> out;
  for (const ExpertTokens& count : counts) {
    if (count.lost > 0) out.emplace_back(count.layer, count.expert, count.lost);
  }
  return out;
}

uint64_t lost_tokens(const ExpertTokenCounts& counts) {
  return std::transform_reduce(counts.begin(), counts.end(), uint64_t{0}, std::plus<>(),
                               [](const ExpertTokens& count) { return count.lost; });
}

Status check_not_less(const ExpertTokenCounts& earlier, Step earlier_step,
                      const ExpertTokenCounts& later) {
  const bool losses_recorded = lost_tokens(later) > 0;
  auto old = earlier.begin();
  for (const ExpertTokens& count : later) {
    old = std::lower_bound(old, earlier.end(), pair_of(count), before);
    if (old == earlier.end()) break;
    if (pair_of(*old) != pair_of(count)) continue;
    if (count.tokens < old->tokens) {
      return make_error(ErrorCode::kInvalidArgument,
                        "layer {} expert {}: {} tokens, but {} by step {}: counts are cumulative",
                        count.layer, count.expert, count.tokens, old->tokens, earlier_step);
    }
    if (losses_recorded && count.lost < old->lost) {
      return make_error(
          ErrorCode::kInvalidArgument,
          "layer {} expert {}: {} lost tokens, but {} by step {}: counts are cumulative",
          count.layer, count.expert, count.lost, old->lost, earlier_step);
    }
  }
  return {};
}

std::optional<ExpertTokens> counts_of(const ExpertTokenCounts& counts, uint32_t layer,
                                      uint32_t expert) {
  const Pair pair{layer, expert};
  const auto found = std::lower_bound(counts.begin(), counts.end(), pair, before);
  if (found == counts.end() || pair_of(*found) != pair) return std::nullopt;
  return *found;
}

}  // namespace ckpt

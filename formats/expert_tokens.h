// Tokens routed to each expert since a run began, and the lost ones among them, as a commit stores
// them. The other tokens are held by the expert's state. An expert that a view restores from an
// older commit in its line of history loses the difference of the held tokens.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/unit.h"
#include "formats/wire/records_generated.h"

namespace ckpt {

// DeepSeek-V3 has 58 x 256 experts. Every commit record has 16 bytes for each, and 16 more for each
// expert with lost tokens.
inline constexpr size_t kExpertTokensMax = 1u << 16;

struct ExpertTokens {
  uint32_t layer = 0;
  uint32_t expert = 0;
  uint64_t tokens = 0;  // cumulative
  uint64_t lost = 0;    // of these: their updates were lost in recoveries; cumulative
  uint64_t held() const { return tokens - lost; }
  auto operator<=>(const ExpertTokens&) const = default;
};
// Ascending by layer and expert, each pair once.
using ExpertTokenCounts = std::vector<ExpertTokens>;

// Sorts and checks counts from outside: at most kExpertTokensMax, no pair twice; lost tokens only
// for experts with tokens, at most as many, and a sum of at most 64 bits. The error names layer and
// expert.
Result<ExpertTokenCounts> expert_token_counts(const std::vector<fb::ExpertTokens>& tokens,
                                              const std::vector<fb::ExpertTokens>& lost);
// The same, and each expert must belong to a unit.
Result<ExpertTokenCounts> check_expert_tokens(const std::vector<fb::ExpertTokens>& tokens,
                                              const std::vector<fb::ExpertTokens>& lost,
                                              const std::vector<UnitSpec>& units);
std::vector<fb::ExpertTokens> tokens_to_fb(const ExpertTokenCounts& counts);
std::vector<fb::ExpertTokens> lost_to_fb(const ExpertTokenCounts& counts);  // without zeros

// By all experts together.
uint64_t lost_tokens(const ExpertTokenCounts& counts);

// Counts never decrease: `later` (of the step being taken) against `earlier` (of an older commit in
// its line of history). Experts in only one of them are not compared, and lost tokens only if
// `later` has some: a trainer that does not count them may continue a run.
Status check_not_less(const ExpertTokenCounts& earlier, Step earlier_step,
                      const ExpertTokenCounts& later);

// nullopt: not counted.
std::optional<ExpertTokens> counts_of(const ExpertTokenCounts& counts, uint32_t layer,
                                      uint32_t expert);

}  // namespace ckpt

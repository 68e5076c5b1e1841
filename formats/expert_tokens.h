// Tokens routed to each expert since a run began, and those of them that it has lost, as a commit
// keeps them. What is not lost is what the expert's state holds; the difference of that between two
// commits in one line of history is what an expert loses when the later view has it as of the
// earlier one.
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

// DeepSeek-V3 has 58 x 256 experts. They lie in every commit record, 16 bytes each, and 16 more for
// each expert that has lost tokens.
inline constexpr size_t kExpertTokensMax = 1u << 16;

struct ExpertTokens {
  uint32_t layer = 0;
  uint32_t expert = 0;
  uint64_t tokens = 0;  // cumulative
  uint64_t lost = 0;    // of these, whose updates recoveries threw away; cumulative
  uint64_t held() const { return tokens - lost; }
  auto operator<=>(const ExpertTokens&) const = default;
};
// Ascending by layer and expert, each pair once.
using ExpertTokenCounts = std::vector<ExpertTokens>;

// Sorts what came from outside and checks it: at most kExpertTokensMax, no pair twice; lost tokens
// only of experts whose tokens are given, no more of them, in a sum of 64 bits. The error names
// layer and expert.
Result<ExpertTokenCounts> expert_token_counts(const std::vector<fb::ExpertTokens>& tokens,
                                              const std::vector<fb::ExpertTokens>& lost);
// And only of experts that some unit has.
Result<ExpertTokenCounts> check_expert_tokens(const std::vector<fb::ExpertTokens>& tokens,
                                              const std::vector<fb::ExpertTokens>& lost,
                                              const std::vector<UnitSpec>& units);
std::vector<fb::ExpertTokens> tokens_to_fb(const ExpertTokenCounts& counts);
std::vector<fb::ExpertTokens> lost_to_fb(const ExpertTokenCounts& counts);  // without zeros

// By all experts together.
uint64_t lost_tokens(const ExpertTokenCounts& counts);

// Counts never go down: `later` (of the step being taken) against `earlier` (of an older commit in
// its line of history). Experts that only one of them has are not compared, and lost tokens only if
// `later` has some: a trainer that does not count them may go on with a run.
Status check_not_less(const ExpertTokenCounts& earlier, Step earlier_step,
                      const ExpertTokenCounts& later);

// nullopt: not counted.
std::optional<ExpertTokens> counts_of(const ExpertTokenCounts& counts, uint32_t layer,
                                      uint32_t expert);

}  // namespace ckpt

// Tokens routed to each expert since a run began, as a commit keeps them. The difference of two
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

// DeepSeek-V3 has 58 x 256 experts. They lie in every commit record, 16 bytes each.
inline constexpr size_t kExpertTokensMax = 1u << 16;

struct ExpertTokens {
  uint32_t layer = 0;
  uint32_t expert = 0;
  uint64_t tokens = 0;  // cumulative
  auto operator<=>(const ExpertTokens&) const = default;
};
// Ascending by layer and expert, each pair once.
using ExpertTokenCounts = std::vector<ExpertTokens>;

// Sorts what came from outside and checks it: no pair twice, only experts that some unit has, at
// most kExpertTokensMax. The error names layer and expert.
Result<ExpertTokenCounts> check_expert_tokens(const std::vector<fb::ExpertTokens>& counts,
                                              const std::vector<UnitSpec>& units);
std::vector<fb::ExpertTokens> to_fb(const ExpertTokenCounts& counts);

// Counts never go down: `later` (of the step being taken) against `earlier` (of an older commit in
// its line of history). Experts that only one of them has are not compared.
Status check_not_less(const ExpertTokenCounts& earlier, Step earlier_step,
                      const ExpertTokenCounts& later);

// nullopt: not counted.
std::optional<uint64_t> tokens_of(const ExpertTokenCounts& counts, uint32_t layer, uint32_t expert);

}  // namespace ckpt

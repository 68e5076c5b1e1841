// Fully sharded saving: which rank contributes which bytes of a snapshot. (MoC-System, ASPLOS 2025)
//
// Every holder of a unit can save it, so holders share the work: a replicated expert is cut into
// equal parts for its holders. A sharded expert is contributed by each rank as it holds it. Dense
// units, which all ranks hold, are distributed by one of
//   equal     whole units, round robin
//   adaptive  whole units, the largest first, each to the rank with the fewest bytes so far; the
//             experts of this snapshot count
//   bytes     cut anywhere, so that ranks with fewer expert bytes get more: equal totals, as far as
//             dense bytes allow. One embedding can exceed twice the mean; only this divides it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "formats/base/result.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

enum class DenseSharding : uint8_t { kEqual, kAdaptive, kBytes };

std::string_view dense_sharding_name(DenseSharding sharding);
// kInvalidArgument for any other word.
Result<DenseSharding> parse_dense_sharding(std::string_view name);

// Units are cut at multiples of this many bytes.
inline constexpr uint64_t kShareCutBytes = 64;

// A range of a unit that one rank holds and no other one.
struct HeldPart {
  uint32_t rank = 0;
  uint64_t offset = 0;
  uint64_t length = 0;  // > 0
};

struct ShareUnit {
  uint64_t bytes = 0;
  std::vector<uint32_t> holders;  // ranks, each once; empty: dense, on every rank
  // Sharded state, instead of holders: who holds which range. They cover the unit exactly once.
  std::vector<HeldPart> parts = {};
};

// A range of one unit that one rank contributes.
struct Share {
  uint32_t unit = 0;  // position in the list that was shared
  uint32_t rank = 0;
  uint64_t offset = 0;
  uint64_t length = 0;  // > 0
  bool operator==(const Share&) const = default;
};

// Covers every byte of every unit exactly once; ordered by unit, then offset. `ranks` > 0 and every
// holder is below it; parts of a sharded unit become shares as they are.
std::vector<Share> share_units(std::span<const ShareUnit> units, uint32_t ranks,
                               DenseSharding dense);

struct ShareSummary {
  uint64_t total_bytes = 0;
  uint64_t max_bytes = 0;  // of one rank
  double mean_bytes = 0;
  double max_to_mean() const {
    return mean_bytes > 0 ? static_cast<double>(max_bytes) / mean_bytes : 1;
  }
};
ShareSummary summarise(std::span<const Share> shares, uint32_t ranks);

}  // namespace moetrain

#include "trainer/partial/sharding.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "formats/base/assert.h"
#include "formats/base/checked.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr std::array<std::string_view, 3> kShardingNames = {"equal", "adaptive", "bytes"};

std::vector<uint64_t> bytes_by_rank(std::span<const Share> shares, uint32_t ranks) {
  std::vector<uint64_t> bytes(ranks);
  for (const Share& share : shares) bytes.at(share.rank) += share.length;
  return bytes;
}

void cut_evenly(uint32_t unit, const ShareUnit& share_unit, std::vector<Share>& shares) {
  const uint64_t parts = share_unit.holders.size();
  uint64_t begin = 0;
  for (uint64_t i = 0; i < parts; ++i) {
    const uint64_t end =
        i + 1 == parts ? share_unit.bytes
                       : ckpt::base::align_down(share_unit.bytes / parts * (i + 1), kShareCutBytes);
    if (end > begin) shares.push_back({unit, share_unit.holders[i], begin, end - begin});
    begin = end;
  }
}

bool is_dense(const ShareUnit& unit) { return unit.holders.empty() && unit.parts.empty(); }

// Splits `dense` bytes over the ranks so that the largest total is minimal: ranks with the fewest
// bytes are filled up to one level.
std::vector<uint64_t> quotas(const std::vector<uint64_t>& bytes, uint64_t dense) {
  std::vector<uint32_t> ascending(bytes.size());
  std::iota(ascending.begin(), ascending.end(), 0u);
  std::stable_sort(ascending.begin(), ascending.end(),
                   [&](uint32_t a, uint32_t b) { return bytes[a] < bytes[b]; });
  // The first `filled` ranks reach the level, the others are above it.
  uint64_t filled = 1;
  uint64_t sum = bytes[ascending[0]];
  while (filled < ascending.size() && bytes[ascending[filled]] * filled < sum + dense) {
    sum += bytes[ascending[filled++]];
  }
  const uint64_t level = (sum + dense) / filled;
  uint64_t odd = (sum + dense) % filled;
  std::vector<uint64_t> quota(bytes.size());
  for (uint64_t i = 0; i < filled; ++i) {
    quota[ascending[i]] = level - bytes[ascending[i]] + (odd > 0 ? 1 : 0);
    if (odd > 0) --odd;
  }
  return quota;
}

// All dense units in a row, cut at the ranks' quotas.
void cut_by_bytes(std::span<const ShareUnit> units, std::vector<uint64_t> quota,
                  std::vector<Share>& shares) {
  uint32_t rank = 0;
  const auto last = static_cast<uint32_t>(quota.size() - 1);
  for (uint32_t unit = 0; unit < units.size(); ++unit) {
    if (!is_dense(units[unit])) continue;
    const uint64_t bytes = units[unit].bytes;
    uint64_t begin = 0;
    while (begin < bytes) {
      const bool takes_all = rank == last || quota[rank] >= bytes - begin;
      const uint64_t end =
          takes_all ? bytes : ckpt::base::align_down(begin + quota[rank], kShareCutBytes);
      if (end > begin) {
        shares.push_back({unit, rank, begin, end - begin});
        quota[rank] -= std::min(quota[rank], end - begin);
      }
      begin = std::max(begin, end);
      if (takes_all) continue;
      quota[rank + 1] += quota[rank];  // smaller than a cut: goes to the next rank
      ++rank;
    }
  }
}

void deal_out(std::span<const ShareUnit> units, std::vector<uint64_t> bytes, bool adaptive,
              std::vector<Share>& shares) {
  std::vector<uint32_t> dense;
  for (uint32_t unit = 0; unit < units.size(); ++unit) {
    if (is_dense(units[unit]) && units[unit].bytes > 0) dense.push_back(unit);
  }
  if (adaptive) {
    std::stable_sort(dense.begin(), dense.end(),
                     [&](uint32_t a, uint32_t b) { return units[a].bytes > units[b].bytes; });
  }
  for (size_t i = 0; i < dense.size(); ++i) {
    const size_t rank =
        adaptive ? static_cast<size_t>(std::min_element(bytes.begin(), bytes.end()) - bytes.begin())
                 : i % bytes.size();
    const uint64_t length = units[dense[i]].bytes;
    shares.push_back({dense[i], static_cast<uint32_t>(rank), 0, length});
    bytes[rank] += length;
  }
}

}  // namespace

std::string_view dense_sharding_name(DenseSharding sharding) {
  return kShardingNames.at(static_cast<size_t>(sharding));
}

Result<DenseSharding> parse_dense_sharding(std::string_view name) {
  const auto found = std::find(kShardingNames.begin(), kShardingNames.end(), name);
  if (found != kShardingNames.end())
    return static_cast<DenseSharding>(found - kShardingNames.begin());
  return make_error(ErrorCode::kInvalidArgument,
                    "dense sharding '{}': must be equal, adaptive or bytes", name);
}

std::vector<Share> share_units(std::span<const ShareUnit> units, uint32_t ranks,
                               DenseSharding dense) {
  CKPT_ASSERT(ranks > 0);
  std::vector<Share> shares;
  uint64_t dense_bytes = 0;
  for (uint32_t unit = 0; unit < units.size(); ++unit) {
    if (is_dense(units[unit])) dense_bytes += units[unit].bytes;
    if (!units[unit].holders.empty()) cut_evenly(unit, units[unit], shares);
    for (const HeldPart& part : units[unit].parts) {
      shares.push_back({unit, part.rank, part.offset, part.length});
    }
  }
  std::vector<uint64_t> bytes = bytes_by_rank(shares, ranks);
  if (dense == DenseSharding::kBytes) {
    cut_by_bytes(units, quotas(bytes, dense_bytes), shares);
  } else {
    deal_out(units, std::move(bytes), dense == DenseSharding::kAdaptive, shares);
  }
  std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) {
    return std::pair(a.unit, a.offset) < std::pair(b.unit, b.offset);
  });
  return shares;
}

ShareSummary summarise(std::span<const Share> shares, uint32_t ranks) {
  ShareSummary summary;
  for (const uint64_t bytes : bytes_by_rank(shares, ranks)) {
    summary.total_bytes += bytes;
    summary.max_bytes = std::max(summary.max_bytes, bytes);
  }
  summary.mean_bytes = static_cast<double>(summary.total_bytes) / ranks;
  return summary;
}

}  // namespace moetrain

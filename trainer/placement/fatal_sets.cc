#include "trainer/placement/fatal_sets.h"

#include <algorithm>
#include <array>
#include <bit>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

constexpr uint32_t kWordDimensions = 6;  // 64 sets to a word: the lowest domains

// [i]: the sets of a word that do not hold domain i.
constexpr std::array<uint64_t, kWordDimensions> kWithout = {0x5555555555555555, 0x3333333333333333,
                                                            0x0f0f0f0f0f0f0f0f, 0x00ff00ff00ff00ff,
                                                            0x0000ffff0000ffff, 0x00000000ffffffff};

// [k]: the sets of a word that hold k of its domains.
constexpr auto kOfSize = [] {
  std::array<uint64_t, kWordDimensions + 1> masks{};
  for (uint32_t set = 0; set < 64; ++set) masks[std::popcount(set)] |= uint64_t{1} << set;
  return masks;
}();

constexpr std::array<uint64_t, kWordDimensions + 1> kSetsOfSize = {1, 6, 15, 20, 15, 6, 1};

size_t words_of(uint32_t domains) {
  return domains <= kWordDimensions ? 1 : size_t{1} << (domains - kWordDimensions);
}

uint64_t table_probes(uint32_t domains) { return words_of(domains) * (domains + 1); }

}  // namespace

// The worst case: inclusion and exclusion first, without a result, then the table.
uint64_t FatalCounter::probes_max(uint32_t domains, size_t masks) {
  return 2 * (table_probes(domains) + masks + domains);
}

FatalCounter::FatalCounter(uint32_t domains)
    : domains_(domains),
      binomials_(size_t{domains + 1} * (domains + 1)),
      of_size_(domains + 1),
      unions_(domains + 1),
      fatal_(domains + 1) {
  CKPT_ASSERT(domains <= kExactRanksMax);
  for (uint32_t n = 0; n <= domains; ++n) {
    uint64_t* row = binomials_.data() + size_t{n} * (domains + 1);
    row[0] = 1;
    for (uint32_t k = 1; k <= n; ++k) row[k] = row[k - 1] * (n - k + 1) / k;
  }
}

// False if that takes longer than the table.
bool FatalCounter::keep_smallest(std::span<const RankMask> masks) {
  smallest_.clear();
  for (auto& masks_of_size : of_size_) masks_of_size.clear();
  for (const RankMask mask : masks) {
    CKPT_ASSERT(mask >> domains_ == 0);
    of_size_[static_cast<size_t>(std::popcount(mask))].push_back(mask);
  }
  probes_ += masks.size() + domains_;
  for (const auto& masks_of_size : of_size_) {
    for (const RankMask mask : masks_of_size) {
      if (probes_ > probes_max_) return false;
      const auto within = std::ranges::find_if(
          smallest_, [&](RankMask smaller) { return (smaller & mask) == smaller; });
      probes_ += static_cast<uint64_t>(within - smallest_.begin());
      if (within == smallest_.end()) smallest_.push_back(mask);
    }
  }
  return true;
}

const std::vector<RankMask>& FatalCounter::smallest(std::span<const RankMask> masks) {
  probes_max_ = UINT64_MAX;
  keep_smallest(masks);
  return smallest_;
}

const std::vector<uint64_t>& FatalCounter::count(std::span<const RankMask> masks) {
  const uint64_t of_table = table_probes(domains_);
  probes_max_ = probes_ + masks.size() + of_table;
  std::ranges::fill(unions_, 0);
  std::ranges::fill(fatal_, 0);
  if (!keep_smallest(masks) || !include(0, 0, 1)) {
    count_table(masks);
    probes_ += masks.size() + of_table;
    return fatal_;
  }
  probes_ += domains_ * domains_ / 2;
  for (uint32_t size = 0; size <= domains_; ++size) {
    if (unions_[size] == 0) continue;
    for (uint32_t k = size; k <= domains_; ++k) {
      // Modulo 2^64: intermediate sums of both signs may wrap around; the result does not.
      fatal_[k] += static_cast<uint64_t>(unions_[size]) * binomial(domains_ - size, k - size);
    }
  }
  return fatal_;
}

// Adds the unions of `lost` with one of the masks from `from` on, subtracts those with two of them,
// and so on. False if that takes longer than the table.
bool FatalCounter::include(size_t from, RankMask lost, int64_t sign) {
  for (size_t i = from; i < smallest_.size(); ++i) {
    if (probes_ > probes_max_) return false;
    const RankMask more = lost | smallest_[i];
    // The terms with and without a mask that is already within the union cancel out.
    const auto rest = smallest_.begin() + static_cast<ptrdiff_t>(i) + 1;
    const auto within =
        std::find_if(rest, smallest_.end(), [&](RankMask mask) { return (mask & more) == mask; });
    probes_ += static_cast<uint64_t>(within - rest) + 1;
    if (within != smallest_.end()) continue;
    unions_[static_cast<size_t>(std::popcount(more))] += sign;
    if (!include(i + 1, more, -sign)) return false;
  }
  return true;
}

// Supersets of what is fatal are fatal.
void FatalCounter::count_table(std::span<const RankMask> masks) {
  table_.assign(words_of(domains_), 0);
  for (const RankMask mask : masks) {
    table_[mask >> kWordDimensions] |= uint64_t{1} << (mask & 63);
  }
  for (uint32_t i = 0; i < domains_ && i < kWordDimensions; ++i) {
    for (uint64_t& word : table_) word |= (word & kWithout[i]) << (1u << i);
  }
  for (uint32_t i = kWordDimensions; i < domains_; ++i) {
    const size_t bit = size_t{1} << (i - kWordDimensions);
    for (size_t w = 0; w < table_.size(); ++w) {
      if ((w & bit) != 0) table_[w] |= table_[w ^ bit];
    }
  }
  for (size_t w = 0; w < table_.size(); ++w) {
    // Most words have only fatal sets or none: then their bits need no check.
    if (table_[w] == 0) continue;
    const bool all = table_[w] == ~uint64_t{0};
    const auto high = static_cast<uint32_t>(std::popcount(w));
    for (uint32_t low = 0; low <= kWordDimensions && high + low <= domains_; ++low) {
      fatal_[high + low] +=
          all ? kSetsOfSize[low] : static_cast<uint64_t>(std::popcount(table_[w] & kOfSize[low]));
    }
  }
}

}  // namespace moetrain

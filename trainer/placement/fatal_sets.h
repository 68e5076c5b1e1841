// FatalCounter: counts the fatal sets of lost domains, efficiently for many holder sets in turn, as
// a search needs it.
//
// Only the smallest holder sets matter. Few of them are counted by inclusion and exclusion; many by
// a table of all sets, closed under supersets one dimension at a time. Both are exact. The work is
// counted in probes, about a nanosecond each and the same on any machine, so that a search
// can be bounded by its real cost.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moetrain {

inline constexpr uint32_t kExactRanksMax = 20;

using RankMask = uint32_t;  // bit r: rank r, or failure domain r

class FatalCounter {
 public:
  // At most kExactRanksMax domains.
  explicit FatalCounter(uint32_t domains);

  // [k], k = 0 .. domains: how many sets of k lost domains hold all domains of some mask. An empty
  // mask is lost with any set. Every mask is below 2^domains. Valid until the next call.
  const std::vector<uint64_t>& count(std::span<const RankMask> masks);
  // The masks that contain no other mask, each once, smallest first: only these matter. Valid until
  // the next call.
  const std::vector<RankMask>& smallest(std::span<const RankMask> masks);

  uint64_t sets(uint32_t k) const { return binomial(domains_, k); }  // of k domains
  // Lower bound of any placement in which some expert is held by at most `held` domains.
  uint64_t fatal_at_least(uint32_t held, uint32_t k) const {
    return k < held ? 0 : binomial(domains_ - held, k - held);
  }

  uint64_t probes() const { return probes_; }  // so far
  // Probes of a count of this many masks, at most (approximately).
  static uint64_t probes_max(uint32_t domains, size_t masks);

 private:
  uint64_t binomial(uint32_t n, uint32_t k) const { return binomials_[n * (domains_ + 1) + k]; }
  bool keep_smallest(std::span<const RankMask> masks);
  bool include(size_t from, RankMask lost, int64_t sign);
  void count_table(std::span<const RankMask> masks);

  const uint32_t domains_;
  std::vector<uint64_t> binomials_;  // [n][k]
  std::vector<RankMask> smallest_;
  std::vector<std::vector<RankMask>> of_size_;  // [domains held]: masks, while computing smallest_
  std::vector<int64_t> unions_;                 // [domains]: signed count of terms
  std::vector<uint64_t> table_;                 // bit s: the loss of all domains in s is fatal
  std::vector<uint64_t> fatal_;
  uint64_t probes_ = 0;
  uint64_t probes_max_ = 0;  // above this, the table is faster
};

}  // namespace moetrain

// The searches of `lazarus`: slots of a layer, and the order of domains over many layers. Both
// are bounded in probes (fatal_sets.h), which are counted as they are taken.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/placement/fatal_sets.h"
#include "trainer/placement/lazarus.h"

namespace moetrain {

// Rating of a layer. Less is better.
struct LazarusRating {
  uint64_t short_of_domains = 0;
  std::vector<uint64_t> fatal;  // sets of lost domains, the most important number first
  auto operator<=>(const LazarusRating&) const = default;
};

// One layer. At most kExactRanksMax domains.
class LazarusSearch {
 public:
  LazarusSearch(std::span<const uint32_t> replicas, const LazarusOptions& options);

  // Exchanges two slots as long as that helps, the rating is not known to be optimal, and no more
  // than `probes_max` were taken, give or take one rating.
  LazarusRating improve(LayerSlots& slots, uint64_t probes_max);
  // True if no placement of these replicas can have a better rating.
  bool best_possible(const LazarusRating& rating) const;
  uint64_t probes() const { return probes_ + counter_.probes(); }

 private:
  void hold(const LayerSlots& slots);
  void add(uint32_t expert, uint32_t domain);
  void remove(uint32_t expert, uint32_t domain);
  uint32_t& count(uint32_t expert, uint32_t domain) {
    return counts_[size_t{expert} * domains_ + domain];
  }
  uint32_t missing(uint32_t expert) const;
  std::vector<uint64_t> fatal();
  bool exchange_all(LayerSlots& slots, LazarusRating& best, uint64_t probes_end);
  bool rate_exchange(uint32_t& a, uint32_t a_domain, uint32_t& b, uint32_t b_domain,
                     LazarusRating& best);

  const std::span<const uint32_t> replicas_;
  const LazarusOptions& options_;
  const uint32_t domains_;
  FatalCounter counter_;
  std::vector<uint32_t> wanted_;  // [expert]: domains promised to it
  std::vector<uint32_t> counts_;  // [expert][domain]: replicas
  std::vector<RankMask> masks_;   // [expert]: its domains
  uint32_t held_min_ = 0;         // the most domains that the scarcest expert can have
  bool best_possible_ = false;    // result of improve()
  uint64_t probes_ = 0;           // probes that the counter does not count
};

// Renames domains of layers so that sets of lost domains that are fatal to one layer are fatal to
// others, too: such a set counts once then. Goes layer by layer, exchanging two domains of equal
// size, which does not change what the layer survives alone.
class LazarusAligner {
 public:
  explicit LazarusAligner(const LazarusOptions& options);

  void add(LayerSlots& slots, uint32_t experts, uint64_t probes_max);
  uint64_t probes() const { return probes_ + counter_.probes(); }

 private:
  std::vector<uint64_t> with(std::span<const RankMask> masks);

  const LazarusOptions& options_;
  FatalCounter counter_;
  std::vector<std::vector<uint32_t>> ranks_of_domain_;
  std::vector<RankMask> joint_;  // of the previous layers: their deciding masks
  std::vector<RankMask> both_;
  uint64_t probes_ = 0;
  uint64_t probes_end_ = 0;  // a layer's unused probes go to the next layers
};

}  // namespace moetrain

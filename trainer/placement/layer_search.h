// LayerSearch: one layer's slots under construction, kept within a family of domain sets, and the
// local search that balances them. `frontier` plans every layer with it.
//
// A family defines the tolerated losses: every expert has all domains of one of its members,
// or at least `free_size` distinct domains. Every change of a layer keeps that, so all
// layers together survive every loss that takes no whole member and fewer than free_size domains.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "trainer/placement/policy.h"

namespace moetrain {

struct Family {
  std::vector<std::vector<uint32_t>> members;  // domains, ascending; each at least replicas_min
  uint32_t free_size = UINT32_MAX;             // >= replicas_min
};

// True if this many experts fit into a family, given the free slots of each domain: each takes one
// of every domain of a member, or of free_size domains. No false positives; overlapping members
// are filled one after the other, which may miss a solution.
bool fits(const Family& family, std::vector<uint32_t> room, uint32_t experts);

class LayerSearch {
 public:
  // The request is valid and outlives this; `loads` has no fewer entries than experts.
  LayerSearch(const PlacementRequest& request, const Family& family, std::span<const double> loads);

  // Replicas that an expert gets at its turn; the most loaded experts are first.
  enum class Start {
    kMembers,      // a member of the family; further replicas once every expert has one
    kAllReplicas,  // that and all further replicas, as far as all others still fit
  };
  // Fills all slots. False if the experts do not fit into the family's members. Once `work` probes
  // were taken since the last improve(), further replicas wait until every expert has a member:
  // checking whether the others still fit is the slow part.
  bool build(Start start, int64_t work);
  // Same, with randomly perturbed loads: another start. On false, as for build(), only adopt()
  // makes the object usable again.
  bool rebuild(Start start, std::mt19937& random, int64_t work);
  // Starts from slots that were built elsewhere: all full, every expert within the family.
  // False if an expert is not.
  bool adopt(const LayerSlots& slots);

  // Swaps, replaces and relabels as long as that lowers the most loaded ranks, within
  // `work` probes of rank loads: a bound that is the same on any machine.
  // Other calls since the last improve(), or since construction, count with their own
  // probes. The unused rest is left in `work`. Ends as soon as max_over_mean() is
  // `enough`.
  void improve(int64_t& work, double enough);

  // Exchanges the slots of a few experts at random, to leave a dead end.
  void kick(std::mt19937& random);

  double max_over_mean() const;
  // Lower bound of any placement within the family: replicas have the shares that the number of
  // slots allows, and if that leaves no choice of replicas, their ranks hold others as well.
  double least_max_over_mean();
  const LayerSlots& slots() const { return slots_; }

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;  // in place of a rank

  struct Move {
    enum class Kind { kNone, kSwap, kReplace, kRelabel } kind = Kind::kNone;
    uint32_t expert = 0;    // kSwap: held by `rank`; kReplace: the new one; kRelabel: one of two
    uint32_t other = 0;     // kSwap: held by `target`; kReplace: the removed one
    uint32_t rank = 0;      // kSwap
    uint32_t target = 0;    // kSwap, kReplace: where `other` is
    double change = -1e-9;  // of the potential
  };

  // A domain that an expert may go to; ordered by most room, then by least load.
  struct DomainChoice {
    int64_t less_room = 0;
    double load = 0;  // of its least loaded rank with room
    uint32_t domain = 0;
    auto operator<=>(const DomainChoice&) const = default;
  };

  // Places without updating the loads.
  void place(uint32_t expert, uint32_t rank);
  void add_loads_up();
  void share_changed(uint32_t expert, double before);
  void put(uint32_t expert, uint32_t rank);
  void take(uint32_t expert, uint32_t rank);
  bool within_family(uint32_t expert) const;
  // True if the expert is still within the family after `leaves` lost a replica and `gets` (or
  // none: UINT32_MAX) got one.
  bool may_leave(uint32_t expert, uint32_t leaves, uint32_t gets);

  void clear();
  std::vector<uint32_t> counts_by_load(uint32_t least);
  std::vector<uint32_t> by_share(std::span<const uint32_t> counts) const;
  bool assign_all(std::span<const uint32_t> order, std::span<const uint32_t> counts,
                  bool all_replicas);
  void assign_more(uint32_t expert, uint32_t more, uint32_t left, double share);
  bool assign_member(uint32_t expert, double share);
  bool assign_free(uint32_t expert, double share);
  void plan_put(uint32_t expert, uint32_t domain, double share);
  uint32_t lightest_in(uint32_t domain, uint32_t expert);
  int64_t room_in(uint32_t domain);
  std::optional<double> peak_of(const std::vector<uint32_t>& member, uint32_t expert);
  std::vector<uint32_t> more_by_load();
  void fill();
  void fill_rest();

  bool improve_from(uint32_t rank, std::span<const uint32_t> targets);
  void consider_swaps(uint32_t rank, std::span<const uint32_t> targets, Move& best);
  void consider_replicas(uint32_t rank, std::span<const uint32_t> targets, Move& best);
  void consider_removals(uint32_t rank, Move& best);
  void consider_relabels(uint32_t rank, Move& best);
  double relief(uint32_t expert);
  double burden(uint32_t expert);
  double change_of_share(uint32_t expert, double by);
  void forget();
  double change_of_replace(uint32_t gets, uint32_t loses, uint32_t rank, double enough);
  double change_of_relabel(uint32_t a, uint32_t b, double enough);
  void apply(const Move& move);
  void relabel(uint32_t a, uint32_t b);

  bool full(uint32_t rank) const { return slots_[rank].size() == request_.slots_per_rank; }
  bool holds(uint32_t expert, uint32_t rank) const { return held(expert, rank) > 0; }
  uint32_t held(uint32_t expert, uint32_t rank) const {
    return on_rank_[size_t{expert} * ranks_ + rank];
  }
  double share(uint32_t expert) const { return shares_[expert]; }

  const PlacementRequest& request_;
  const Family& family_;
  const uint32_t ranks_;
  const uint32_t domains_;
  const uint32_t experts_;
  std::vector<double> loads_;  // in units of the mean load of a rank
  LayerSlots slots_;
  std::vector<std::vector<uint32_t>> at_;                 // [expert]: its ranks
  std::vector<uint32_t> replicas_;                        // [expert]: slots
  std::vector<double> shares_;                            // [expert]: load of each of its slots
  std::vector<uint32_t> on_rank_;                         // [expert][rank]: slots
  std::vector<uint32_t> in_domain_;                       // [expert][domain]: slots
  std::vector<uint32_t> distinct_;                        // [expert]: domains
  std::vector<std::vector<uint32_t>> members_of_domain_;  // [domain]: members it belongs to
  std::vector<uint32_t> of_member_;                       // [expert][member]: domains of it held
  std::vector<uint32_t> whole_members_;                   // [expert]
  std::vector<double> rank_loads_;                        // in units of the mean
  std::vector<std::vector<uint32_t>> ranks_of_domain_;
  // State while experts get their first replicas.
  std::vector<double> planned_loads_;  // [rank]
  // Min-heaps. Their entries may be older, lower values of a member or domain.
  std::vector<std::pair<double, uint32_t>> members_by_peak_;
  std::vector<DomainChoice> domains_by_room_;
  int64_t probes_max_ = 0;         // beyond, no further replicas
  int64_t probes_of_fitting_ = 0;  // probes of one fits()
  uint32_t least_ = UINT32_MAX;    // replicas that every expert has
  // Cached results of relief() and burden() since the last move; [expert].
  std::vector<double> relief_;
  std::vector<double> burden_;
  int64_t probes_ = 0;  // since the last improve(), or construction
};

}  // namespace moetrain

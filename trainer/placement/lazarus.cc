#include "trainer/placement/lazarus.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "formats/base/assert.h"
#include "trainer/placement/allocation.h"
#include "trainer/placement/overlap.h"
#include "trainer/placement/recovery.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// What the search of one candidate may cost, in words of recovery.h's sets: 1 to 2 ms for 16 ranks,
// all exchanges several times over for 6.
constexpr uint64_t kSearchWords = 1u << 16;

// Exchanges of ranks that are tried to align a layer: all pairs of 16 ranks, twice.
constexpr uint64_t kAlignRounds = 256;

struct Rating {
  uint64_t short_of_domains = 0;
  std::vector<uint64_t> fatal;  // the number of failures that counts most first
  auto operator<=>(const Rating&) const = default;
};

// How good holder masks are, by the number of sets of lost domains that are fatal.
std::vector<uint64_t> fatal_counts(std::span<const RankMask> masks, const LazarusOptions& options) {
  const uint32_t domains = options.domains();
  const std::vector<uint64_t> surviving = surviving_sets(masks, domains);
  std::vector<uint64_t> fatal;
  fatal.reserve(domains + 2);
  if (options.failures > 0) {
    fatal.push_back(binomial(domains, options.failures) - surviving[options.failures]);
  }
  for (uint32_t k = 0; k <= domains; ++k) fatal.push_back(binomial(domains, k) - surviving[k]);
  return fatal;
}

class Search {
 public:
  Search(std::span<const uint32_t> replicas, const LazarusOptions& options)
      : replicas_(replicas),
        options_(options),
        cost_(std::max<uint64_t>(1, (uint64_t{1} << options.domains()) / 64) +
              options.ranks * options.slots_per_rank / 32) {}

  Rating rate(const LayerSlots& slots) const {
    const std::vector<RankMask> masks =
        holder_masks(slots, static_cast<uint32_t>(replicas_.size()), options_.domain_of_rank);
    return {short_of_domains(slots, replicas_, options_), fatal_counts(masks, options_)};
  }

  // Exchanges two slots as long as that helps and the search may go on.
  Rating improve(LayerSlots& slots) const {
    repair_domains(slots, replicas_, options_);
    uint64_t rounds = kSearchWords / cost_;
    Rating best = rate(slots);
    while (rounds > 0 && exchange(slots, best, rounds)) {
    }
    return best;
  }

 private:
  // Every pair of slots on different ranks that hold different experts: exchanges them, and back
  // again unless that is better. True as soon as one was kept.
  bool exchange(LayerSlots& slots, Rating& best, uint64_t& rounds) const {
    const uint32_t per_rank = options_.slots_per_rank;
    const uint32_t count = options_.ranks * per_rank;
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t j = (i / per_rank + 1) * per_rank; j < count; ++j) {
        uint32_t& a = slots[i / per_rank][i % per_rank];
        uint32_t& b = slots[j / per_rank][j % per_rank];
        if (a == b || options_.domain(i / per_rank) == options_.domain(j / per_rank)) continue;
        if (rounds == 0) return false;
        --rounds;
        std::swap(a, b);
        Rating rating = rate(slots);
        if (rating < best) {
          best = std::move(rating);
          return true;
        }
        std::swap(a, b);
      }
    }
    return false;
  }

  const std::span<const uint32_t> replicas_;
  const LazarusOptions& options_;
  const uint64_t cost_;  // words looked at to rate a placement
};

LayerSlots searched(std::span<const uint32_t> replicas, const LazarusOptions& options,
                    LayerSlots overlap) {
  const Search search(replicas, options);
  LayerSlots candidates[] = {std::move(overlap), ring_placement(replicas, options),
                             spread_placement(replicas, options)};
  LayerSlots* best = nullptr;
  Rating best_rating;
  for (LayerSlots& candidate : candidates) {
    Rating rating = search.improve(candidate);
    if (best != nullptr && rating >= best_rating) continue;
    best = &candidate;
    best_rating = std::move(rating);
  }
  return best_rating.short_of_domains == 0 ? std::move(*best)
                                           : promised_placement(replicas, options);
}

// Renames ranks of layers so that what is fatal to one layer is fatal to others: a set of lost
// domains counts once then. Layer by layer, by exchanging the contents of two ranks.
class Aligner {
 public:
  explicit Aligner(const LazarusOptions& options) : options_(options) {}

  void add(LayerSlots& slots, std::span<const uint32_t> replicas) {
    const auto experts = static_cast<uint32_t>(replicas.size());
    std::vector<uint64_t> best = with(slots, experts);
    const std::vector<uint64_t> least = least_possible(slots, experts);
    bool better = !joint_.empty() && best != least;
    uint64_t rounds = kAlignRounds;
    while (better && rounds > 0) {
      better = false;
      for (uint32_t a = 0; a < options_.ranks; ++a) {
        for (uint32_t b = a + 1; b < options_.ranks && rounds > 0; ++b, --rounds) {
          std::swap(slots[a], slots[b]);
          std::vector<uint64_t> fatal = with(slots, experts);
          if (fatal < best && short_of_domains(slots, replicas, options_) == 0) {
            best = std::move(fatal);
            better = true;
          } else {
            std::swap(slots[a], slots[b]);
          }
        }
      }
      better = better && best != least;
    }
    const auto masks = holder_masks(slots, experts, options_.domain_of_rank);
    joint_.insert(joint_.end(), masks.begin(), masks.end());
    std::ranges::sort(joint_);
    joint_.erase(std::unique(joint_.begin(), joint_.end()), joint_.end());
  }

 private:
  std::vector<uint64_t> with(const LayerSlots& slots, uint32_t experts) const {
    std::vector<RankMask> masks = holder_masks(slots, experts, options_.domain_of_rank);
    masks.insert(masks.end(), joint_.begin(), joint_.end());
    return fatal_counts(masks, options_);
  }

  // No renaming has fewer fatal sets than the layer alone, or the others without it.
  std::vector<uint64_t> least_possible(const LayerSlots& slots, uint32_t experts) const {
    std::vector<uint64_t> least =
        fatal_counts(holder_masks(slots, experts, options_.domain_of_rank), options_);
    const std::vector<uint64_t> others = fatal_counts(joint_, options_);
    for (size_t i = 0; i < least.size(); ++i) least[i] = std::max(least[i], others[i]);
    return least;
  }

  const LazarusOptions& options_;
  std::vector<RankMask> joint_;  // of the layers before
};

Status check(const LazarusOptions& options) {
  if (options.ranks == 0 || options.ranks > kPlacementRanksMax || options.slots_per_rank == 0 ||
      options.slots_per_rank > kPlacementSlotsMax / options.ranks) {
    return make_error(ErrorCode::kInvalidArgument,
                      "placement: {} ranks of {} slots; 1 to {} ranks of at least one slot",
                      options.ranks, options.slots_per_rank, kPlacementRanksMax);
  }
  if (!options.domain_of_rank.empty() && options.domain_of_rank.size() != options.ranks) {
    return make_error(ErrorCode::kInvalidArgument, "placement: domains of {} ranks, there are {}",
                      options.domain_of_rank.size(), options.ranks);
  }
  if (options.failures <= options.domains()) return {};
  return make_error(ErrorCode::kInvalidArgument, "placement: {} failures of {} failure domains",
                    options.failures, options.domains());
}

}  // namespace

uint32_t LazarusOptions::domains() const {
  return domain_of_rank.empty() ? ranks : std::ranges::max(domain_of_rank) + 1;
}

LayerSlots place_replicas(std::span<const uint32_t> replicas, const LazarusOptions& options) {
  CKPT_ASSERT(std::accumulate(replicas.begin(), replicas.end(), uint64_t{0}) ==
              uint64_t{options.ranks} * options.slots_per_rank);
  Overlap overlap = overlap_placement(replicas, options);
  // Domains of several ranks are another problem than the one that overlap solves.
  if (overlap.whole && options.domain_of_rank.empty()) return std::move(overlap.slots);
  if (options.search && options.domains() <= kExactRanksMax) {
    return searched(replicas, options, std::move(overlap.slots));
  }
  if (repair_domains(overlap.slots, replicas, options)) return std::move(overlap.slots);
  return promised_placement(replicas, options);
}

Result<LayerSlots> lazarus_layer(std::span<const uint64_t> loads, const LazarusOptions& options) {
  CKPT_TRY(check(options));
  CKPT_ASSIGN(
      const std::vector<uint32_t> replicas,
      allocate_replicas(loads, options.ranks * options.slots_per_rank, options.replicas_min));
  return place_replicas(replicas, options);
}

LazarusOptions lazarus_options(const PlacementRequest& request, bool search) {
  return {.ranks = request.ranks,
          .slots_per_rank = request.slots_per_rank,
          .replicas_min = request.replicas_min,
          .failures = request.failures,
          .domain_of_rank = request.domain_of_rank,
          .search = search};
}

Result<std::vector<LayerSlots>> plan_lazarus(const PlacementRequest& request, bool search) {
  const LazarusOptions options = lazarus_options(request, search);
  std::optional<Aligner> aligner;
  if (search && options.domains() <= kExactRanksMax) aligner.emplace(options);
  std::vector<LayerSlots> layers;
  layers.reserve(request.loads.size());
  for (const std::vector<uint64_t>& loads : request.loads) {
    CKPT_ASSIGN(const std::vector<uint32_t> replicas,
                allocate_replicas(loads, request.slots(), request.replicas_min));
    LayerSlots& slots = layers.emplace_back(place_replicas(replicas, options));
    if (aligner) aligner->add(slots, replicas);
  }
  return layers;
}

}  // namespace moetrain

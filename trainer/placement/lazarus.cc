#include "trainer/placement/lazarus.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <vector>

#include "formats/base/assert.h"
#include "trainer/placement/allocation.h"
#include "trainer/placement/lazarus_search.h"
#include "trainer/placement/overlap.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Work limit for all layers of a request: at most 5 ms for 64 ranks, in proportion
// beyond. Plans of few ranks may take longer.
constexpr uint64_t kProbesOfRank = 30'000;
constexpr uint64_t kProbesOfFewRanks = 100'000'000;

constexpr uint64_t kSearches = 4;  // per layer: three candidates, and the alignment

// False if rating a single placement may exceed the budget.
bool searches(const LazarusOptions& options) {
  const uint32_t domains = options.domains();
  return options.search && domains <= kExactRanksMax &&
         FatalCounter::probes_max(domains, domains) <= options.search_probes / kSearches;
}

LayerSlots searched(std::span<const uint32_t> replicas, const LazarusOptions& options,
                    LayerSlots overlap) {
  LazarusSearch search(replicas, options);
  const std::function<LayerSlots()> candidates[] = {
      [&] { return std::move(overlap); }, [&] { return ring_placement(replicas, options); },
      [&] { return spread_placement(replicas, options); }};
  std::optional<LayerSlots> best;
  LazarusRating best_rating;
  for (const auto& make : candidates) {
    LayerSlots candidate = make();
    LazarusRating rating = search.improve(candidate, options.search_probes / kSearches);
    if (best && rating >= best_rating) continue;
    best = std::move(candidate);
    best_rating = std::move(rating);
    if (search.best_possible(best_rating)) break;
  }
  if (best_rating.short_of_domains == 0) return std::move(*best);
  return promised_placement(replicas, options);
}

// If all domains have equally many ranks: each domain as one rank with all their slots. Survival is
// the same then, and Maximum Rank Overlap is defined on that.
std::optional<LazarusOptions> as_ranks(const LazarusOptions& options) {
  if (options.domain_of_rank.empty()) return std::nullopt;
  LazarusOptions domains = options;
  domains.ranks = options.domains();
  domains.domain_of_rank.clear();
  if (options.ranks % domains.ranks != 0) return std::nullopt;
  const uint32_t size = options.ranks / domains.ranks;
  std::vector<uint32_t> sizes(domains.ranks);
  for (const uint32_t domain : options.domain_of_rank) {
    if (++sizes[domain] > size) return std::nullopt;
  }
  domains.slots_per_rank *= size;
  return domains;
}

// Deals each domain's replicas out to its ranks, the experts with fewest replicas first: rare
// experts are spread evenly, and a rank gets a second replica only after all have one.
LayerSlots dealt_out(LayerSlots of_domains, std::span<const uint32_t> replicas,
                     const LazarusOptions& options) {
  for (std::vector<uint32_t>& experts : of_domains) {
    std::ranges::sort(experts, [&](uint32_t a, uint32_t b) {
      return replicas[a] != replicas[b] ? replicas[a] < replicas[b] : a < b;
    });
  }
  const auto size = options.ranks / static_cast<uint32_t>(of_domains.size());
  std::vector<uint32_t> turn(of_domains.size());
  LayerSlots slots(options.ranks);
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    const std::vector<uint32_t>& experts = of_domains[options.domain(rank)];
    for (size_t i = turn[options.domain(rank)]++; i < experts.size(); i += size) {
      slots[rank].push_back(experts[i]);
    }
  }
  return slots;
}

Status check(const LazarusOptions& options) {
  if (options.ranks == 0 || options.ranks > kPlacementRanksMax || options.slots_per_rank == 0 ||
      options.slots_per_rank > kPlacementSlotsMax / options.ranks) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "placement: {} ranks of {} slots; 1 to {} ranks of at least one slot, at most "
        "{} slots in all",
        options.ranks, options.slots_per_rank, kPlacementRanksMax, kPlacementSlotsMax);
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
  if (const auto domains = as_ranks(options); domains && domains->ranks <= kExactRanksMax) {
    return dealt_out(place_replicas(replicas, *domains), replicas, options);
  }
  Overlap overlap = overlap_placement(replicas, options);
  // Overlap does not solve domains of different sizes.
  if (overlap.whole && options.domain_of_rank.empty()) return std::move(overlap.slots);
  if (searches(options)) {
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
  const uint64_t probes =
      request.ranks <= kExactRanksMax ? kProbesOfFewRanks : request.ranks * kProbesOfRank;
  return {.ranks = request.ranks,
          .slots_per_rank = request.slots_per_rank,
          .replicas_min = request.replicas_min,
          .failures = request.failures,
          .domain_of_rank = request.domain_of_rank,
          .search = search,
          .search_probes = std::min(kLazarusProbes, probes / std::max(request.layers(), 1u))};
}

Result<std::vector<LayerSlots>> plan_lazarus(const PlacementRequest& request, bool search) {
  const LazarusOptions options = lazarus_options(request, search);
  std::optional<LazarusAligner> aligner;
  if (searches(options)) aligner.emplace(options);
  std::vector<LayerSlots> layers;
  layers.reserve(request.loads.size());
  for (const std::vector<uint64_t>& loads : request.loads) {
    CKPT_ASSIGN(const std::vector<uint32_t> replicas,
                allocate_replicas(loads, request.slots(), request.replicas_min));
    LayerSlots& slots = layers.emplace_back(place_replicas(replicas, options));
    if (aligner) aligner->add(slots, request.experts(), options.search_probes / kSearches);
  }
  return layers;
}

}  // namespace moetrain

#include "trainer/partial/selector.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>

#include "formats/base/assert.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr std::array<std::string_view, std::size(kSelectors)> kSelectorNames = {
    "sequential", "load-aware", "risk-aware"};

double urgency(const SelectionOptions& options, const ExpertCandidate& candidate) {
  const auto tokens = static_cast<double>(candidate.unsaved_tokens);
  switch (options.selector) {
    case Selector::kSequential:
      return 0;  // age decides, as in every tie
    case Selector::kLoadAware:
      return tokens;
    case Selector::kRiskAware:
      return tokens * candidate.loss_probability * std::sqrt(static_cast<double>(candidate.age));
  }
  CKPT_ASSERT(false);
}

// The least key goes first: the expert that is overdue for longest, then the most urgent, then the
// oldest, then the next in turn. Last comes the expert itself.
using Key = std::tuple<uint64_t, double, uint64_t, uint64_t, uint32_t>;

Key key_of(const SelectionOptions& options, const ExpertCandidate& candidate, uint32_t expert) {
  const uint64_t overdue = candidate.age > options.staleness_max ? candidate.age : 0;
  return {UINT64_MAX - overdue, -urgency(options, candidate), UINT64_MAX - candidate.age,
          candidate.turn, expert};
}

// Number of experts due within `snapshots` (this one counts) that this snapshot has to take, so
// that later ones can take the rest in time.
struct Duty {
  uint64_t snapshots = 0;
  uint64_t experts = 0;
};

// The bound as duties, one for each date that some expert is due at, ascending. This snapshot takes
// `count`, later ones options.k.
class Bound {
 public:
  Bound(const SelectionOptions& options, std::span<const ExpertCandidate> candidates,
        uint32_t count)
      : options_(options) {
    due_.reserve(candidates.size());
    for (const ExpertCandidate& candidate : candidates) due_.push_back(due_in(candidate));
    std::vector<uint64_t> dates = due_;
    std::sort(dates.begin(), dates.end());
    for (size_t i = 0; i < dates.size(); ++i) {
      if (i + 1 < dates.size() && dates[i + 1] == dates[i]) continue;  // the last of its date
      const uint64_t by_others = uint64_t{options.k} * (dates[i] - 1);
      if (i + 1 <= by_others) continue;
      most_ = std::max<uint64_t>(most_, i + 1 - by_others);
      duties_.push_back({dates[i], std::min<uint64_t>(i + 1 - by_others, count)});
    }
  }

  // The largest duty, whatever the count.
  uint64_t most() const { return most_; }

  // True if the expert can be one of the `free` experts still to be chosen.
  bool allows(uint32_t expert, uint64_t free) const {
    return std::all_of(duties_.begin(), duties_.end(), [&](const Duty& duty) {
      return duty.experts <= free - 1 + (due_[expert] <= duty.snapshots ? 1 : 0);
    });
  }

  void chosen(uint32_t expert) {
    for (Duty& duty : duties_) {
      if (due_[expert] <= duty.snapshots && duty.experts > 0) --duty.experts;
    }
  }

 private:
  uint64_t due_in(const ExpertCandidate& candidate) const {
    return candidate.age > options_.staleness_max ? 1 : options_.staleness_max - candidate.age + 1;
  }

  const SelectionOptions& options_;
  std::vector<uint64_t> due_;  // [expert]
  std::vector<Duty> duties_;
  uint64_t most_ = 0;
};

}  // namespace

std::string_view selector_name(Selector selector) {
  return kSelectorNames.at(static_cast<size_t>(selector));
}

Result<Selector> parse_selector(std::string_view name) {
  const auto found = std::find(kSelectorNames.begin(), kSelectorNames.end(), name);
  if (found != kSelectorNames.end()) return static_cast<Selector>(found - kSelectorNames.begin());
  if (name == "age-aware") return make_error(ErrorCode::kInvalidArgument, "{}", kAgeAwareRemoved);
  return make_error(ErrorCode::kInvalidArgument,
                    "selector '{}': must be sequential, load-aware or risk-aware", name);
}

uint32_t default_staleness_max(uint32_t experts, uint32_t k) {
  return k == 0 ? 0 : 4 * ((experts + k - 1) / k);
}

Status check_selection(const SelectionOptions& options, uint32_t experts) {
  if (options.k == 0 || options.k > experts) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} experts of each layer per checkpoint: there are {}; 1 to {} can be taken",
                      options.k, experts, experts);
  }
  const uint32_t needed = (experts + options.k - 1) / options.k;
  if (options.staleness_max >= needed) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "a staleness of at most {} snapshots: {} experts, {} at a time, take {}",
                    options.staleness_max, experts, options.k, needed);
}

uint32_t k_within_bound(const SelectionOptions& options,
                        std::span<const ExpertCandidate> candidates) {
  const Bound bound(options, candidates, options.k);
  return std::max(options.k, static_cast<uint32_t>(bound.most()));
}

std::vector<uint32_t> select_experts(const SelectionOptions& options,
                                     std::span<const ExpertCandidate> candidates, uint32_t count) {
  CKPT_ASSERT(options.k >= 1 && count >= 1 && count <= candidates.size());
  std::vector<Key> keys;
  keys.reserve(candidates.size());
  for (uint32_t expert = 0; expert < candidates.size(); ++expert) {
    keys.push_back(key_of(options, candidates[expert], expert));
  }
  // Usually few of many are taken: the others need no order.
  std::ranges::make_heap(keys, std::greater<>());
  Bound bound(options, candidates, count);
  std::vector<uint32_t> chosen;
  chosen.reserve(count);
  for (; chosen.size() < count && !keys.empty(); keys.pop_back()) {
    std::ranges::pop_heap(keys, std::greater<>());
    const uint32_t expert = std::get<uint32_t>(keys.back());
    if (!bound.allows(expert, count - chosen.size())) continue;
    bound.chosen(expert);
    chosen.push_back(expert);
  }
  CKPT_ASSERT(chosen.size() == count);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<uint32_t> choose_experts(const ExpertGrid& grid, const SelectionOptions& options,
                                     const CandidateOf& candidate_of) {
  std::vector<uint32_t> chosen;
  chosen.reserve(size_t{grid.layers} * options.k);
  std::vector<ExpertCandidate> candidates(grid.experts);
  for (uint32_t layer = 0; layer < grid.layers; ++layer) {
    for (uint32_t expert = 0; expert < grid.experts; ++expert) {
      candidates[expert] = candidate_of(grid.at(layer, expert));
    }
    const uint32_t count = k_within_bound(options, candidates);
    for (const uint32_t expert : select_experts(options, candidates, count)) {
      chosen.push_back(static_cast<uint32_t>(grid.at(layer, expert)));
    }
  }
  return chosen;
}

std::vector<uint32_t> turns(const LayerSlots& slots, uint32_t experts, uint32_t layer, uint32_t k) {
  const auto ranks_of = holders(slots, experts);
  std::vector<uint32_t> earlier(slots.size());  // experts of each rank that come before
  std::vector<std::pair<uint32_t, uint32_t>> round(experts);
  for (uint32_t expert = 0; expert < experts; ++expert) {
    CKPT_ASSERT(!ranks_of[expert].empty());
    // Replicas share the saving; the holder with the fewest experts so far stands for them.
    const uint32_t rank =
        *std::min_element(ranks_of[expert].begin(), ranks_of[expert].end(),
                          [&](uint32_t a, uint32_t b) { return earlier[a] < earlier[b]; });
    round[expert] = {earlier[rank]++, rank};
  }
  std::vector<uint32_t> order(experts);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return round[a] < round[b]; });
  const uint64_t first = uint64_t{layer} * k % experts;
  std::vector<uint32_t> turn(experts);
  for (uint64_t place = 0; place < experts; ++place) {
    turn[order[place]] = static_cast<uint32_t>((place + experts - first) % experts);
  }
  return turn;
}

}  // namespace moetrain

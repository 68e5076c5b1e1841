#include "trainer/placement/joint_recovery.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>

#include "formats/base/assert.h"
#include "trainer/placement/recovery.h"

namespace moetrain {

namespace {

using DomainSet = std::vector<uint32_t>;
// [k]: numbers of sets of k domains, up to the largest wanted k. Up to 16,000 domains, or 1,000 of
// 65,536, these stay below the largest long double, 1e4932.
using Counts = std::vector<long double>;

constexpr uint32_t kCountedDomainsMax = 16'000;
constexpr uint32_t kCountedFailuresMax = 1'000;  // limit for more domains
// Elements of holder sets to check: about a second.
constexpr uint64_t kSampleElements = uint64_t{1} << 28;
constexpr uint64_t kSamplesMin = 1'000;
constexpr uint64_t kSamplesMax = 100'000;

// (1 + x)^n up to x^most.
Counts all_subsets(uint32_t n, uint32_t most) {
  Counts counts(std::min(n, most) + 1, 1);
  for (uint32_t k = 1; k < counts.size(); ++k) counts[k] = counts[k - 1] * (n - k + 1) / k;
  return counts;
}

// The product up to x^most.
Counts times(const Counts& a, const Counts& b, uint32_t most) {
  Counts product(std::min<size_t>(a.size() + b.size() - 1, size_t{most} + 1));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b.size() && i + j < product.size(); ++j) product[i + j] += a[i] * b[j];
  }
  return product;
}

struct Component {
  DomainSet domains;
  std::vector<const DomainSet*> sets;
};

// Connected components of domains that share sets, by union of sets.
std::vector<Component> components(const std::vector<DomainSet>& sets, uint32_t domains) {
  std::vector<uint32_t> parent(domains);
  std::iota(parent.begin(), parent.end(), 0u);
  const auto root = [&](uint32_t domain) {
    while (parent[domain] != domain) domain = parent[domain] = parent[parent[domain]];
    return domain;
  };
  for (const DomainSet& set : sets) {
    for (const uint32_t domain : set) parent[root(domain)] = root(set.front());
  }
  std::vector<Component> found(domains);
  for (const DomainSet& set : sets) found[root(set.front())].sets.push_back(&set);
  for (uint32_t domain = 0; domain < domains; ++domain) {
    found[root(domain)].domains.push_back(domain);
  }
  std::erase_if(found, [](const Component& component) { return component.sets.empty(); });
  return found;
}

// [k]: number of sets of k dead domains that this component survives.
std::optional<Counts> surviving(const Component& component, uint32_t most) {
  const auto size = static_cast<uint32_t>(component.domains.size());
  if (component.sets.size() == 1) {
    Counts counts = all_subsets(size, most);
    if (size <= most) counts.back() -= 1;
    return counts;
  }
  if (size > kExactRanksMax) return std::nullopt;
  std::vector<RankMask> masks;
  masks.reserve(component.sets.size());
  for (const DomainSet* set : component.sets) {
    RankMask& mask = masks.emplace_back(0);
    for (const uint32_t domain : *set) {
      const auto at = std::ranges::lower_bound(component.domains, domain);
      mask |= RankMask{1} << (at - component.domains.begin());
    }
  }
  const std::vector<uint64_t> counts = surviving_sets(masks, size);
  return Counts(counts.begin(), counts.end());
}

std::optional<std::vector<RecoveryAt>> exact(const std::vector<DomainSet>& sets, uint32_t domains,
                                             uint32_t failed_max) {
  if (sets.size() == 1 && sets.front().empty()) {  // held by no rank
    std::vector<RecoveryAt> none;
    none.reserve(failed_max);
    for (uint32_t k = 1; k <= failed_max; ++k) none.push_back({k, 0, 0});
    return none;
  }
  if (domains > kCountedDomainsMax && failed_max > kCountedFailuresMax) return std::nullopt;
  Counts all = {1};
  uint32_t in_sets = 0;
  for (const Component& component : components(sets, domains)) {
    const std::optional<Counts> counts = surviving(component, failed_max);
    if (!counts) return std::nullopt;
    all = times(all, *counts, failed_max);
    in_sets += static_cast<uint32_t>(component.domains.size());
  }
  all = times(all, all_subsets(domains - in_sets, failed_max), failed_max);
  const Counts possible = all_subsets(domains, failed_max);
  std::vector<RecoveryAt> recovery;
  recovery.reserve(domains);
  for (uint32_t k = 1; k <= failed_max; ++k) {
    recovery.push_back({k, static_cast<double>(all[k] / possible[k]), 0});
  }
  return recovery;
}

// The smallest number of deaths, in this order, that loses a set; `never` if none does.
uint32_t fatal_after(const std::vector<DomainSet>& sets, const std::vector<uint32_t>& place,
                     uint32_t never) {
  uint32_t first = never - 1;
  for (const DomainSet& set : sets) {
    uint32_t last = 0;
    for (const uint32_t domain : set) {
      last = std::max(last, place[domain]);
      if (last >= first) break;
    }
    first = std::min(first, last);
  }
  return first + 1;
}

// Draws the first `deaths` of a random order of the domains, repeatedly.
class Deaths {
 public:
  Deaths(uint32_t domains, uint32_t deaths)
      : deaths_(deaths), order_(domains), place_(domains, deaths) {
    std::iota(order_.begin(), order_.end(), 0u);
  }

  // [domain]: number of deaths before its own; `deaths` for survivors.
  const std::vector<uint32_t>& draw() {
    for (uint32_t i = 0; i < deaths_; ++i) place_[order_[i]] = deaths_;
    const auto domains = static_cast<uint32_t>(order_.size());
    // Not std::shuffle: its draws depend on the library.
    for (uint32_t i = 0; i < deaths_; ++i) {
      std::swap(order_[i], order_[i + random_() % (domains - i)]);
      place_[order_[i]] = i;
    }
    return place_;
  }

 private:
  const uint32_t deaths_;
  std::mt19937_64 random_{1};
  std::vector<uint32_t> order_;
  std::vector<uint32_t> place_;
};

double wilson_half_width(double probability, double samples) {
  constexpr double kZ = 1.96;
  const double spread =
      probability * (1 - probability) / samples + kZ * kZ / (4 * samples * samples);
  return kZ * std::sqrt(spread) / (1 + kZ * kZ / samples);
}

std::vector<RecoveryAt> estimate(const std::vector<DomainSet>& sets, uint32_t domains,
                                 uint32_t failed_max) {
  uint64_t elements = failed_max;
  for (const DomainSet& set : sets) elements += set.size();
  const uint64_t samples = std::clamp(kSampleElements / elements, kSamplesMin, kSamplesMax);
  Deaths deaths(domains, failed_max);
  std::vector<uint64_t> lost(failed_max + 2);  // [k]: samples that lost a set by the k-th death
  for (uint64_t sample = 0; sample < samples; ++sample) {
    ++lost[fatal_after(sets, deaths.draw(), failed_max + 1)];
  }
  std::vector<RecoveryAt> recovery;
  recovery.reserve(failed_max);
  uint64_t alive = samples;
  for (uint32_t k = 1; k <= failed_max; ++k) {
    alive -= lost[k];
    const auto count = static_cast<double>(samples);
    const double probability = static_cast<double>(alive) / count;
    recovery.push_back({k, probability, wilson_half_width(probability, count)});
  }
  return recovery;
}

}  // namespace

std::vector<DomainSet> smallest_sets(std::vector<DomainSet> sets) {
  std::ranges::sort(sets, [](const DomainSet& a, const DomainSet& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  uint32_t domains = 0;
  for (const DomainSet& set : sets) {
    if (!set.empty()) domains = std::max(domains, set.back() + 1);
  }
  std::vector<DomainSet> kept;
  std::vector<std::vector<uint32_t>> beginning_with(domains);  // [domain]: indices into kept
  for (DomainSet& set : sets) {
    const bool contains_one = std::ranges::any_of(set, [&](uint32_t domain) {
      return std::ranges::any_of(beginning_with[domain], [&](uint32_t index) {
        return std::ranges::includes(set, kept[index]);
      });
    });
    if (contains_one) continue;
    if (set.empty()) return {DomainSet()};
    beginning_with[set.front()].push_back(static_cast<uint32_t>(kept.size()));
    kept.push_back(std::move(set));
  }
  return kept;
}

namespace {

// The holder sets that `failed_max` failures can lose.
std::vector<DomainSet> deciding_sets(std::vector<DomainSet> holder_sets, uint32_t domains,
                                     uint32_t failed_max) {
  std::erase_if(holder_sets, [&](const DomainSet& set) { return set.size() > failed_max; });
  std::vector<DomainSet> sets = smallest_sets(std::move(holder_sets));
  for (const DomainSet& set : sets) CKPT_ASSERT(set.empty() || set.back() < domains);
  return sets;
}

}  // namespace

std::vector<RecoveryAt> joint_recovery(std::vector<DomainSet> holder_sets, uint32_t domains,
                                       uint32_t failed_max) {
  if (domains < 2) return {};
  failed_max = std::min(failed_max, domains - 1);
  const std::vector<DomainSet> sets = deciding_sets(std::move(holder_sets), domains, failed_max);
  if (auto recovery = exact(sets, domains, failed_max)) return std::move(*recovery);
  return estimate(sets, domains, failed_max);
}

std::optional<std::vector<RecoveryAt>> exact_recovery(std::vector<DomainSet> holder_sets,
                                                      uint32_t domains, uint32_t failed_max) {
  if (domains < 2) return std::vector<RecoveryAt>();
  failed_max = std::min(failed_max, domains - 1);
  return exact(deciding_sets(std::move(holder_sets), domains, failed_max), domains, failed_max);
}

}  // namespace moetrain

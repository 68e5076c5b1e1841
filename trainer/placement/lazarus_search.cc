#include "trainer/placement/lazarus_search.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "trainer/placement/overlap.h"
#include "trainer/placement/recovery.h"

namespace moetrain {

namespace {

// The number of failures that counts most first, then 0, 1, and so on.
std::vector<uint64_t> in_order(std::span<const uint64_t> by_failures, uint32_t failures) {
  std::vector<uint64_t> fatal;
  fatal.reserve(by_failures.size() + 1);
  if (failures > 0) fatal.push_back(by_failures[failures]);
  fatal.insert(fatal.end(), by_failures.begin(), by_failures.end());
  return fatal;
}

}  // namespace

// --- one layer -----------------------------------------------------------------------------------

LazarusSearch::LazarusSearch(std::span<const uint32_t> replicas, const LazarusOptions& options)
    : replicas_(replicas),
      options_(options),
      domains_(options.domains()),
      counter_(domains_),
      counts_(replicas.size() * domains_),
      masks_(replicas.size()),
      held_min_(std::min(std::ranges::min(replicas), domains_)) {
  wanted_.reserve(replicas.size());
  for (const uint32_t count : replicas) {
    wanted_.push_back(std::min({options.replicas_min, domains_, count}));
  }
}

void LazarusSearch::hold(const LayerSlots& slots) {
  std::ranges::fill(counts_, 0);
  std::ranges::fill(masks_, 0);
  probes_ += counts_.size() / 8;
  for (uint32_t rank = 0; rank < slots.size(); ++rank) {
    probes_ += slots[rank].size();
    for (const uint32_t expert : slots[rank]) add(expert, options_.domain(rank));
  }
}

void LazarusSearch::add(uint32_t expert, uint32_t domain) {
  if (count(expert, domain)++ == 0) masks_[expert] |= RankMask{1} << domain;
}

void LazarusSearch::remove(uint32_t expert, uint32_t domain) {
  if (--count(expert, domain) == 0) masks_[expert] &= ~(RankMask{1} << domain);
}

uint32_t LazarusSearch::missing(uint32_t expert) const {
  const auto held = static_cast<uint32_t>(std::popcount(masks_[expert]));
  return wanted_[expert] - std::min(wanted_[expert], held);
}

std::vector<uint64_t> LazarusSearch::fatal() {
  return in_order(counter_.count(masks_), options_.failures);
}

bool LazarusSearch::best_possible(const LazarusRating& rating) const {
  if (rating.short_of_domains > 0) return false;
  const size_t first = options_.failures > 0 ? 1 : 0;
  for (uint32_t k = 0; k <= domains_; ++k) {
    if (rating.fatal[first + k] > counter_.fatal_at_least(held_min_, k)) return false;
  }
  return true;
}

LazarusRating LazarusSearch::improve(LayerSlots& slots, uint64_t probes_max) {
  const uint64_t probes_end = probes() + probes_max;
  repair_domains(slots, replicas_, options_);
  hold(slots);
  LazarusRating best;
  for (uint32_t expert = 0; expert < replicas_.size(); ++expert) {
    best.short_of_domains += missing(expert);
  }
  best.fatal = fatal();
  best_possible_ = best_possible(best);
  while (exchange_all(slots, best, probes_end)) {
  }
  return best;
}

// Tries to exchange every pair of slots in different domains that hold different experts, and keeps
// only improvements. True if one was kept and more may help.
bool LazarusSearch::exchange_all(LayerSlots& slots, LazarusRating& best, uint64_t probes_end) {
  bool kept = false;
  for (uint32_t i = 0; i < options_.ranks; ++i) {
    const uint32_t a_domain = options_.domain(i);
    for (uint32_t& a : slots[i]) {
      for (uint32_t j = i + 1; j < options_.ranks; ++j) {
        const uint32_t b_domain = options_.domain(j);
        ++probes_;
        if (a_domain == b_domain) continue;
        for (uint32_t& b : slots[j]) {
          if (best_possible_ || probes() >= probes_end) return false;
          ++probes_;
          if (a != b && rate_exchange(a, a_domain, b, b_domain, best)) kept = true;
        }
      }
    }
  }
  return kept;
}

bool LazarusSearch::rate_exchange(uint32_t& a, uint32_t a_domain, uint32_t& b, uint32_t b_domain,
                                  LazarusRating& best) {
  // If neither expert gets a new domain, nothing improves.
  if (count(a, b_domain) > 0 && count(b, a_domain) > 0) return false;
  const uint64_t others = best.short_of_domains - missing(a) - missing(b);
  const auto move = [&](uint32_t expert, uint32_t from, uint32_t to) {
    remove(expert, from);
    add(expert, to);
  };
  move(a, a_domain, b_domain);
  move(b, b_domain, a_domain);
  probes_ += 8;
  const uint64_t missing_now = others + missing(a) + missing(b);
  if (missing_now <= best.short_of_domains) {
    LazarusRating rating{missing_now, fatal()};
    if (rating < best) {
      best = std::move(rating);
      std::swap(a, b);
      best_possible_ = best_possible(best);
      return true;
    }
  }
  move(a, b_domain, a_domain);
  move(b, a_domain, b_domain);
  return false;
}

// --- many layers ---------------------------------------------------------------------------------

namespace {

RankMask exchanged(RankMask mask, uint32_t a, uint32_t b) {
  const RankMask differ = ((mask >> a) ^ (mask >> b)) & 1;
  return mask ^ (differ << a | differ << b);
}

}  // namespace

LazarusAligner::LazarusAligner(const LazarusOptions& options)
    : options_(options), counter_(options.domains()), ranks_of_domain_(options.domains()) {
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    ranks_of_domain_[options.domain(rank)].push_back(rank);
  }
}

std::vector<uint64_t> LazarusAligner::with(std::span<const RankMask> masks) {
  both_ = joint_;
  both_.insert(both_.end(), masks.begin(), masks.end());
  return in_order(counter_.count(both_), options_.failures);
}

void LazarusAligner::add(LayerSlots& slots, uint32_t experts, uint64_t probes_max) {
  const auto domains = static_cast<uint32_t>(ranks_of_domain_.size());
  const uint64_t probes_end = probes_end_ += probes_max;
  probes_ += uint64_t{options_.ranks} * options_.slots_per_rank;
  const auto held = holder_masks(slots, experts, options_.domain_of_rank);
  std::vector<RankMask> masks = counter_.smallest(held);
  // No renaming has fewer fatal sets than the layer alone, or the others without it.
  std::vector<uint64_t> least = in_order(counter_.count(masks), options_.failures);
  const std::vector<uint64_t> others = in_order(counter_.count(joint_), options_.failures);
  for (size_t i = 0; i < least.size(); ++i) least[i] = std::max(least[i], others[i]);
  std::vector<uint64_t> best = with(masks);
  bool better = !joint_.empty() && best != least;
  while (better) {
    better = false;
    for (uint32_t a = 0; a < domains; ++a) {
      for (uint32_t b = a + 1; b < domains && best != least; ++b) {
        if (probes() >= probes_end) break;
        if (ranks_of_domain_[a].size() != ranks_of_domain_[b].size()) continue;
        std::vector<RankMask> renamed = masks;
        probes_ += masks.size();
        for (RankMask& mask : renamed) mask = exchanged(mask, a, b);
        std::vector<uint64_t> fatal = with(renamed);
        if (fatal >= best) continue;
        best = std::move(fatal);
        masks = std::move(renamed);
        better = true;
        for (size_t i = 0; i < ranks_of_domain_[a].size(); ++i) {
          std::swap(slots[ranks_of_domain_[a][i]], slots[ranks_of_domain_[b][i]]);
        }
      }
    }
    better = better && best != least && probes() < probes_end;
  }
  probes_ += masks.size() + joint_.size();
  joint_.insert(joint_.end(), masks.begin(), masks.end());
  std::ranges::sort(joint_);
  joint_.erase(std::unique(joint_.begin(), joint_.end()), joint_.end());
}

}  // namespace moetrain

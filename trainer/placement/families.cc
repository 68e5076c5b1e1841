#include "trainer/placement/families.h"

#include <algorithm>
#include <numeric>

#include "trainer/placement/joint_recovery.h"
#include "trainer/placement/judge.h"
#include "trainer/placement/recovery.h"

namespace moetrain {

namespace {

using DomainSet = std::vector<uint32_t>;

constexpr uint32_t kRatedFailures = 64;

// `count` blocks of `size` domains from `first` on.
void add_blocks(Family& family, uint32_t first, uint32_t count, uint32_t size) {
  for (uint32_t block = 0; block < count; ++block) {
    DomainSet& member = family.members.emplace_back(size);
    std::iota(member.begin(), member.end(), first + block * size);
  }
}

// Part `part` of `parts` of `count`: up to 65,536 of each, whose product takes more than 32 bits.
uint32_t part_of(uint64_t count, uint32_t part, uint32_t parts) {
  return static_cast<uint32_t>(part * count / parts);
}

// Blocks of at least `size` that use up all of `count` domains.
void add_partition(Family& family, uint32_t first, uint32_t count, uint32_t size) {
  const uint32_t blocks = count / size;
  for (uint32_t block = 0; block < blocks; ++block) {
    const uint32_t begin = part_of(count, block, blocks);
    add_blocks(family, first + begin, 1, part_of(count, block + 1, blocks) - begin);
  }
}

// `windows` sets of `size` neighbours, evenly around a ring of `count` domains.
void add_windows(Family& family, uint32_t first, uint32_t count, uint32_t size, uint32_t windows) {
  for (uint32_t window = 0; window < windows; ++window) {
    DomainSet& member = family.members.emplace_back(size);
    const uint32_t begin = part_of(count, window, windows);
    for (uint32_t i = 0; i < size; ++i) member[i] = first + (begin + i) % count;
    std::ranges::sort(member);
  }
}

std::vector<double> recovery_of(const Family& family, uint32_t domains, uint32_t failed_max) {
  std::vector<double> recovery;
  recovery.reserve(domains);
  for (const RecoveryAt& at : joint_recovery(family.members, domains, failed_max)) {
    recovery.push_back(at.failed < family.free_size ? at.probability : 0);
  }
  return recovery;
}

class Generator {
 public:
  Generator(const PlacementRequest& request, uint32_t failed_max)
      : request_(request),
        failed_max_(failed_max),
        domains_(request.domains()),
        least_(request.replicas_min),
        most_(std::clamp(request.slots() / request.experts(), least_, domains_)) {}

  std::vector<RatedFamily> run(const std::vector<uint32_t>& failures) {
    if (domains_ <= kExactRanksMax) {
      for (uint32_t size = least_; size <= most_; ++size) mixed(size);
    } else {
      // The next size is half as much again: neighbours hardly differ.
      for (uint32_t size = least_; size <= most_; size += std::max(1u, size / 2)) {
        Family family;
        add_partition(family, 0, domains_, size);
        add(std::move(family));
      }
      // Blocks of one size are hard to balance where there are few slots for each expert.
      for (uint32_t eighths = 1; most_ <= 2 * least_ && eighths < 8; ++eighths) parted(eighths);
    }
    for (const uint32_t failed : failures) {
      if (failed + 1 <= most_ && failed + 1 > least_) add({{}, failed + 1});
    }
    add({{}, least_});
    return std::move(found_);
  }

 private:
  void mixed(uint32_t size) {
    for (uint32_t blocks = 0; blocks * size <= domains_; ++blocks) {
      const uint32_t first = blocks * size;
      const uint32_t rest = domains_ - first;
      Family family;
      add_blocks(family, 0, blocks, size);
      if (rest < size + 1) {
        if (!family.members.empty()) add(std::move(family));
        continue;
      }
      Family windows = family;
      add_partition(family, first, rest, size + 1);
      add(std::move(family));
      if (rest < size + 3) continue;
      Family fewer = windows;
      add_windows(windows, first, rest, size + 1, rest);
      add(std::move(windows));
      add_windows(fewer, first, rest, size + 1, rest * 3 / 4);
      add(std::move(fewer));
    }
  }

  // This many eighths of the domains in the smallest blocks, the rest in larger ones.
  void parted(uint32_t eighths) {
    const uint32_t blocks = domains_ * eighths / 8 / least_;
    const uint32_t first = blocks * least_;
    Family family;
    add_blocks(family, 0, blocks, least_);
    add_partition(family, first, domains_ - first, least_ + 1);
    add(std::move(family));
  }

  // Adds the family, unless the experts obviously do not fit.
  void add(Family family) {
    std::vector<uint32_t> slots(domains_);
    for (uint32_t rank = 0; rank < request_.ranks; ++rank) {
      slots[request_.domain(rank)] += request_.slots_per_rank;
    }
    if (!fits(family, std::move(slots), request_.experts())) return;
    RatedFamily& rated = found_.emplace_back();
    rated.recovery = recovery_of(family, domains_, failed_max_);
    rated.family = std::move(family);
  }

  const PlacementRequest& request_;
  const uint32_t failed_max_;
  const uint32_t domains_;
  const uint32_t least_;  // domains of a member
  const uint32_t most_;
  std::vector<RatedFamily> found_;
};

}  // namespace

std::vector<RatedFamily> candidate_families(const PlacementRequest& request,
                                            const std::vector<uint32_t>& failures) {
  struct Scored {
    double asked = 0;
    double all = 0;
    RatedFamily family;
  };
  // All numbers of losses while they are few. For many domains, more would add nothing visible.
  uint32_t failed_max = kRatedFailures;
  for (const uint32_t failed : failures) failed_max = std::max(failed_max, failed);
  for (const RecoveryWanted& one : request.recovery_wanted) {
    failed_max = std::max(failed_max, one.failures);
  }
  std::vector<Scored> scored;
  for (RatedFamily& family : Generator(request, failed_max).run(failures)) {
    Scored& one = scored.emplace_back();
    for (const uint32_t failed : failures) one.asked += family.recovery[failed - 1];
    one.all = std::accumulate(family.recovery.begin(), family.recovery.end(), 0.0);
    one.family = std::move(family);
  }
  std::stable_sort(scored.begin(), scored.end(), [](const Scored& a, const Scored& b) {
    return a.asked != b.asked ? a.asked > b.asked : a.all > b.all;
  });
  std::vector<RatedFamily> families;
  families.reserve(scored.size());
  for (Scored& one : scored) families.push_back(std::move(one.family));
  return families;
}

RatedFamily family_of(const std::vector<LayerSlots>& layers, const PlacementRequest& request,
                      uint32_t failed_max) {
  RatedFamily rated;
  rated.family.members = smallest_sets(holder_sets(layers, request));
  rated.recovery = recovery_of(rated.family, request.domains(), failed_max);
  return rated;
}

std::optional<RatedFamily> exact_family_of(const std::vector<LayerSlots>& layers,
                                           const PlacementRequest& request, uint32_t failed_max) {
  RatedFamily rated;
  rated.family.members = smallest_sets(holder_sets(layers, request));
  const auto recovery = exact_recovery(rated.family.members, request.domains(), failed_max);
  if (!recovery) return std::nullopt;
  for (const RecoveryAt& at : *recovery) rated.recovery.push_back(at.probability);
  return rated;
}

}  // namespace moetrain

#include "trainer/simulate/checkpoints.h"

#include <algorithm>

#include "formats/base/assert.h"

namespace moetrain::simulate {

namespace {

bool survives(const Checkpoint& checkpoint, const Cluster& cluster) {
  const std::vector<NodeLife>& nodes = *checkpoint.nodes;
  for (size_t at = 0; at < nodes.size(); ++at) {
    if (cluster.has(nodes[at])) continue;
    const NodeLife& peer = nodes[(at + 1) % nodes.size()];
    if (nodes.size() == 1 || !cluster.has(peer)) return false;
  }
  return true;
}

}  // namespace

Checkpoints::Checkpoints(std::shared_ptr<const ExpertAges::Version> beginning) {
  kept_.push_back({.remote = 0, .experts = std::move(beginning)});
}

void Checkpoints::add(Checkpoint checkpoint) {
  CKPT_ASSERT(checkpoint.progress.step >= kept_.back().progress.step);
  if (checkpoint.in_memory != kNever) memory_free_ = checkpoint.in_memory;
  if (checkpoint.remote != kNever) remote_free_ = checkpoint.remote;
  const Micros now = checkpoint.taken;
  kept_.push_back(std::move(checkpoint));
  forget(now);
}

// Checkpoints older than the newest in the shared store are useless; of those in memory the newest
// three are kept, because newer ones may turn out to be on lost nodes.
void Checkpoints::forget(Micros now) {
  const Checkpoint& remote = newest_remote(now);
  while (&kept_.front() != &remote) kept_.pop_front();
  constexpr size_t kInMemoryMax = 3;
  size_t in_memory = 0;
  for (size_t at = kept_.size(); at-- > 1;) {
    const Checkpoint& one = kept_[at];
    const bool useless = one.remote == kNever && in_memory >= kInMemoryMax;
    if (one.in_memory <= now) ++in_memory;
    if (useless) kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(at));
  }
}

const Checkpoint& Checkpoints::newest_remote(Micros now) const {
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                  [&](const Checkpoint& one) { return one.remote <= now; });
  CKPT_ASSERT(found != kept_.rend());
  return *found;
}

const Checkpoint* Checkpoints::newest_in_memory(const Cluster& cluster, Micros now) const {
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(), [&](const Checkpoint& one) {
    return one.in_memory <= now && survives(one, cluster);
  });
  return found == kept_.rend() ? nullptr : &*found;
}

std::vector<uint64_t> Checkpoints::abort(Micros now) {
  std::vector<uint64_t> nowhere;
  for (Checkpoint& one : kept_) {
    if (one.in_memory > now) one.in_memory = kNever;
    if (one.remote > now) one.remote = kNever;
    if (one.in_memory == kNever && one.remote == kNever && one.experts != nullptr) {
      nowhere.push_back(one.experts->snapshot);
    }
  }
  std::erase_if(
      kept_, [](const Checkpoint& one) { return one.in_memory == kNever && one.remote == kNever; });
  memory_free_ = std::min(memory_free_, now);
  remote_free_ = std::min(remote_free_, now);
  return nowhere;
}

void Checkpoints::rewind(const Progress& to) {
  while (kept_.size() > 1 && kept_.back().progress.step > to.step) kept_.pop_back();
}

}  // namespace moetrain::simulate

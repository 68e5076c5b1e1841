// Checkpoints: the states that a simulated run could rewind to, and their location.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "trainer/simulate/expert_ages.h"
#include "trainer/simulate/groups.h"

namespace moetrain::simulate {

inline constexpr Micros kNever = std::numeric_limits<Micros>::max();

// Progress of a run at one of its steps.
struct Progress {
  uint64_t step = 0;
  uint64_t rank_steps = 0;  // summed over steps: ranks that took part
  Micros train = 0;         // time spent on steps that count
  bool operator==(const Progress&) const = default;
};

struct Checkpoint {
  Progress progress;
  Micros taken = 0;
  Micros in_memory = kNever;  // complete in the memory of the nodes (and of their peers)
  Micros remote = kNever;     // complete in the shared store
  std::shared_ptr<const std::vector<NodeLife>> nodes;  // that took part; peers are adjacent
  std::shared_ptr<const ExpertAges::Version> experts;  // in partial systems
};

class Checkpoints {
 public:
  // `beginning`: tokens of the experts at the start, in partial systems. A seed restores it: it is
  // never lost.
  explicit Checkpoints(std::shared_ptr<const ExpertAges::Version> beginning = {});

  bool memory_free(Micros now) const { return memory_free_ <= now; }
  bool remote_free(Micros now) const { return remote_free_ <= now; }
  const Checkpoint& newest() const { return kept_.back(); }
  // Adds a checkpoint, later than all before. Its in_memory and remote say when its transfers end.
  void add(Checkpoint checkpoint);

  // The newest that is in the shared store.
  const Checkpoint& newest_remote(Micros now) const;
  // The newest that is complete in the memory of live nodes: of every node itself, or of its
  // peer, the next one. nullptr: none.
  const Checkpoint* newest_in_memory(const Cluster& cluster, Micros now) const;

  // Nodes were lost: transfers in flight never complete. Returns the snapshots lost by that.
  std::vector<uint64_t> abort(Micros now);
  // Removes checkpoints newer than `to`, which are no longer part of the history.
  void rewind(const Progress& to);

 private:
  void forget(Micros now);

  std::deque<Checkpoint> kept_;  // ascending; the first is the newest old one in the shared store
  Micros memory_free_ = 0;
  Micros remote_free_ = 0;
};

}  // namespace moetrain::simulate

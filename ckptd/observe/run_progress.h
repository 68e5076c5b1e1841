// RunProgress: for each run its newest durable step, the snapshots that failed since, the snapshots
// that wait for the disk, and whether the run is being trained. `ckptctl status`, /readyz and the
// metrics show this. Pure. Loop thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckptd {

class RunProgress {
 public:
  struct Durable {
    uint32_t lineage = 0;
    uint64_t step = 0;
    uint64_t time_ns = 0;                 // wall clock, of its commit
    std::optional<uint64_t> lost_tokens;  // if the trainer reports them
    std::optional<double> plt;            // likewise
  };
  // Consecutive failed snapshots, all after the newest durable one.
  struct Failing {
    uint64_t count = 0;
    uint64_t first_step = 0;
    uint64_t last_step = 0;
    uint64_t since_ns = 0;
    // True: at least one failed by the disk or the journal, not by its ranks, its deadline, or its
    // request.
    bool in_store = false;
    // The last failure; with in_store the last one in the store.
    uint64_t cause_step = 0;
    std::string cause;
    std::string kind;  // see Fault::kind

    bool of_full_disk() const;
  };
  // Snapshots that all ranks have sealed and that are not written yet.
  struct Waiting {
    uint64_t count = 0;
    uint64_t first_step = 0;
    uint64_t longest_ns = 0;  // waiting time of the one that was sealed first
  };
  struct Run {
    std::optional<Durable> durable;
    std::optional<Failing> failing;
    std::optional<Waiting> waiting;
    bool trained = false;
  };
  struct Failure {
    uint64_t step = 0;
    std::string cause;
    std::string kind;
    bool in_store = false;
  };

  // Returns the failures that this commit ended, if any.
  std::optional<Failing> durable(const std::string& run, const Durable& commit);
  // True if the cause is new: the run was not failing, or failed for another kind of cause.
  bool failed(const std::string& run, const Failure& failure, uint64_t now_ns);
  // `trained`: the runs being trained (unset: unknown, keeps the last state). `waiting`: waiting
  // snapshots by run. A run that is not trained keeps its failures in the store until its next
  // commit or forget(); its other failures are dropped.
  void update(const std::optional<std::set<std::string>>& trained,
              const std::map<std::string, Waiting>& waiting);
  void forget(const std::string& run);

  const std::map<std::string, Run>& runs() const { return runs_; }
  // At most `most` runs: first trained ones, then the most recently changed ones.
  std::vector<std::pair<std::string, const Run*>> latest(size_t most) const;

 private:
  std::map<std::string, Run> runs_;
};

// The kind of all causes that are a full disk.
inline constexpr std::string_view kKindDiskFull = "disk full";
// The cause without its numbers, so that similar refusals have equal kinds.
std::string kind_of_cause(const std::string& cause);

}  // namespace ckptd

// RunProgress: for each run its newest durable step, the snapshots that have failed since, those
// that wait for the disk, and whether the run is trained now. `ckptctl status`, /readyz and the
// metrics show it. Pure. Loop thread only.
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
    std::optional<uint64_t> lost_tokens;  // if the trainer tells
    std::optional<double> plt;            // likewise
  };
  // Snapshots that failed in a row, all after the newest durable one.
  struct Failing {
    uint64_t count = 0;
    uint64_t first_step = 0;
    uint64_t last_step = 0;
    uint64_t since_ns = 0;
    // True: one of them failed by the disk or the journal, not by its ranks, its deadline, or by
    // what it asked for.
    bool in_store = false;
    // The last one; with in_store the last one that failed in the store.
    uint64_t cause_step = 0;
    std::string cause;
    std::string kind;  // as Fault::kind

    bool of_full_disk() const;
  };
  // Snapshots that all ranks have sealed and the disk has not written yet.
  struct Waiting {
    uint64_t count = 0;
    uint64_t first_step = 0;
    uint64_t longest_ns = 0;  // how long the one that was sealed first has waited
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

  // Returns the failures that this commit ended, if there were any.
  std::optional<Failing> durable(const std::string& run, const Durable& commit);
  // True if this is a new cause: the run was not failing, or failed for another kind of cause.
  bool failed(const std::string& run, const Failure& failure, uint64_t now_ns);
  // The runs that are trained now (unset: that cannot be told, and stays as it was), and what waits
  // of which run. A run that nobody trains keeps its failures in the store until its next commit or
  // forget(); its other failures are forgotten.
  void update(const std::optional<std::set<std::string>>& trained,
              const std::map<std::string, Waiting>& waiting);
  void forget(const std::string& run);

  const std::map<std::string, Run>& runs() const { return runs_; }
  // At most `most` runs: those that are trained, then those that changed last, the newest first.
  std::vector<std::pair<std::string, const Run*>> latest(size_t most) const;

 private:
  std::map<std::string, Run> runs_;
};

// The kind of a cause that is a full disk.
inline constexpr std::string_view kKindDiskFull = "disk full";
// A cause without its numbers: what two refusals of one kind have in common.
std::string kind_of_cause(const std::string& cause);

}  // namespace ckptd

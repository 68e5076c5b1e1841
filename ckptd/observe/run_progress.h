// RunProgress: for each run its newest durable step, and the snapshots that have failed since.
// `ckptctl status`, /readyz and the metrics show it. Pure. Loop thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
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
    std::string cause;  // of the last one
    std::string kind;   // as Fault::kind
  };
  struct Run {
    std::optional<Durable> durable;
    std::optional<Failing> failing;
  };

  // Returns the failures that this commit ended, if there were any.
  std::optional<Failing> durable(const std::string& run, const Durable& commit);
  // True if this is a new cause: the run was not failing, or failed for another kind of cause.
  bool failed(const std::string& run, uint64_t step, std::string cause, std::string kind,
              uint64_t now_ns);
  // Nobody trains the run any more, so nothing of it is failing.
  void ended(const std::string& run);
  void forget(const std::string& run);

  const std::map<std::string, Run>& runs() const { return runs_; }
  // The `most` runs that changed last, the newest first.
  std::vector<std::pair<std::string, const Run*>> latest(size_t most) const;

 private:
  std::map<std::string, Run> runs_;
};

// A cause without its numbers: what two refusals of one kind have in common.
std::string kind_of_cause(const std::string& cause);

}  // namespace ckptd

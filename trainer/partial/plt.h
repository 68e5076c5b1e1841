// PltMeter: the proportion of lost tokens, exact, for each expert.
//
//   PLT = 1/L * sum over layers i of ( sum over recoveries j of lost_ij / (T_i * k_i) )
//
// (PEC, arXiv:2408.04307). T_i * k_i is the number of assignments of tokens to experts of layer i
// since the run began: the sum of its routing counts. lost_ij are those of them whose updates
// recovery j threw away. Two kinds are kept apart:
//   restart   tokens between an expert's version and the view that the run rewinds to
//   rollback  tokens between an expert's version and the last applied step; the run does not rewind
//
// The meter is a ledger, not a log. At all times, for every expert,
//   tokens routed to it = tokens whose updates its state holds + tokens lost.
// A version holds what the state held when it was saved; so a recovery loses what the state should
// hold at that step less what the version holds. A second recovery from the same version finds the
// first one's loss in neither, and does not count it again. Because the ledger is saved with the
// state, a run that rewinds to a view from before a loss has not suffered it (it suffers it anew).
//
// The paper's threshold for quality, 3.75 %, was measured for restarts only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "trainer/partial/experts.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

// Checks that these are routing counts of a dropless MoE: every layer has the same number of
// assignments, tokens * top_k. kInvalidArgument names the first layer that differs.
Status check_routing(const ExpertGrid& grid, std::span<const int64_t> routed, int64_t assignments);

class PltMeter {
 public:
  // Tokens lost so far, [grid.size()].
  struct Lost {
    std::vector<int64_t> restart;
    std::vector<int64_t> rollback;
    bool operator==(const Lost&) const = default;
  };

  // Nothing was lost yet.
  explicit PltMeter(const ExpertGrid& grid);
  // Continues from a saved lost(). kInvalidArgument unless these are counts of this grid, none of
  // them larger than its count in `routed`.
  static Result<PltMeter> resume(const ExpertGrid& grid, Lost lost,
                                 std::span<const int64_t> routed);

  // `routed`: routing counts since the run began, [grid.size()], of the state in question.

  // Tokens whose updates the expert's state holds.
  int64_t held(size_t expert, std::span<const int64_t> routed) const {
    return routed[expert] - lost_.restart[expert] - lost_.rollback[expert];
  }

  // The run rewound to a view with these counts, where the versions hold `held` tokens, [size()].
  // Weights and moments of one expert may differ in age: give the smaller. Returns the tokens that
  // this recovery lost. kCorrupt if a version holds more than the view can have; nothing changed.
  Result<int64_t> restarted(std::span<const int64_t> routed, std::span<const int64_t> held);
  // One expert was restored from a version that holds `held` tokens; the rest did not rewind.
  Result<int64_t> rolled_back(size_t expert, std::span<const int64_t> routed, int64_t held);

  // The formula above, of both kinds together or of one. 0 before the first token.
  double plt(std::span<const int64_t> routed) const;
  double plt_restart(std::span<const int64_t> routed) const;
  double plt_rollback(std::span<const int64_t> routed) const;

  const Lost& lost() const { return lost_; }
  bool operator==(const PltMeter&) const = default;

 private:
  Status check_version(size_t expert, std::span<const int64_t> routed, int64_t held) const;

  ExpertGrid grid_;
  Lost lost_;
};

// The same formula for any lost tokens, [grid.size()]: of one recovery, or of one that may come.
double lost_proportion(const ExpertGrid& grid, std::span<const int64_t> lost,
                       std::span<const int64_t> routed);

}  // namespace moetrain

// ExpertAges: what partial checkpoints of a simulated run hold of every expert, and what its
// failures lose: the same selectors and the same meter as in the trainer (trainer/partial).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/partial/plt.h"
#include "trainer/partial/save_ledger.h"
#include "trainer/partial/selector.h"
#include "trainer/simulate/groups.h"

namespace moetrain::simulate {

class ExpertAges {
 public:
  struct Options {
    ExpertGrid grid;
    uint32_t k = 1;                            // experts of each layer per snapshot
    Selector selector = Selector::kRiskAware;  // weighs age without a trial: loads stay
    bool memory_holds_all = false;  // memory level: all experts, only what persists is partial
  };
  explicit ExpertAges(const Options& options);

  // What a snapshot says of the experts: tokens that its versions hold, and what a run that rewinds
  // to it goes on from. A value; never changes.
  struct Version {
    uint64_t snapshot = 0;  // its number
    std::vector<int64_t> routed;
    std::vector<int64_t> memory;           // tokens whose updates the versions in memory hold
    std::vector<SaveLedger::Saved> saved;  // those of what is written
    PltMeter::Lost lost;
  };

  // Of an untrained model, of which nothing is saved.
  std::shared_ptr<const Version> beginning() const;

  // `steps` steps of `ranks` ranks each.
  void train(uint64_t steps, uint64_t ranks, const std::vector<std::vector<uint64_t>>& loads);
  // After a change of the placement: who can lose what, and whose turn is when.
  void placed(const Groups& groups);
  // Takes a snapshot: all experts the first time, K of each layer from then on. `experts` gets how
  // many it took of all.
  std::shared_ptr<const Version> snapshot(size_t& experts);
  // This snapshot never arrived: its experts are due again.
  void failed(uint64_t snapshot) { ledger_.fail(snapshot); }

  // Everybody rewinds to a view in which expert i holds the updates of held[i] tokens: what is in
  // memory, or what is written, or some of both.
  void rewind(const Version& view, std::span<const int64_t> held);
  // One expert comes back alone, as it was in `version`; what is newer must not be used any more.
  void roll_back(uint32_t expert, const Version& version);

  double plt() const { return meter_.plt(routed_); }

 private:
  Options options_;
  std::vector<int64_t> routed_;
  PltMeter meter_;
  SaveLedger ledger_;
  uint64_t snapshots_ = 0;
  std::vector<double> risk_;
  std::vector<std::vector<uint32_t>> turns_;  // [layer][expert]
};

}  // namespace moetrain::simulate

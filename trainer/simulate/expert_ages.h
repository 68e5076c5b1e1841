// ExpertAges: state of every expert in a simulated run's partial checkpoints, and losses by its
// failures: the same selectors and the same meter as in the trainer (trainer/partial).
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
    uint32_t k = 1;  // experts of each layer per snapshot
    Selector selector = Selector::kRiskAware;
    bool memory_holds_all = false;  // memory level: all experts; only durable versions are partial
  };
  explicit ExpertAges(const Options& options);

  // The experts in a snapshot: tokens of its versions, and the counts from which a run that rewinds
  // to it continues. Immutable.
  struct Version {
    uint64_t snapshot = 0;  // its number
    std::vector<int64_t> routed;
    std::vector<int64_t> memory;           // tokens whose updates the versions in memory contain
    std::vector<SaveLedger::Saved> saved;  // saves of the written versions
    PltMeter::Lost lost;
  };

  // The version of an untrained model, without saves.
  std::shared_ptr<const Version> beginning() const;

  // `steps` steps of `ranks` ranks each.
  void train(uint64_t steps, uint64_t ranks, const std::vector<std::vector<uint64_t>>& loads);
  // Call after a change of the placement: updates risks and turns.
  void placed(const Groups& groups);
  // Takes a snapshot: all experts the first time, K of each layer from then on. `experts` is set to
  // the number of experts taken.
  std::shared_ptr<const Version> snapshot(size_t& experts);
  // This snapshot was lost: its experts are due again.
  void failed(uint64_t snapshot) { ledger_.fail(snapshot); }

  // All ranks rewind to a view in which expert i contains the updates of held[i] tokens: versions
  // in memory, written versions, or a mix.
  void rewind(const Version& view, std::span<const int64_t> held);
  // Restores one expert alone from `version`; its newer versions must no longer be used.
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

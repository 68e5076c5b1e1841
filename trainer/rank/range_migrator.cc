#include "trainer/rank/range_migrator.h"

#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "trainer/rank/state_restorer.h"

namespace moetrain {

RangeMigrator::RangeMigrator(RankState& state, FaultInjection& faults, LiveState& live)
    : state_(state),
      faults_(faults),
      live_(live),
      recut_(*state.held.model, [&state] { state.settle_device(); }) {}

Result<bool> RangeMigrator::is_whole(EpochComm& comm) {
  return comm.lend([this](Comm& group) { return recut_.is_whole(group, live_.status()); });
}

Result<RecoveryReport> RangeMigrator::recut(EpochComm& comm, const std::vector<bool>& stays) {
  const uint64_t begin_ns = monotonic_ns();
  RecoveryReport report;
  faults_.enter_phase("plan");
  CKPT_TRY(share_load_window(comm));
  const uint64_t planned_ns = monotonic_ns();
  faults_.enter_phase("move");
  const uint64_t step = state_.progress.step;
  CKPT_TRY(comm.lend([&](Comm& group) { return recut_.move(group, stays, step); }));
  live_.is_whole();  // also a rank that joins: its new range may be the only copy soon
  faults_.enter_phase("commit");
  CKPT_TRY(comm.lend([this](Comm& group) { return recut_.commit(group); }));
  if (stays.empty()) CKPT_TRY(train_with(comm));
  state_.held.model->parameters_changed();
  state_.held.remap();
  report.relayout.bytes_moved = recut_.bytes_moved();
  report.relayout.memory_bytes = recut_.memory().bytes;
  report.relayout.memory_bound = recut_.memory().bound;
  report.take_losses(state_);
  report.relayout.plan_ms = ms_between(begin_ns, planned_ns);
  report.relayout.migrate_ms = ms_between(planned_ns, monotonic_ns());
  return report;
}

// The ranges become those of a store for this group.
Status RangeMigrator::train_with(const EpochComm& comm) {
  CKPT_ASSERT(comm.size() == state_.seat.group.ranks);
  CKPT_ASSIGN(const ComputePlacement placement, first_sharded_placement(state_));
  return state_.held.hold(placement, state_.seat.rank, recut_.take());
}

// Joining ranks get the counts that steps are planned from. Of ranks that went through all steps,
// one that applied the last step after the others has not recorded its counts yet.
Status RangeMigrator::share_load_window(EpochComm& comm) {
  const ModelConfig& shape = state_.options.config.model;
  std::optional<LoadWindow>& window = state_.load_window;
  const Progress& progress = state_.progress;
  if (window && window->last_step() + 1 == progress.step) window->record(progress.routed_last);
  if (!window || window->last_step() != progress.step) {
    window.emplace(shape.layers, shape.experts, progress.step);
  }
  std::vector<std::byte> bytes = window->encode();
  std::vector<int64_t> values((bytes.size() + sizeof(int64_t) - 1) / sizeof(int64_t));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  CKPT_TRY(comm.broadcast(values, recut_.source()));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  CKPT_ASSIGN(window, LoadWindow::decode(bytes, shape.layers, shape.experts, progress.step));
  return {};
}

}  // namespace moetrain

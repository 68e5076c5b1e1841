#include "trainer/rank/view_return.h"

#include <array>
#include <utility>
#include <vector>

#include "trainer/checkpoint/restore.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
namespace client = ckpt::client;

Result<ViewReturn::Returned> ViewReturn::run(EpochComm& comm, const client::Epoch& epoch) {
  const uint64_t begin_ns = monotonic_ns();
  // Until all ranks have restored, no rank may rely on the state in memory.
  parts_.live.forget();
  parts_.ranges.reset();
  parts_.faults.enter_phase("restore");
  CKPT_ASSIGN(const View view, agree_on_view(comm, epoch.lineage));
  // Later snapshots have failed: their steps will be redone.
  parts_.checkpoints.collect();
  const uint64_t planned_ns = monotonic_ns();
  client::Epoch from_view = epoch;
  from_view.goes_on = false;
  from_view.resume = view;
  CKPT_ASSIGN(RecoveryReport report, restore(comm, from_view));
  parts_.saved.resumed();
  parts_.faults.enter_phase("settle");
  if (view) CKPT_TRY(parts_.restorer.settle(comm, *view, report));
  // The lineage has a commit of this step, and accepts no second one.
  if (view && view->lineage == epoch.lineage) parts_.saved.lineage_continued();
  parts_.live.is_whole();
  report.relayout.plan_ms = ms_between(begin_ns, planned_ns);
  report.relayout.migrate_ms = ms_between(planned_ns, monotonic_ns());
  return Returned{std::move(report), view};
}

// The same view for all ranks. If a rank cannot read it, or ckptd named it another view, the
// lineage cannot continue: it may have a later commit.
Result<ViewReturn::View> ViewReturn::agree_on_view(EpochComm& comm, uint32_t lineage) {
  RankState& state = parts_.state;
  const Result<View> newest =
      newest_commit(state.member.session(), state.options.run, lineage, state.held.units);
  if (!newest.ok()) {
    if (is_group_loss(newest.error()) || state.member.epoch_over()) return newest.error();
    state.say(newest.error().message);
  }
  const View view = newest.ok() ? *newest : View();
  const std::array<int64_t, 4> mine = {newest.ok() ? 1 : 0, view ? 1 : 0,
                                       view ? static_cast<int64_t>(view->lineage) : 0,
                                       view ? static_cast<int64_t>(view->step) : 0};
  std::vector<int64_t> all(comm.size() * mine.size());
  CKPT_TRY(comm.all_gather(mine, all));
  bool same = true;
  for (size_t i = 0; i < all.size(); ++i) same = same && all[i] == mine[i % mine.size()];
  if (same && newest.ok()) return view;
  return return_to_newest("the newest commit cannot be read on every rank");
}

// All ranks restore their part, or all return to an older view.
Result<RecoveryReport> ViewReturn::restore(EpochComm& comm, const client::Epoch& epoch) {
  RankState& state = parts_.state;
  Result<RecoveryReport> report = parts_.restorer.restore(epoch);
  if (!report.ok()) {
    if (is_group_loss(report.error()) || state.member.epoch_over()) return report.error();
    state.say(report.error().message);
  }
  int64_t failed = report.ok() ? 0 : 1;
  CKPT_TRY(comm.all_reduce_max(std::span(&failed, 1)));
  if (failed == 0) return report;
  return return_to_newest("the newest view cannot be restored on every rank");
}

ckpt::Error ViewReturn::return_to_newest(const std::string& reason) {
  parts_.state.member.return_to_newest();
  return make_error(ErrorCode::kAborted, "{}: all go back to the newest complete view", reason);
}

}  // namespace moetrain

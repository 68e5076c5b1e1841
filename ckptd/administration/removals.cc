#include "ckptd/administration/removals.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/sessions/access.h"
#include "formats/base/counted.h"
#include "formats/selector.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Status;

namespace {

// Records of the removal, and of the removal of tags and pins that would point at nothing. Highest
// step first: no view needs later commits, so all listed commits stay complete meanwhile.
std::vector<fb::RecordT> prune_records(const RunInfo& run, PrunePlan plan, uint64_t time_ns) {
  std::ranges::sort(plan.removed, [](const auto& a, const auto& b) {
    return std::pair(a.point.step, a.point.lineage) > std::pair(b.point.step, b.point.lineage);
  });
  std::vector<fb::RecordT> records;
  for (const PrunePlan::Removed& removed : plan.removed) {
    for (const std::string& tag : removed.tags) {
      fb::UntaggedT untagged;
      untagged.run = run.id;
      untagged.tag = tag;
      untagged.time_ns = time_ns;
      records.push_back(make_record(std::move(untagged)));
    }
    if (removed.pinned) records.push_back(record_at<fb::UnpinnedT>(run, removed.point, time_ns));
    fb::DeletedT deleted;
    deleted.reason = removed.reason;
    deleted.kept = removed.kept_units;
    deleted.kept_tokens = removed.kept_tokens;
    records.push_back(record_at(run, removed.point, time_ns, std::move(deleted)));
  }
  return records;
}

void log_prune(const RunInfo& run, const PrunePlan& plan) {
  for (const PrunePlan::Removed& removed : plan.removed) {
    log_event(spdlog::level::info, "commit_deleted",
              {{"run", run.name},
               {"lineage", removed.point.lineage},
               {"step", removed.point.step},
               {"kept_units", removed.kept_units.size()},
               {"reason", removed.reason}},
              "{}: deleted: {}; {} of its units stay for other views",
              ckpt::commit_name(run.name, removed.point.lineage, removed.point.step),
              removed.reason, removed.kept_units.size());
  }
}

}  // namespace

Removals::Removals(const ChangeContext& context, const Sessions& sessions, RunGate& gate,
                   Outside outside)
    : context_(context), sessions_(sessions), gate_(gate), outside_(std::move(outside)) {}

// The index must be complete, and no resume point may be on its way into the journal: the commit
// that the next epoch resumes from would look like any other.
Status Removals::may_delete(const RunInfo& run) const {
  CKPT_TRY(context_.history.catalog().health());
  if (gate_.busy(RunActivity::kWriteEpoch, run.id)) {
    return make_error(ErrorCode::kUnavailable, "run {}: an epoch is being opened; try again",
                      run.name);
  }
  return {};
}

Status Removals::may_remove(const RunInfo& run) const {
  CKPT_TRY(may_delete(run));
  const auto in_use = [&](const std::string& by) {
    return make_error(ErrorCode::kFailedPrecondition, "run {}: it is in use: {}", run.name, by);
  };
  for (const auto& [id, session] : sessions_.all()) {
    if (session.run != run.id || !may(session, run, ckpt::Right::kCommit)) continue;
    return in_use(
        fmt::format("session {}, process {}, trains it; stop that job first", id, session.pid));
  }
  if (gate_.busy(RunActivity::kRegister, run.id)) return in_use("its units are being registered");
  if (!outside_.points_being_taken(run.id).empty()) {
    return in_use("a snapshot of it is being taken");
  }
  if (!outside_.in_group(run.id)) return {};
  return in_use(outside_.may_rejoin()
                    ? fmt::format("ranks of its last epoch have {} s from the daemon's start to "
                                  "rejoin",
                                  limits::kReopenDeadline / std::chrono::seconds(1))
                    : std::string("an epoch of it is open"));
}

Result<PrunePlan> Removals::plan(const Session& session, const PruneArgs& args) const {
  CKPT_TRY(may_delete(args.run));
  if (args.force && !may_use(session, ::geteuid())) {
    return make_error(ErrorCode::kPermissionDenied,
                      "prune --force: only root and the daemon's own user end what readers hold");
  }
  const Catalog& catalog = context_.history.catalog();
  PruneRequest request;
  request.run = args.run.id;
  request.rules = args.rules ? *args.rules : catalog.keep_rules(args.run.id);
  request.now_ns = context_.turn.wall_clock_ns();
  request.busy = outside_.points_being_taken(args.run.id);
  request.held = outside_.versions_held(args.run.id);
  if (!args.force) request.held_views = outside_.held_views(args.run.id);
  return plan_prune(catalog, request);
}

void Removals::prune(const Session& session, const RequestedChange& change) {
  const auto args = context_.history.read(
      [&] { return parse_prune_args(context_.query_context(session), change.args); });
  if (!args.ok()) return context_.refuse(change, args.error());
  const Status allowed = check_may(session, args->run, {ckpt::Right::kPrune});
  if (!allowed.ok()) return context_.refuse(change, allowed.error());
  const auto planned = context_.history.read([&] { return plan(session, *args); });
  if (!planned.ok()) return context_.refuse(change, planned.error());
  const QueryAnswer document = prune_answer(args->run, *planned, args->dry_run, args->page);
  if (args->dry_run || planned->removed.empty()) return context_.queue.answer(change, document);
  if (args->force) {
    // Readers of kept commits keep their holds.
    std::set<ViewPoint> kept;
    for (const PrunePlan::Kept& one : planned->kept) kept.insert(one.point);
    outside_.end_holds_by_force(session, [&](const Hold& hold) {
      return hold.run == args->run.id && !kept.contains(hold.view);
    });
  }
  write(change, {RunActivity::kDelete, args->run, *planned, args->page},
        prune_records(args->run, *planned, context_.turn.wall_clock_ns()));
}

void Removals::remove(const Session& session, const RequestedChange& change) {
  const auto args = context_.history.read(
      [&] { return parse_remove_args(context_.query_context(session), change.args); });
  if (!args.ok()) return context_.refuse(change, args.error());
  const RunInfo& run = args->run;
  const Status allowed =
      args->point ? check_may(session, run, {ckpt::Right::kPrune}) : check_owner(session, run);
  if (!allowed.ok()) return context_.refuse(change, allowed.error());
  const Status unused = may_remove(run);
  const Status possible = args->point ? may_delete(run) : unused;
  if (!possible.ok()) return context_.refuse(change, possible.error());
  RemovalRequest request{
      .run = run.id,
      .point = args->point,
      .reason = fmt::format("{}removed by user {}", args->dry_run ? "to be " : "", session.uid),
      .force = args->force,
      .in_use = !unused.ok(),
      .busy = outside_.points_being_taken(run.id),
      .held = outside_.versions_held(run.id),
      .held_views = outside_.held_views(run.id)};
  // Root's force ends readers' holds on exactly the commits to remove.
  const bool ends_holds = args->force && may_use(session, ::geteuid());
  if (ends_holds) {
    std::erase_if(request.held_views,
                  [&](const HeldView& held) { return !args->point || held.view == *args->point; });
  }
  const auto planned =
      context_.history.read([&] { return plan_removal(context_.history.catalog(), request); });
  if (!planned.ok()) return context_.refuse(change, planned.error());
  if (args->dry_run) {
    return context_.queue.answer(change, prune_answer(run, *planned, /*dry_run=*/true, args->page));
  }
  if (ends_holds) {
    outside_.end_holds_by_force(session, [&](const Hold& hold) {
      return hold.run == run.id && (!args->point || hold.view == *args->point);
    });
  }
  if (args->point) {
    return write(change, {RunActivity::kDelete, run, *planned, args->page},
                 prune_records(run, *planned, context_.turn.wall_clock_ns()));
  }
  write(change, {RunActivity::kRemove, run, *planned, args->page},
        removal_record(run, request.reason));
}

std::vector<fb::RecordT> Removals::removal_record(const RunInfo& run,
                                                  const std::string& reason) const {
  log_event(spdlog::level::info, "run_removed",
            {{"run", run.name}, {"commits", run.commits}, {"bytes", run.bytes}, {"reason", reason}},
            "run {}: {}: {}, {} bytes", run.name, reason,
            ckpt::base::counted(run.commits, "commit"), run.bytes);
  fb::RunRemovedT removed;
  removed.run = run.id;
  removed.time_ns = context_.turn.wall_clock_ns();
  removed.reason = reason;
  removed.commits = run.commits;
  removed.bytes = run.bytes;
  std::vector<fb::RecordT> records;
  records.push_back(make_record(std::move(removed)));
  return records;
}

// Meanwhile no epoch resumes from the run.
void Removals::write(const RequestedChange& change, const Deletion& deletion,
                     std::vector<fb::RecordT> records) {
  deleting_ = gate_.begin(deletion.activity, deletion.run.id);
  context_.history.record(std::move(records), [this, change, deletion](const Status& status) {
    written(change, deletion, status);
  });
}

void Removals::written(const RequestedChange& change, const Deletion& deletion,
                       const Status& status) {
  deleting_.reset();
  outside_.on_ended();
  if (!status.ok()) return context_.refuse(change, status.error());
  const PrunePlan& plan = deletion.plan;
  counters_.commits_deleted +=
      static_cast<uint64_t>(std::count_if(plan.removed.begin(), plan.removed.end(),
                                          [](const auto& removed) { return !removed.again; }));
  log_prune(deletion.run, plan);
  outside_.on_deleted(deletion.run, plan.removed_points());
  if (deletion.activity == RunActivity::kRemove) outside_.on_run_gone(deletion.run);
  context_.queue.answer(change, prune_answer(deletion.run, plan, /*dry_run=*/false, deletion.page));
}

}  // namespace ckptd

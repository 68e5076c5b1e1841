// Epochs: executes the decisions of Groups. Opening an epoch aborts every snapshot of the run that
// is not staged. If a resume point has to be chosen, the staged snapshots are settled first.
// Survivors that go on need no resume point, and their staged snapshots are written meanwhile. Then
// the epoch is recorded, and only then are members told.
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "ckptd/daemon_epoch_over.h"
#include "ckptd/daemon_impl.h"
#include "ckptd/observe/log_event.h"
#include "formats/base/counted.h"

namespace ckptd {

namespace {

// Complete views next to a step without one, for messages.
std::string nearest_complete(const Catalog& catalog, ckpt::RunId run, ViewPoint wanted) {
  std::optional<ckpt::Step> below;
  std::optional<ckpt::Step> above;
  for (const CommitInfo& commit : catalog.commits(run)) {
    const ViewPoint point{.lineage = wanted.lineage, .step = commit.snapshot.step};
    if (commit.damaged || commit.deleted || !catalog.resolve(run, point.lineage, point.step).ok() ||
        !catalog.complete(run, point)) {
      continue;
    }
    if (point.step < wanted.step && (!below || point.step > *below)) below = point.step;
    if (point.step > wanted.step && (!above || point.step < *above)) above = point.step;
  }
  std::vector<ckpt::Step> steps;
  if (below) steps.push_back(*below);
  if (above) steps.push_back(*above);
  if (steps.empty()) return "the run has no complete view";
  return fmt::format("the nearest complete {} step {}", steps.size() == 1 ? "view is" : "views are",
                     fmt::join(steps, " and step "));
}

}  // namespace

void Daemon::Impl::join(Session& session, const fb::JoinGroupT& message) {
  if (draining) {
    return replies.refuse(session.id, message.request,
                          make_error(ErrorCode::kUnavailable, "the daemon is shutting down"));
  }
  if (!session.run || !session.arena) {
    return replies.refuse(
        session.id, message.request,
        make_error(ErrorCode::kFailedPrecondition,
                   "run {}: a trainer registers its units before it joins a group",
                   session.run_name));
  }
  if (const Status allowed = may_train(session, history.catalog()); !allowed.ok()) {
    replies.refuse(session.id, message.request, allowed.error());
    return carry_out(groups.refused(session.id));
  }
  JoinRequest request{.session = session.id,
                      .request = message.request,
                      .rank = message.rank,
                      .size = message.size,
                      .resume = static_cast<ResumeMode>(message.resume),
                      .resume_lineage = message.resume_lineage,
                      .resume_step = message.resume_step,
                      .elastic = message.elastic,
                      .member = message.member,
                      .grace = std::chrono::milliseconds(message.grace_ms),
                      .job = message.job};
  if (message.grace_ms == 0) request.grace = limits::kSurvivorGrace;
  request.grace = std::min(request.grace, limits::kSurvivorGraceMax);
  const std::string holder = describe_holder(*session.run, request);
  tell_place_is_held(session, request);
  Groups::Actions actions = groups.join(*session.run, request);
  for (Groups::Action& action : actions) {
    auto* refused = std::get_if<Groups::Refuse>(&action);
    if (refused == nullptr || refused->session != session.id || holder.empty()) continue;
    if (refused->error.code != ErrorCode::kAlreadyExists) continue;
    refused->error.message =
        fmt::format("run {}: {}: {}", session.run_name, refused->error.message, holder);
  }
  carry_out(actions);
}

// No record of a removed run may follow its removal.
void Daemon::Impl::leave_group(const Session& session) {
  const auto member = groups.member(session.id);
  carry_out(groups.leave(session.id));
  if (!member || !gate.may(RunActivity::kEndEpoch, member->run) ||
      !history.catalog().run(member->run).ok()) {
    return;
  }
  auto over = record_of_epoch_over(*member, groups, turn.wall_clock_ns());
  if (!over) return;
  std::vector<fb::RecordT> records;
  records.push_back(*std::move(over));
  history.record(std::move(records), [run = session.run_name](const Status& status) {
    if (status.ok()) return;
    spdlog::debug("run {}: that its epoch is over is not on record: {}", run,
                  status.error().message);
  });
}

void Daemon::Impl::carry_out(const Groups::Actions& actions) {
  for (const Groups::Action& action : actions) {
    if (const auto* open = std::get_if<Groups::OpenEpoch>(&action)) {
      carry_out(*open);
    } else if (const auto* refused = std::get_if<Groups::Refuse>(&action)) {
      replies.refuse(refused->session, refused->request, refused->error);
    } else if (const auto* gone = std::get_if<Groups::MemberGone>(&action)) {
      carry_out(ingest.member_lost(gone->run, gone->epoch, gone->rank, gone->how));
    } else if (const auto* ended = std::get_if<Groups::EndEpoch>(&action)) {
      carry_out(*ended);
    } else if (const auto* waiting = std::get_if<Groups::JoinersWaiting>(&action)) {
      carry_out(*waiting);
    } else if (const auto* value = std::get_if<Groups::KvAnswer>(&action)) {
      fb::KvValueT reply;
      reply.request = value->request;
      reply.key = value->key;
      reply.value = value->value;
      replies.send(value->session, std::move(reply));
    }
  }
}

// Name for the log.
std::string Daemon::Impl::run_name(ckpt::RunId run) const {
  const auto info = history.catalog().run(run);
  return info.ok() ? info->name : fmt::format("#{}", run);
}

void Daemon::Impl::carry_out(const Groups::EndEpoch& ended) {
  ++counters.epochs_ended;
  newest_by_run.erase(ended.run);
  staging->unpin_memory(ended.run);  // no restore of the epoch continues
  ended_epochs[ended.run] = ended.epoch;
  const std::string name = run_name(ended.run);
  log_event(spdlog::level::info, "epoch_ended",
            {{"run", name}, {"epoch", ended.epoch}, {"lost", ended.lost}, {"reason", ended.reason}},
            "run {} epoch {} ended, left by ranks [{}]: {}", name, ended.epoch,
            fmt::join(ended.lost, ", "), ended.reason);
  for (const SessionId session : ended.remaining) {
    fb::EpochEndedT message;
    message.epoch = ended.epoch;
    message.lost_ranks = ended.lost;
    message.reason = ended.reason;
    replies.send(session, std::move(message));
  }
  retry_waiting_restores();
  for (const ckpt::Rank rank : ended.lost) {
    carry_out(ingest.member_lost(ended.run, ended.epoch, rank, ended.reason));
  }
}

void Daemon::Impl::carry_out(const Groups::JoinersWaiting& waiting) {
  for (const SessionId session : waiting.members) {
    fb::JoinersWaitingT message;
    message.epoch = waiting.epoch;
    message.count = waiting.count;
    replies.send(session, std::move(message));
  }
}

// All members have left the last epoch: nobody will seal the rest of its snapshots.
void Daemon::Impl::carry_out(const Groups::OpenEpoch& open) {
  opening[open.run] = open;
  for (const SnapshotKey& key : ingest.open(open.run)) {
    if (ingest.is_staged(key)) continue;  // will commit, or fail by itself
    carry_out(ingest.abort(
        key, make_error(ErrorCode::kAborted, "epoch {} opens before it was sealed", open.epoch)));
  }
  try_open_epoch(open.run);
}

void Daemon::Impl::try_open_epoch(ckpt::RunId run) {
  const auto found = opening.find(run);
  if (found == opening.end()) return;
  // The newest complete view is known when no snapshot is in progress. Survivors that go on do not
  // ask for one: only a restore, if any, waits then.
  if (!found->second.goes_on && !ingest.open(run).empty()) return;
  if (!gate.may(RunActivity::kWriteEpoch, run)) {  // the resume point may be about to be removed
    return gate.wait(RunActivity::kWriteEpoch, run, [this] { snapshot_ended = true; });
  }
  const Groups::OpenEpoch open = std::move(found->second);
  opening.erase(found);
  struct Begin {
    RunInfo info;
    std::optional<ViewPoint> resume;
  };
  // An incomplete index must not look like a run without a resume point, nor assign a lineage
  // number twice.
  const auto begin = history.read([&]() -> Result<Begin> {
    CKPT_ASSIGN(RunInfo info, history.catalog().run(run));
    if (open.goes_on) return Begin{std::move(info), std::nullopt};
    CKPT_ASSIGN(const auto resume, choose_resume(info, open.resume));
    return Begin{std::move(info), resume};
  });
  if (!begin.ok()) {
    return carry_out(groups.opened(run, open.epoch, 0, begin.error()));
  }
  write_epoch(open, begin->resume, begin->info);
}

// A resume opens a lineage; survivors continue in their own.
void Daemon::Impl::write_epoch(const Groups::OpenEpoch& open,
                               const std::optional<ViewPoint>& resume, const RunInfo& info) {
  std::vector<fb::RecordT> records;
  fb::EpochOpenedT epoch;
  epoch.run = open.run;
  epoch.epoch = open.epoch;
  epoch.size = static_cast<uint32_t>(open.members.size());
  epoch.lineage = open.goes_on ? info.current_lineage : info.current_lineage + 1;
  epoch.has_resume = resume.has_value();
  epoch.resume_lineage = resume ? resume->lineage : 0;
  epoch.resume_step = resume ? resume->step : 0;
  epoch.time_ns = turn.wall_clock_ns();
  epoch.reason = open.given_up;
  epoch.elastic = open.elastic;
  epoch.goes_on = open.goes_on;
  if (open.elastic) {
    epoch.members.reserve(open.members.size());
    for (const JoinRequest& member : open.members) epoch.members.push_back(member.member);
  }
  if (!open.goes_on) {
    fb::LineageOpenedT lineage;
    lineage.run = open.run;
    lineage.lineage = epoch.lineage;
    lineage.parent = epoch.resume_lineage;
    lineage.fork_step = epoch.resume_step;
    lineage.time_ns = epoch.time_ns;
    records.push_back(make_record(std::move(lineage)));
  }
  records.push_back(make_record(epoch));
  epochs_being_written.emplace(open.run, gate.begin(RunActivity::kWriteEpoch, open.run));
  history.record(std::move(records), [this, open, epoch](const Status& status) {
    epochs_being_written.erase(open.run);
    epoch_opened(open, epoch, status);
  });
}

Result<std::optional<ViewPoint>> Daemon::Impl::choose_resume(const RunInfo& run,
                                                             const JoinRequest& resume) {
  switch (resume.resume) {
    case ResumeMode::kStart:
      if (run.commits > 0) {
        const auto latest = history.catalog().latest_complete(run.id, 0);
        return make_error(ErrorCode::kFailedPrecondition,
                          "run {}: it has {}{}; resume from `latest` or a step, or start a "
                          "run of another name",
                          run.name, ckpt::base::counted(run.commits, "commit"),
                          latest ? fmt::format(", the newest complete one of step {}", latest->step)
                                 : ", none of them complete");
      }
      return std::optional<ViewPoint>();
    case ResumeMode::kLatest: {
      const auto latest = history.catalog().latest_complete(run.id, 0);
      if (!latest) {
        return make_error(ErrorCode::kNotFound, "run {}: it has no complete view to resume from",
                          run.name);
      }
      return latest;
    }
    case ResumeMode::kAtStep:
      return resume_at(run, resume);
    case ResumeMode::kContinue:
    case ResumeMode::kGoOn:  // joins as kContinue if there are no survivors
      break;
  }
  if (run.current_lineage == 0) return std::optional<ViewPoint>();
  return history.catalog().latest_complete(run.id, 0);
}

Result<std::optional<ViewPoint>> Daemon::Impl::resume_at(const RunInfo& run,
                                                         const JoinRequest& resume) {
  const auto point = history.catalog().resolve(run.id, resume.resume_lineage, resume.resume_step);
  if (point.ok() && history.catalog().complete(run.id, *point)) return std::optional(*point);
  const ViewPoint wanted{
      .lineage = resume.resume_lineage != 0 ? resume.resume_lineage : run.current_lineage,
      .step = resume.resume_step};
  return make_error(
      point.ok() ? ErrorCode::kFailedPrecondition : point.error().code, "{}; {}",
      point.ok() ? fmt::format("run {} step {}: its view is not complete", run.name, wanted.step)
                 : point.error().message,
      nearest_complete(history.catalog(), run.id, wanted));
}

namespace {

void log_opened(const std::string& run, const fb::EpochOpenedT& epoch) {
  LogValue resume_lineage;
  LogValue resume_step;
  std::string from = epoch.goes_on ? "the survivors go on" : "from nothing";
  if (epoch.has_resume) {
    resume_lineage = epoch.resume_lineage;
    resume_step = epoch.resume_step;
    from = fmt::format("from lineage {} step {}", epoch.resume_lineage, epoch.resume_step);
  }
  log_event(spdlog::level::info, "epoch_opened",
            {{"run", run},
             {"lineage", epoch.lineage},
             {"epoch", epoch.epoch},
             {"ranks", epoch.size},
             {"resume_lineage", resume_lineage},
             {"resume_step", resume_step}},
            "run {} epoch {}: {}, lineage {}, {}", run, epoch.epoch,
            ckpt::base::counted(epoch.size, "rank"), epoch.lineage, from);
}

}  // namespace

void Daemon::Impl::epoch_opened(const Groups::OpenEpoch& open, const fb::EpochOpenedT& record,
                                const Status& status) {
  if (status.ok()) {
    ++counters.epochs_opened;
    std::optional<ViewPoint> resume;
    if (record.has_resume) resume = {record.resume_lineage, record.resume_step};
    if (!record.goes_on) drop_other_memory(open.run, resume);
    staging->pin_memory(open.run);  // until all members have restored
    ended_epochs.erase(open.run);
    for (const JoinRequest& member : open.members) {
      if (!groups.opens_for(open.run, member.session)) continue;
      fb::EpochStartedT message;
      message.request = member.request;
      message.epoch = record.epoch;
      message.rank = member.rank;
      message.size = record.size;
      message.lineage = record.lineage;
      message.has_resume = record.has_resume;
      message.resume_lineage = record.resume_lineage;
      message.resume_step = record.resume_step;
      message.goes_on = record.goes_on;
      message.members = record.members;
      message.previous_ranks = open.previous_ranks;
      message.previous_size = open.previous_size;
      replies.send(member.session, std::move(message));
    }
    if (!open.given_up.empty()) {
      spdlog::warn("run {} epoch {}: {}", run_name(record.run), record.epoch, open.given_up);
    }
    log_opened(run_name(record.run), record);
  }
  carry_out(groups.opened(open.run, open.epoch, record.lineage, status));
}

// Drops memory that no view of the new lineage shows. A lineage that goes on keeps its views.
void Daemon::Impl::drop_other_memory(ckpt::RunId run, const std::optional<ViewPoint>& resume) {
  const auto path = resume ? history.catalog().path(run, *resume) : std::vector<ViewPoint>();
  staging->keep_memory(run, [&](const SnapshotKey& snapshot) {
    return std::any_of(path.begin(), path.end(), [&](const ViewPoint& stretch) {
      return stretch.lineage == snapshot.lineage && snapshot.step <= stretch.step;
    });
  });
}

void Daemon::Impl::kv_set(Session& session, fb::KvSetT& message) {
  const auto actions =
      groups.kv_set(session.id, message.epoch, message.key, std::move(message.value));
  if (!actions.ok()) return replies.refuse(session.id, message.request, actions.error());
  replies.done(session.id, message.request);
  carry_out(*actions);
}

void Daemon::Impl::kv_get(Session& session, const fb::KvGetT& message) {
  const auto actions = groups.kv_get(session.id, message.request, message.epoch, message.key);
  if (!actions.ok()) return replies.refuse(session.id, message.request, actions.error());
  carry_out(*actions);
}

}  // namespace ckptd

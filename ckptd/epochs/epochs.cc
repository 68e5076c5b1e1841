#include "ckptd/epochs/epochs.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "ckptd/epochs/epoch_over.h"
#include "ckptd/epochs/resume_point.h"
#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/sessions/access.h"
#include "formats/base/counted.h"
#include "formats/wire/convert.h"
#include "formats/wire/protocol.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::SessionId;
using ckpt::SnapshotKey;

void Epochs::join(Session& session, const fb::JoinGroupT& message) {
  if (needs_.is_draining()) {
    return needs_.replies.refuse(
        session.id, message.request,
        make_error(ErrorCode::kUnavailable, "the daemon is shutting down"));
  }
  if (!session.run || !session.arena) {
    return needs_.replies.refuse(
        session.id, message.request,
        make_error(ErrorCode::kFailedPrecondition,
                   "run {}: a trainer registers its units before it joins a group",
                   session.run_name));
  }
  if (const Status allowed = may_train(session, needs_.history.catalog()); !allowed.ok()) {
    needs_.replies.refuse(session.id, message.request, allowed.error());
    return execute(groups_.refused(session.id));
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
  log_waiting_join(session, request);
  Groups::Actions actions = groups_.join(*session.run, request);
  for (Groups::Action& action : actions) {
    auto* refused = std::get_if<Groups::Refuse>(&action);
    if (refused == nullptr || refused->session != session.id || holder.empty()) continue;
    if (refused->error.code != ErrorCode::kAlreadyExists) continue;
    refused->error.message =
        fmt::format("run {}: {}: {}", session.run_name, refused->error.message, holder);
  }
  execute(actions);
}

// No record of a removed run may follow its removal.
void Epochs::leave(const Session& session) {
  const auto member = groups_.member(session.id);
  execute(groups_.leave(session.id));
  if (!member || !needs_.gate.may(RunActivity::kEndEpoch, member->run) ||
      !needs_.history.catalog().run(member->run).ok())
    return;
  auto over = record_of_epoch_over(*member, groups_, needs_.turn.wall_clock_ns());
  if (!over) return;
  std::vector<fb::RecordT> records;
  records.push_back(*std::move(over));
  needs_.history.record(std::move(records), [run = session.run_name](const Status& status) {
    if (status.ok()) return;
    spdlog::debug("run {}: that its epoch is over is not on record: {}", run,
                  status.error().message);
  });
}

void Epochs::execute(const Groups::Actions& actions) {
  for (const Groups::Action& action : actions) {
    if (const auto* open = std::get_if<Groups::OpenEpoch>(&action)) {
      execute(*open);
    } else if (const auto* refused = std::get_if<Groups::Refuse>(&action)) {
      needs_.replies.refuse(refused->session, refused->request, refused->error);
    } else if (const auto* gone = std::get_if<Groups::MemberGone>(&action)) {
      needs_.member_gone(gone->run, gone->epoch, gone->rank, gone->how);
    } else if (const auto* ended = std::get_if<Groups::EndEpoch>(&action)) {
      execute(*ended);
    } else if (const auto* waiting = std::get_if<Groups::JoinersWaiting>(&action)) {
      execute(*waiting);
    } else if (const auto* value = std::get_if<Groups::KvAnswer>(&action)) {
      fb::KvValueT reply;
      reply.request = value->request;
      reply.key = value->key;
      reply.value = value->value;
      needs_.replies.send(value->session, std::move(reply));
    }
  }
}

void Epochs::execute(const Groups::EndEpoch& ended) {
  ++counters_.ended;
  needs_.staging().unpin_memory(ended.run);  // no restore of the epoch continues
  needs_.on_ended(ended.run, ended.epoch);
  const std::string name = needs_.history.run_name(ended.run);
  log_event(spdlog::level::info, "epoch_ended",
            {{"run", name}, {"epoch", ended.epoch}, {"lost", ended.lost}, {"reason", ended.reason}},
            "run {} epoch {} ended, left by ranks [{}]: {}", name, ended.epoch,
            fmt::join(ended.lost, ", "), ended.reason);
  for (const SessionId session : ended.remaining) {
    fb::EpochEndedT message;
    message.epoch = ended.epoch;
    message.lost_ranks = ended.lost;
    message.reason = ended.reason;
    needs_.replies.send(session, std::move(message));
  }
  needs_.on_members_changed();
  for (const ckpt::Rank rank : ended.lost) {
    needs_.member_gone(ended.run, ended.epoch, rank, ended.reason);
  }
}

void Epochs::execute(const Groups::JoinersWaiting& waiting) {
  for (const SessionId session : waiting.members) {
    fb::JoinersWaitingT message;
    message.epoch = waiting.epoch;
    message.count = waiting.count;
    needs_.replies.send(session, std::move(message));
  }
}

// All members have left the last epoch: the rest of its snapshots will not be sealed.
void Epochs::execute(const Groups::OpenEpoch& open) {
  opening_[open.run] = open;
  needs_.abort_unstaged(
      open.run, make_error(ErrorCode::kAborted, "epoch {} opens before it was sealed", open.epoch));
  try_open(open.run);
}

void Epochs::try_open(ckpt::RunId run) {
  const auto found = opening_.find(run);
  if (found == opening_.end()) return;
  // The newest complete view is known when no snapshot is in progress. Survivors that continue need
  // no view: only their restore, if any, waits then.
  if (!found->second.survivors_continue && needs_.has_open_snapshots(run)) return;
  if (!needs_.gate.may(RunActivity::kWriteEpoch, run)) {
    // The resume point may be about to be removed.
    return needs_.gate.wait(RunActivity::kWriteEpoch, run, needs_.on_may_open);
  }
  const Groups::OpenEpoch open = std::move(found->second);
  opening_.erase(found);
  struct Begin {
    RunInfo info;
    std::optional<ViewPoint> resume;
  };
  // An incomplete index must not look like a run without a resume point, nor assign a lineage
  // number twice.
  const auto begin = needs_.history.read([&]() -> Result<Begin> {
    CKPT_ASSIGN(RunInfo info, needs_.history.catalog().run(run));
    if (open.survivors_continue) return Begin{std::move(info), std::nullopt};
    CKPT_ASSIGN(const auto resume, choose_resume(needs_.history.catalog(), info, open.resume));
    return Begin{std::move(info), resume};
  });
  if (!begin.ok()) {
    return execute(groups_.opened(run, open.epoch, 0, begin.error()));
  }
  write(open, begin->resume, begin->info);
}

// A resume opens a lineage; survivors continue in their own.
void Epochs::write(const Groups::OpenEpoch& open, const std::optional<ViewPoint>& resume,
                   const RunInfo& info) {
  std::vector<fb::RecordT> records;
  fb::EpochOpenedT epoch;
  epoch.run = open.run;
  epoch.epoch = open.epoch;
  epoch.size = static_cast<uint32_t>(open.members.size());
  epoch.lineage = open.survivors_continue ? info.current_lineage : info.current_lineage + 1;
  epoch.has_resume = resume.has_value();
  epoch.resume_lineage = resume ? resume->lineage : 0;
  epoch.resume_step = resume ? resume->step : 0;
  epoch.time_ns = needs_.turn.wall_clock_ns();
  epoch.reason = open.timed_out;
  epoch.elastic = open.elastic;
  epoch.goes_on = open.survivors_continue;
  epoch.had_gone_on = open.survivors_had_continued;
  if (open.elastic) {
    epoch.members.reserve(open.members.size());
    for (const JoinRequest& member : open.members) epoch.members.push_back(member.member);
  }
  if (!open.survivors_continue) {
    fb::LineageOpenedT lineage;
    lineage.run = open.run;
    lineage.lineage = epoch.lineage;
    lineage.parent = epoch.resume_lineage;
    lineage.fork_step = epoch.resume_step;
    lineage.time_ns = epoch.time_ns;
    records.push_back(make_record(std::move(lineage)));
  }
  records.push_back(make_record(epoch));
  const auto writing =
      std::make_shared<RunGate::Token>(needs_.gate.begin(RunActivity::kWriteEpoch, open.run));
  needs_.history.record(std::move(records), [this, open, epoch, writing](const Status& status) {
    writing->release();
    opened(open, epoch, status);
  });
}

namespace {

void log_opened(const std::string& run, const fb::EpochOpenedT& epoch) {
  LogValue resume_lineage;
  LogValue resume_step;
  std::string from = epoch.goes_on ? "the survivors continue" : "from nothing";
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

void Epochs::opened(const Groups::OpenEpoch& open, const fb::EpochOpenedT& record,
                    const Status& status) {
  if (status.ok()) {
    ++counters_.opened;
    std::optional<ViewPoint> resume;
    if (record.has_resume) resume = {record.resume_lineage, record.resume_step};
    if (!record.goes_on) drop_other_memory(open.run, resume);
    needs_.staging().pin_memory(open.run);  // until all members have restored
    needs_.on_opened(open.run);
    announce_opened(open, record);
    if (!open.timed_out.empty()) {
      spdlog::warn("run {} epoch {}: {}", needs_.history.run_name(record.run), record.epoch,
                   open.timed_out);
    }
    log_opened(needs_.history.run_name(record.run), record);
  }
  execute(groups_.opened(open.run, open.epoch, record.lineage, status));
}

namespace {

std::vector<std::unique_ptr<fb::UnitT>> grown_units(History& history, ckpt::RunId run) {
  std::vector<std::unique_ptr<fb::UnitT>> grown;
  const auto units = history.read([&] { return history.catalog().units(run); });
  for (size_t i = history.catalog().base_units(run); units.ok() && i < (*units)->size(); ++i) {
    const auto id = static_cast<ckpt::UnitId>(i);
    grown.push_back(std::make_unique<fb::UnitT>(ckpt::wire::to_fb((**units)[i], id)));
  }
  return grown;
}

}  // namespace

void Epochs::announce_opened(const Groups::OpenEpoch& open, const fb::EpochOpenedT& record) const {
  for (const JoinRequest& member : open.members) {
    if (!groups_.opens_for(open.run, member.session)) continue;
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
    const Session* session = needs_.sessions.find(member.session);
    if (session != nullptr && session->protocol >= ckpt::wire::kProtocolOfGrowth) {
      message.grown = grown_units(needs_.history, record.run);
    }
    needs_.replies.send(member.session, std::move(message));
  }
}

// Drops memory that no view of the new lineage shows. A continued lineage keeps its views.
void Epochs::drop_other_memory(ckpt::RunId run, const std::optional<ViewPoint>& resume) {
  const auto path = resume ? needs_.history.catalog().path(run, *resume) : std::vector<ViewPoint>();
  needs_.staging().keep_memory(run, [&](const SnapshotKey& snapshot) {
    return std::any_of(path.begin(), path.end(), [&](const ViewPoint& stretch) {
      return stretch.lineage == snapshot.lineage && snapshot.step <= stretch.step;
    });
  });
}

void Epochs::kv_set(const Session& session, fb::KvSetT& message) {
  const auto actions =
      groups_.kv_set(session.id, message.epoch, message.key, std::move(message.value));
  if (!actions.ok()) return needs_.replies.refuse(session.id, message.request, actions.error());
  needs_.replies.done(session.id, message.request);
  execute(*actions);
}

void Epochs::kv_get(const Session& session, const fb::KvGetT& message) {
  const auto actions = groups_.kv_get(session.id, message.request, message.epoch, message.key);
  if (!actions.ok()) return needs_.replies.refuse(session.id, message.request, actions.error());
  execute(*actions);
}

void Epochs::rejoin(const Session& session, const fb::RejoinEpochT& message) {
  if (!session.run || !session.arena) {
    return needs_.replies.refuse(
        session.id, message.request,
        make_error(ErrorCode::kFailedPrecondition,
                   "run {}: a trainer registers its units before it rejoins a group",
                   session.run_name));
  }
  if (const Status allowed = may_train(session, needs_.history.catalog()); !allowed.ok()) {
    return needs_.replies.refuse(session.id, message.request, allowed.error());
  }
  const auto lineage =
      groups_.rejoin(*session.run, session.id, message.rank, message.epoch, message.job);
  if (!lineage.ok()) {
    return needs_.replies.refuse(
        session.id, message.request,
        reworded(lineage.error(),
                 fmt::format("run {}: {}", session.run_name, lineage.error().message)));
  }
  needs_.replies.done(session.id, message.request);
}

void Epochs::tick_rejoins(Time now) {
  if (!serving_since_) serving_since_ = now;
  if (rejoins_over_ || now - *serving_since_ < limits::kReopenDeadline) return;
  rejoins_over_ = true;
  const Groups::Actions actions = groups_.rejoin_deadline_passed();
  for (const Groups::Action& action : actions) {
    const auto* ended = std::get_if<Groups::EndEpoch>(&action);
    if (ended != nullptr) counters_.members_lost += ended->lost.size();
  }
  execute(actions);
  needs_.on_rejoins_over();
}

void Epochs::lost(SessionId session, const std::string& reason) {
  if (groups_.would_lose(session)) ++counters_.members_lost;
  execute(groups_.lost(session, reason));
}

void Epochs::retry_waiting() {
  std::vector<ckpt::RunId> runs;
  runs.reserve(opening_.size());
  for (const auto& [run, open] : opening_) runs.push_back(run);
  for (const ckpt::RunId run : runs) try_open(run);
}

}  // namespace ckptd

#include "ckptd/readers/reader_holds.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>

#include "ckptd/query/documents.h"
#include "ckptd/readers/wanted_view.h"
#include "ckptd/sessions/access.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

Holder holder_of(const Session& session, bool privileged) {
  return {.session = session.id,
          .uid = session.uid,
          .pid = session.pid,
          .client = session.client,
          .privileged = privileged};
}

}  // namespace

Status ReaderHolds::may_hold(const RunInfo& run) const {
  if (!needs_.removes_commits(run.id)) return {};
  return make_error(ErrorCode::kUnavailable, "run {}: commits of it are being removed; try again",
                    run.name);
}

Result<Hold> ReaderHolds::resolve(const Session& session, const fb::HoldCommitT& message) {
  if (needs_.is_draining()) {
    return make_error(ErrorCode::kUnavailable, "the daemon is shutting down");
  }
  const Catalog& catalog = needs_.history.catalog();
  CKPT_ASSIGN(const RunInfo run, catalog.run(message.run.empty() ? session.run_name : message.run));
  CKPT_TRY(check_may(session, run, {ckpt::Right::kRead}));
  CKPT_TRY(may_hold(run));
  fb::OpenRestoreT view;
  view.lineage = message.lineage;
  view.step = message.step;
  view.latest = message.latest;
  view.tag = message.tag;
  view.newest = message.newest;
  CKPT_ASSIGN(const ViewPoint point, wanted_view(catalog, run, view));
  return Hold{.holder = holder_of(session, may_use(session, ::geteuid())),
              .run = run.id,
              .view = point,
              .since_ns = needs_.turn.wall_clock_ns(),
              .progress_at = needs_.turn.now()};
}

void ReaderHolds::hold(const Session& session, const fb::HoldCommitT& message) {
  const auto hold = needs_.history.read([&] { return resolve(session, message); });
  if (!hold.ok()) return needs_.replies.refuse(session.id, message.request, hold.error());
  const auto id = holds_.take(*hold);
  if (!id.ok()) return needs_.replies.refuse(session.id, message.request, id.error());
  fb::CommitHeldT held;
  held.request = message.request;
  held.hold = *id;
  held.lineage = hold->view.lineage;
  held.step = hold->view.step;
  held.lease_ms =
      static_cast<uint32_t>(std::chrono::ceil<std::chrono::milliseconds>(holds_.lease()).count());
  needs_.replies.send(session.id, std::move(held));
}

Result<HoldId> ReaderHolds::hold_verified(const Session& session, const VerifyTarget& target) {
  if (!target.point) return HoldId{0};
  CKPT_ASSIGN(const RunInfo run, needs_.history.catalog().run(target.runs.front()));
  CKPT_TRY(may_hold(run));
  return holds_.take({.holder = holder_of(session, may_use(session, ::geteuid())),
                      .run = run.id,
                      .view = *target.point,
                      .since_ns = needs_.turn.wall_clock_ns(),
                      .progress_at = needs_.turn.now(),
                      .of_job = true});
}

void ReaderHolds::renew(const Session& session, const fb::RenewHoldT& message) {
  if (holds_.renew(session.id, message.hold, needs_.turn.now())) return;
  fb::HoldEndedT ended;
  ended.hold = message.hold;
  ended.reason = "this session has no such hold";
  needs_.replies.send(session.id, std::move(ended));
}

void ReaderHolds::announce_ended(const std::vector<Hold>& ended, const std::string& reason) {
  for (const Hold& hold : ended) {
    spdlog::info(
        "{}: not held any more by {}: {}",
        ckpt::commit_name(needs_.history.run_name(hold.run), hold.view.lineage, hold.view.step),
        describe(hold.holder), reason);
    if (hold.of_job) continue;  // its session has not requested it
    fb::HoldEndedT message;
    message.hold = hold.id;
    message.reason = reason;
    needs_.replies.send(hold.holder.session, std::move(message));
  }
}

void ReaderHolds::end_overdue() {
  const std::vector<Hold> ended = holds_.end_overdue(needs_.turn.now());
  counters_.overdue += ended.size();
  if (ended.empty()) return;
  announce_ended(ended,
                 fmt::format("its reader made no progress for {} s",
                             std::chrono::floor<std::chrono::seconds>(holds_.lease()).count()));
}

void ReaderHolds::end_by_force(const Session& session,
                               const std::function<bool(const Hold&)>& which) {
  const std::vector<Hold> ended = holds_.end_if(which);
  counters_.forced += ended.size();
  announce_ended(ended, fmt::format("user {} removes the commit by force", session.uid));
}

std::vector<HeldView> ReaderHolds::views(ckpt::RunId run) const {
  std::vector<HeldView> views;
  for (const Hold& hold : holds_.of_run(run)) {
    views.push_back({hold.view, fmt::format("held by {} since {}", describe(hold.holder),
                                            iso_time(hold.since_ns))});
  }
  return views;
}

}  // namespace ckptd

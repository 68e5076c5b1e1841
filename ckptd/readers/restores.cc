#include "ckptd/readers/restores.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "ckptd/limits.h"
#include "ckptd/readers/restore_messages.h"
#include "ckptd/readers/wanted_view.h"
#include "ckptd/restore/memory_view.h"
#include "ckptd/sessions/access.h"
#include "formats/base/printable.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::SessionId;

Restores::Restore* Restores::find(SessionId session, uint64_t id) {
  const auto of_session = sessions_.find(session);
  if (of_session == sessions_.end()) return nullptr;
  const auto found = of_session->second.restores.find(id);
  return found == of_session->second.restores.end() ? nullptr : &found->second;
}

// Resolves the view, and the wanted ranges.
Result<RestoreRequest> Restores::resolve(const Session& session, const fb::OpenRestoreT& message) {
  const Catalog& catalog = needs_.history.catalog();
  CKPT_ASSIGN(const RunInfo run, catalog.run(message.run.empty() ? session.run_name : message.run));
  CKPT_TRY(check_may(session, run, {ckpt::Right::kRead}));
  if (message.wants.size() > limits::kWantsPerRestoreMax) {
    return make_error(ErrorCode::kResourceExhausted,
                      "run {}: {} ranges in one restore, the most is {}", run.name,
                      message.wants.size(), limits::kWantsPerRestoreMax);
  }
  RestoreRequest request;
  request.run = run.id;
  request.exact = message.exact;
  request.memory = message.memory;
  for (const fb::Range& range : message.wants) {
    request.wants.push_back(
        {.unit = range.unit(), .offset = range.offset(), .length = range.length()});
  }
  CKPT_ASSIGN(request.point, wanted_view(catalog, run, message));
  return request;
}

// Members of an epoch see everything that was staged before it: if some of that is still being
// written, the restore waits, so that all members get the same, newest versions.
void Restores::open(const Session& session, const fb::OpenRestoreT& message) {
  const auto fail = [&](const Error& error) {
    needs_.replies.refuse(session.id, message.request, error);
  };
  if (!session.arena) {
    return fail(make_error(ErrorCode::kFailedPrecondition,
                           "a restore needs an arena: say hello with arena_bytes"));
  }
  OfSession& of_session = sessions_[session.id];
  const size_t taken = of_session.restores.size() + of_session.waiting.size();
  if (taken >= limits::kRestoresPerSessionMax) {
    return fail(make_error(ErrorCode::kResourceExhausted,
                           "{} restores of this session are open, the most", taken));
  }
  const bool same_run = message.run.empty() || message.run == session.run_name;
  const auto earlier = same_run ? needs_.earlier_snapshots(session.id) : std::nullopt;
  if (!earlier) return start(session, message);
  if (needs_.is_draining()) {
    return fail(make_error(ErrorCode::kUnavailable, "the daemon is shutting down"));
  }
  if (!earlier->epoch_active) {
    return fail(make_error(ErrorCode::kAborted, "epoch {} has ended", earlier->epoch));
  }
  of_session.waiting.push_back(message);
}

void Restores::tick() {
  for (auto& [session, of_session] : sessions_) {
    for (auto& [id, restore] : of_session.restores) restore.job->tick(needs_.turn.now());
  }
}

void Restores::retry_waiting() {
  for (auto& [id, of_session] : sessions_) {
    for (const fb::OpenRestoreT& message : std::exchange(of_session.waiting, {})) {
      open(*needs_.sessions.find(id), message);
    }
  }
}

void Restores::start(const Session& session, const fb::OpenRestoreT& message) {
  const auto fail = [&](const Error& error) {
    needs_.replies.refuse(session.id, message.request, error);
  };
  auto request = needs_.history.read([&] { return resolve(session, message); });
  if (!request.ok()) return fail(request.error());
  auto plan = needs_.history.read([&] {
    return plan_restore(*request, restore_oracle(needs_.context(), session.uid, *request));
  });
  if (!plan.ok()) return fail(plan.error());
  const uint64_t id = next_++;
  ++counters_.opened;
  fb::RestoreOpenedT opened;
  opened.request = message.request;
  opened.restore = id;
  opened.lineage = request->point.lineage;
  opened.step = request->point.step;
  if (message.locate_bytes_max > 0) {
    const Status may = may_locate(session, *plan);
    opened.locates = may.ok();
    if (!may.ok()) opened.not_located = may.error().message;
  }
  const uint64_t locate_bytes_max = opened.locates ? message.locate_bytes_max : 0;
  opened.units = restored_units(*request, *plan);
  needs_.replies.send(session.id, std::move(opened));
  Restore& restore = sessions_[session.id].restores[id];
  restore.request = message.request;
  restore.reading = needs_.numbers.begin();
  restore.since = needs_.turn.now();
  restore.job = std::make_unique<RestoreJob>(
      needs_.context(), *session.arena, session.uid, std::move(request).value(),
      std::move(plan).value(), [this, session_id = session.id, id](const Result<Window>& window) {
        on_window(session_id, id, window);
      });
  if (locate_bytes_max > 0) restore.job->locate(locate_bytes_max);
  restore.job->start();
}

// A descriptor shows the whole file, including later appends, and a segment holds extents of all
// runs. So only users who may read every run get a descriptor, and no check of the file's
// contents is needed. The first file is tried at once, to detect early if the file system cannot
// do this.
Status Restores::may_locate(const Session& session, const RestorePlan& plan) {
  if (session.uid != 0 && session.uid != ::geteuid()) {
    return make_error(ErrorCode::kPermissionDenied,
                      "segments hold state of every run: only root and user {}, which ckptd runs "
                      "as, may read them",
                      ::geteuid());
  }
  for (const PlannedRead& read : plan.reads) {
    Source& source = needs_.sources.at(read.place.source);
    if (!source.traits().locates) continue;
    const auto file = source.locate(read.place.address);
    // The restore itself handles a missing file.
    if (!file.ok() && file.error().code != ErrorCode::kNotFound) return file.error();
    break;
  }
  return {};
}

void Restores::on_window(SessionId session, uint64_t id, const Result<Window>& window) {
  Restore* restore = find(session, id);
  if (restore == nullptr) return;
  needs_.holds.progress(session);  // independent of the disk's speed
  if (!window.ok()) {
    spdlog::error("restore {}: {}", id, window.error().message);
    return needs_.replies.refuse(session, restore->request, window.error());
  }
  count(*window, *restore);
  warn_of(*window, id, *restore);
  if (window->located) {
    return needs_.replies.send(session, located_message(id, *window), window->located->file);
  }
  needs_.replies.send(session, window_message(id, *window));
}

void Restores::count(const Window& window, Restore& restore) {
  counters_.fallbacks += window.notes.size();
  for (const WindowPiece& piece : window.pieces) {
    counters_.bytes[piece.source] += piece.range.length;
    restore.given[piece.source] += piece.range.length;
  }
  if (!window.last) return;
  const Time took = needs_.turn.now() - restore.since;
  counters_.time += took;
  if (!window.located) needs_.sources.restored(restore.given, took);
}

// Once per unit, and only for some units of a damaged store: the client gets a note for each.
void Restores::warn_of(const Window& window, uint64_t id, Restore& restore) {
  for (const RestoreNote& note : window.notes) {
    if (restore.warned.size() > limits::kRestoreWarningsMax) return;
    if (!restore.warned.insert(note.unit).second) continue;
    if (restore.warned.size() <= limits::kRestoreWarningsMax) {
      spdlog::warn("restore {}: {}", id, ckpt::base::shortened(note.note, limits::kNoteBytesMax));
    } else {
      spdlog::warn("restore {}: more units are not served as the view has them", id);
    }
  }
}

void Restores::located_read(SessionId session, const fb::LocatedReadT& message) {
  Restore* restore = find(session, message.restore);
  if (restore == nullptr) return;
  if (message.stop) {
    spdlog::warn("restore {}: the client continues through its arena: {}", message.restore,
                 message.reason);
  }
  counters_.bytes_located +=
      restore->job->located_read({message.number, message.failed, message.stop, message.reason});
}

// Restores of a session share the slabs of its arena: another restore may wait for this one.
void Restores::release_window(SessionId session, const fb::ReleaseWindowT& message) {
  Restore* restore = find(session, message.restore);
  if (restore == nullptr) return;
  restore->job->release(message.slab);
  for (auto& [id, other] : sessions_.at(session).restores) {
    if (id != message.restore) other.job->pump();
  }
}

void Restores::close(SessionId session, const fb::CloseRestoreT& message) {
  Restore* restore = find(session, message.restore);
  if (restore == nullptr) {
    return needs_.replies.refuse(
        session, message.request,
        make_error(ErrorCode::kNotFound, "restore {}: no such restore", message.restore));
  }
  std::unique_ptr<RestoreJob> job = std::move(restore->job);
  sessions_.at(session).restores.erase(message.restore);
  needs_.on_reader_gone();
  needs_.closing.close(std::move(job), [this, session, request = message.request] {
    needs_.replies.done(session, request);
    slabs_ready(session);
  });
}

void Restores::slabs_ready(SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  for (auto& [id, restore] : found->second.restores) restore.job->pump();
}

Restores::Jobs Restores::session_lost(SessionId session) {
  Jobs jobs;
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return jobs;
  for (auto& [id, restore] : found->second.restores) jobs.push_back(std::move(restore.job));
  sessions_.erase(found);
  return jobs;
}

void Restores::close_lost(Jobs jobs, const std::function<void()>& then) {
  const auto left = std::make_shared<size_t>(jobs.size());
  if (*left == 0) return then();
  for (std::unique_ptr<RestoreJob>& job : jobs) {
    needs_.closing.close(std::move(job), [left, then] {
      if (--*left == 0) then();
    });
  }
}

void Restores::close_all() {
  for (auto& [session, of_session] : sessions_) {
    for (auto& [id, restore] : of_session.restores)
      needs_.closing.close(std::move(restore.job), {});
    of_session.restores.clear();
  }
}

bool Restores::any_open() const {
  return std::ranges::any_of(sessions_,
                             [](const auto& entry) { return !entry.second.restores.empty(); });
}

}  // namespace ckptd

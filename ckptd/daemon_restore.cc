// Restores: resolves and plans a view, and streams it through windows of the session's arena.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "ckptd/daemon_impl.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/restore/memory_view.h"
#include "formats/base/printable.h"

namespace ckptd {

namespace {

// Note texts of one message, about ranges that are not served as in the view: the full text once
// per unit; the unit's other ranges refer to it. So the message always fits into a frame
// (limits.h).
class NoteTexts {
 public:
  std::string of(ckpt::UnitId unit, const std::string& note) {
    if (note.empty()) return {};
    if (!said_.insert(unit).second) return kAgain;
    std::string text = ckpt::base::shortened(note, limits::kNoteBytesMax);
    if (bytes_ + text.size() > limits::kNoteTextsBytesMax) return kTooMany;
    bytes_ += text.size();
    return text;
  }

 private:
  static constexpr char kAgain[] = "as the first range of this unit";
  static constexpr char kTooMany[] = "not as the view has it: `ckptctl verify` says why";
  static_assert(sizeof(kAgain) <= limits::kNoteReferenceBytesMax &&
                sizeof(kTooMany) <= limits::kNoteReferenceBytesMax);
  std::set<ckpt::UnitId> said_;
  size_t bytes_ = 0;
};

// Once per unit, and only for some units of a damaged store: the client is told of each.
void warn_of(const RestoreNote& note, uint64_t id, Restore& restore) {
  if (restore.warned.size() > limits::kRestoreWarningsMax) return;
  if (!restore.warned.insert(note.unit).second) return;
  if (restore.warned.size() <= limits::kRestoreWarningsMax) {
    spdlog::warn("restore {}: {}", id, ckpt::base::shortened(note.note, limits::kNoteBytesMax));
  } else {
    spdlog::warn("restore {}: more units are not served as the view has them", id);
  }
}

std::vector<std::unique_ptr<fb::RestoreNoteT>> note_messages(const Window& window, uint64_t id,
                                                             Restore& restore) {
  std::vector<std::unique_ptr<fb::RestoreNoteT>> messages;
  NoteTexts texts;
  for (const RestoreNote& note : window.notes) {
    warn_of(note, id, restore);
    for (const size_t want : note.wants) {
      auto out = std::make_unique<fb::RestoreNoteT>();
      out->want = static_cast<uint32_t>(want);
      out->version_lineage = note.snapshot.lineage;
      out->version_step = note.snapshot.step;
      out->note = texts.of(note.unit, note.note);
      messages.push_back(std::move(out));
    }
  }
  return messages;
}

}  // namespace

Result<ViewPoint> Daemon::Impl::resolve_view(const RunInfo& run,
                                             const fb::OpenRestoreT& message) const {
  const bool of_tag = !message.tag.empty();
  if (message.newest && (message.latest || of_tag)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "run {}: `newest` goes with a step, not with `latest` or a tag", run.name);
  }
  if (message.newest) {
    // Each unit's newest version up to the step: the step itself needs no commit.
    const ViewPoint point{message.lineage != 0 ? message.lineage : run.current_lineage,
                          message.step};
    if (!history.catalog().path(run.id, point).empty()) return point;
    return make_error(ErrorCode::kNotFound, "run {}: no lineage {}", run.name, point.lineage);
  }
  if (of_tag) {
    const auto tags = history.catalog().tags(run.id);
    const auto tag = tags.find(message.tag);
    if (tag != tags.end()) return tag->second;
    return make_error(ErrorCode::kNotFound, "run {}: no tag {}", run.name, message.tag);
  }
  if (message.latest) {
    const auto latest = history.catalog().latest_complete(run.id, message.lineage);
    if (latest) return *latest;
    return make_error(ErrorCode::kNotFound, "run {}: it has no complete view", run.name);
  }
  // A damaged commit may be named: its older versions are restored, and the notes say why.
  return history.catalog().resolve_any(run.id, message.lineage, message.step);
}

// Resolves the view, and the wanted ranges.
Result<RestoreRequest> Daemon::Impl::resolve_restore(const Session& session,
                                                     const fb::OpenRestoreT& message) {
  CKPT_ASSIGN(const RunInfo run,
              history.catalog().run(message.run.empty() ? session.run_name : message.run));
  CKPT_TRY(check_may(session, run, ckpt::Right::kRead));
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
  CKPT_ASSIGN(request.point, resolve_view(run, message));
  return request;
}

RestoreContext Daemon::Impl::restore_context() {
  return {disk, executor, *staging, *segments, history.catalog(), &decoded, history.healer()};
}

// Members of an epoch see everything that was staged before it: if some of that is still being
// written, the restore waits, so that all members get the same, newest versions.
void Daemon::Impl::open_restore(Session& session, const fb::OpenRestoreT& message) {
  snapshots->end_handback(session);
  const auto fail = [&](const Error& error) { replies.refuse(session.id, message.request, error); };
  if (!session.arena) {
    return fail(make_error(ErrorCode::kFailedPrecondition,
                           "a restore needs an arena: say hello with arena_bytes"));
  }
  const size_t open =
      session_work[session.id].restores.size() + session_work[session.id].waiting_restores.size();
  if (open >= limits::kRestoresPerSessionMax) {
    return fail(make_error(ErrorCode::kResourceExhausted,
                           "{} restores of this session are open, the most", open));
  }
  const auto member = groups.member(session.id);
  const bool of_its_run = message.run.empty() || message.run == session.run_name;
  if (!member || !of_its_run) return start_restore(session, message);
  const std::vector<SnapshotKey> open_snapshots = snapshots->open(member->run);
  const bool waits = std::ranges::any_of(
      open_snapshots, [&](const SnapshotKey& key) { return key.epoch < member->epoch; });
  if (!waits) return start_restore(session, message);
  if (draining) {
    return fail(make_error(ErrorCode::kUnavailable, "the daemon is shutting down"));
  }
  if (!member->active) {
    return fail(make_error(ErrorCode::kAborted, "epoch {} has ended", member->epoch));
  }
  session_work[session.id].waiting_restores.push_back(message);
}

// A snapshot has ended: waiting restores may start now, or must keep waiting.
void Daemon::Impl::retry_waiting_restores() {
  for (auto& [id, work] : session_work) {
    for (const fb::OpenRestoreT& message : std::exchange(work.waiting_restores, {})) {
      open_restore(*sessions.find(id), message);
    }
  }
}

void Daemon::Impl::start_restore(Session& session, const fb::OpenRestoreT& message) {
  const auto fail = [&](const Error& error) { replies.refuse(session.id, message.request, error); };
  auto request = history.read([&] { return resolve_restore(session, message); });
  if (!request.ok()) return fail(request.error());
  auto plan = history.read([&] {
    return plan_restore(*request, restore_oracle(restore_context(), session.uid, *request));
  });
  if (!plan.ok()) return fail(plan.error());
  const uint64_t id = next_restore++;
  ++counters.restores;
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
  NoteTexts texts;
  for (size_t i = 0; i < request->wants.size(); ++i) {
    auto unit = std::make_unique<fb::RestoredUnitT>();
    unit->unit = request->wants[i].unit;
    unit->version_lineage = plan->versions[i].snapshot.lineage;
    unit->version_step = plan->versions[i].snapshot.step;
    unit->note = texts.of(unit->unit, plan->versions[i].note);
    unit->memory_only = plan->versions[i].memory_only;
    opened.units.push_back(std::move(unit));
  }
  replies.send(session.id, std::move(opened));
  Restore& restore = session_work[session.id].restores[id];
  restore.request = message.request;
  restore.reader = next_reader++;
  restore.since = turn.now();
  restore.wants = request->wants;
  restore.job = std::make_unique<RestoreJob>(
      restore_context(), *session.arena, session.uid, std::move(request).value(),
      std::move(plan).value(), [this, session_id = session.id, id](const Result<Window>& window) {
        restore_window(session_id, id, window);
      });
  if (locate_bytes_max > 0) restore.job->locate(locate_bytes_max);
  restore.job->start();
}

// A descriptor shows the whole file, including later appends, and a segment holds extents of all
// runs. So only users who may read every run get a descriptor, and no check of the file's
// contents is needed. The first file is tried at once, to detect early if the file system cannot
// do this.
Status Daemon::Impl::may_locate(const Session& session, const RestorePlan& plan) {
  if (session.uid != 0 && session.uid != ::geteuid()) {
    return make_error(ErrorCode::kPermissionDenied,
                      "segments hold state of every run: only root and user {}, which ckptd runs "
                      "as, may read them",
                      ::geteuid());
  }
  for (const PlannedRead& read : plan.reads) {
    if (read.source != Source::kSegment) continue;
    const auto file = disk.share(segment_path(read.place.segment));
    // The restore itself handles a missing file.
    if (!file.ok() && file.error().code != ErrorCode::kNotFound) return file.error();
    break;
  }
  return {};
}

void Daemon::Impl::restore_window(SessionId session_id, uint64_t id, const Result<Window>& window) {
  const auto session = session_work.find(session_id);
  if (session == session_work.end()) return;
  const auto restore = session->second.restores.find(id);
  if (restore == session->second.restores.end()) return;
  holds.progress(session_id, turn.now());  // independent of the disk's speed
  if (!window.ok()) {
    spdlog::error("restore {}: {}", id, window.error().message);
    return replies.refuse(session_id, restore->second.request, window.error());
  }
  if (window->located) {
    if (window->last) counters.restore_time += turn.now() - restore->second.since;
    return send_located(session_id, id, restore->second, *window);
  }
  fb::RestoreWindowT message;
  message.restore = id;
  message.slab = window->slab;
  message.last = window->last;
  for (const WindowPiece& piece : window->pieces) {
    message.pieces.emplace_back(static_cast<uint32_t>(piece.want), piece.range.unit,
                                piece.range.offset, piece.range.length, piece.slab_offset,
                                piece.crc32c, static_cast<uint8_t>(piece.source));
    const bool in_memory = piece.source == Source::kMemory;
    (in_memory ? counters.restore_bytes_memory : counters.restore_bytes_segment) +=
        piece.range.length;
    RestoreSpeeds::Bytes& given = restore->second.given;
    (in_memory ? given.memory : given.segment) += piece.range.length;
  }
  if (window->last) {
    counters.restore_time += turn.now() - restore->second.since;
    counters.restore_speeds.finished(restore->second.given, turn.now() - restore->second.since);
  }
  message.notes = note_messages(*window, id, restore->second);
  counters.restore_fallbacks += window->notes.size();
  replies.send(session_id, std::move(message));
}

void Daemon::Impl::send_located(SessionId session, uint64_t id, Restore& restore,
                                const Window& window) {
  fb::LocatedT message;
  message.restore = id;
  message.number = window.located->number;
  message.segment = window.located->segment;
  message.fragments.reserve(window.located->fragments.size());
  for (const LocatedFragment& fragment : window.located->fragments) {
    message.fragments.emplace_back(fragment.file_offset, fragment.length, fragment.crc32c,
                                   static_cast<uint32_t>(fragment.pieces.size()));
    for (const WindowPiece& piece : fragment.pieces) {
      message.pieces.emplace_back(static_cast<uint32_t>(piece.want), piece.range.unit,
                                  piece.range.offset, piece.range.length, piece.slab_offset);
    }
  }
  message.notes = note_messages(window, id, restore);
  counters.restore_fallbacks += window.notes.size();
  replies.send(session, std::move(message), window.located->file);
}

void Daemon::Impl::located_read(Session& session, const fb::LocatedReadT& message) {
  const auto restore = session_work[session.id].restores.find(message.restore);
  if (restore == session_work[session.id].restores.end()) return;
  if (message.stop) {
    spdlog::warn("restore {}: the client goes on through its arena: {}", message.restore,
                 message.reason);
  }
  counters.restore_bytes_located += restore->second.job->located_read(
      {message.number, message.failed, message.stop, message.reason});
}

// Restores of a session share the slabs of its arena: another restore may wait for this one.
void Daemon::Impl::release_window(Session& session, const fb::ReleaseWindowT& message) {
  const auto restore = session_work[session.id].restores.find(message.restore);
  if (restore == session_work[session.id].restores.end()) return;
  restore->second.job->release(message.slab);
  for (auto& [id, other] : session_work[session.id].restores) {
    if (id != message.restore) other.job->pump();
  }
}

void Daemon::Impl::close_restore(Session& session, const fb::CloseRestoreT& message) {
  const auto restore = session_work[session.id].restores.find(message.restore);
  if (restore == session_work[session.id].restores.end()) {
    return replies.refuse(
        session.id, message.request,
        make_error(ErrorCode::kNotFound, "restore {}: no such restore", message.restore));
  }
  std::unique_ptr<RestoreJob> job = std::move(restore->second.job);
  session_work[session.id].restores.erase(restore);
  reader_gone();
  close_job(std::move(job), [this, id = session.id, request = message.request] {
    replies.done(id, request);
    const auto found = session_work.find(id);
    if (found == session_work.end()) return;
    for (auto& [other_id, other] : found->second.restores) other.job->pump();
  });
}

}  // namespace ckptd

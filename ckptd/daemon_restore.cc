// Restores: a view resolved, planned, and streamed through windows of the session's arena.
#include <spdlog/spdlog.h>

#include "ckptd/daemon_impl.h"
#include "ckptd/restore/memory_view.h"
#include "formats/base/printable.h"

namespace ckptd {

namespace {

// What one message says of ranges that are not served as the view has them: the whole text once per
// unit, the unit's other ranges refer to it. However many there are, the message fits into a frame
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

// Once per unit, and not for every unit of a damaged store: the client is told of each.
void warn_of(const RestoreNote& note, uint64_t id, Restore& restore) {
  if (restore.warned.size() > limits::kRestoreWarningsMax) return;
  if (!restore.warned.insert(note.unit).second) return;
  if (restore.warned.size() <= limits::kRestoreWarningsMax) {
    spdlog::warn("restore {}: {}", id, ckpt::base::shortened(note.note, limits::kNoteBytesMax));
  } else {
    spdlog::warn("restore {}: more units are not served as the view has them", id);
  }
}

}  // namespace

// Each unit's newest version not after a step: no commit needs to be there.
Result<ViewPoint> Daemon::Impl::resolve_newest(const RunInfo& run,
                                               const fb::OpenRestoreT& message) const {
  if (message.latest || !message.tag.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "run {}: `newest` goes with a step, not with `latest` or a tag", run.name);
  }
  const ViewPoint point{message.lineage != 0 ? message.lineage : run.current_lineage, message.step};
  if (!catalog->path(run.id, point).empty()) return point;
  return make_error(ErrorCode::kNotFound, "run {}: no lineage {}", run.name, point.lineage);
}

// Which view, and which ranges of it.
Result<RestoreRequest> Daemon::Impl::resolve_restore(const Session& session,
                                                     const fb::OpenRestoreT& message) {
  CKPT_ASSIGN(const RunInfo run,
              catalog->run(message.run.empty() ? session.run_name : message.run));
  if (!may_use(session, run.uid)) {
    return make_error(ErrorCode::kPermissionDenied, "run {}: it belongs to user {}", run.name,
                      run.uid);
  }
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
  if (message.newest) {
    CKPT_ASSIGN(request.point, resolve_newest(run, message));
  } else if (!message.tag.empty()) {
    const auto tags = catalog->tags(run.id);
    const auto tag = tags.find(message.tag);
    if (tag == tags.end()) {
      return make_error(ErrorCode::kNotFound, "run {}: no tag {}", run.name, message.tag);
    }
    request.point = tag->second;
  } else if (message.latest) {
    const auto latest = catalog->latest_complete(run.id, message.lineage);
    if (!latest) {
      return make_error(ErrorCode::kNotFound, "run {}: it has no complete view", run.name);
    }
    request.point = *latest;
  } else {
    // A damaged commit may be named: its older versions are restored, and the notes say why.
    CKPT_ASSIGN(request.point, catalog->resolve_any(run.id, message.lineage, message.step));
  }
  return request;
}

void Daemon::Impl::open_restore(Session& session, const fb::OpenRestoreT& message) {
  end_handback(session);
  const auto fail = [&](const Error& error) { refuse(session.id, message.request, error); };
  if (!session.arena) {
    return fail(make_error(ErrorCode::kFailedPrecondition,
                           "a restore needs an arena: say hello with arena_bytes"));
  }
  if (session.restores.size() >= limits::kRestoresPerSessionMax) {
    return fail(make_error(ErrorCode::kResourceExhausted,
                           "{} restores of this session are open, the most",
                           session.restores.size()));
  }
  auto request = resolve_restore(session, message);
  if (!request.ok()) return fail(request.error());
  auto plan = plan_restore(*request, restore_oracle(restore_context(), session.uid, *request));
  if (!plan.ok()) return fail(plan.error());
  const uint64_t id = next_restore++;
  ++counters.restores;
  fb::RestoreOpenedT opened;
  opened.request = message.request;
  opened.restore = id;
  opened.lineage = request->point.lineage;
  opened.step = request->point.step;
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
  send(session.id, std::move(opened));
  Restore& restore = session.restores[id];
  restore.request = message.request;
  restore.wants = request->wants;
  restore.job = std::make_unique<RestoreJob>(
      restore_context(), *session.arena, session.uid, std::move(request).value(),
      std::move(plan).value(), [this, session_id = session.id, id](const Result<Window>& window) {
        restore_window(session_id, id, window);
      });
  restore.job->start();
}

void Daemon::Impl::restore_window(SessionId session_id, uint64_t id, const Result<Window>& window) {
  const auto session = sessions.find(session_id);
  if (session == sessions.end()) return;
  const auto restore = session->second.restores.find(id);
  if (restore == session->second.restores.end()) return;
  if (!window.ok()) {
    spdlog::error("restore {}: {}", id, window.error().message);
    return refuse(session_id, restore->second.request, window.error());
  }
  fb::RestoreWindowT message;
  message.restore = id;
  message.slab = window->slab;
  message.last = window->last;
  for (const WindowPiece& piece : window->pieces) {
    message.pieces.emplace_back(static_cast<uint32_t>(piece.want), piece.range.unit,
                                piece.range.offset, piece.range.length, piece.slab_offset,
                                piece.crc32c, static_cast<uint8_t>(piece.source));
    (piece.source == Source::kMemory ? counters.restore_bytes_memory
                                     : counters.restore_bytes_segment) += piece.range.length;
  }
  NoteTexts texts;
  for (const RestoreNote& note : window->notes) {
    ++counters.restore_fallbacks;
    warn_of(note, id, restore->second);
    for (const size_t want : note.wants) {
      auto out = std::make_unique<fb::RestoreNoteT>();
      out->want = static_cast<uint32_t>(want);
      out->version_lineage = note.snapshot.lineage;
      out->version_step = note.snapshot.step;
      out->note = texts.of(note.unit, note.note);
      message.notes.push_back(std::move(out));
    }
  }
  send(session_id, std::move(message));
}

// The slabs of an arena are shared by its session's restores: what one gives back another may need.
void Daemon::Impl::release_window(Session& session, const fb::ReleaseWindowT& message) {
  const auto restore = session.restores.find(message.restore);
  if (restore == session.restores.end()) return;
  restore->second.job->release(message.slab);
  for (auto& [id, other] : session.restores) {
    if (id != message.restore) other.job->pump();
  }
}

void Daemon::Impl::close_restore(Session& session, const fb::CloseRestoreT& message) {
  const auto restore = session.restores.find(message.restore);
  if (restore == session.restores.end()) {
    return refuse(session.id, message.request,
                  make_error(ErrorCode::kNotFound, "restore {}: no such restore", message.restore));
  }
  std::unique_ptr<RestoreJob> job = std::move(restore->second.job);
  session.restores.erase(restore);
  close_job(std::move(job), [this, id = session.id, request = message.request] {
    done(id, request);
    const auto found = sessions.find(id);
    if (found == sessions.end()) return;
    for (auto& [other_id, other] : found->second.restores) other.job->pump();
  });
}

}  // namespace ckptd

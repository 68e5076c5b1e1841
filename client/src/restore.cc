#include "client/src/restore.h"

#include <algorithm>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckpt::lib {
namespace {

// A restore that kills every daemon it meets must end.
constexpr int kAttemptsMax = 8;

// One try with one daemon.
class Attempt {
 public:
  Attempt(Session& session, const RestoreOptions& options, const std::vector<RestoreRange>& ranges)
      : session_(session), options_(options), ranges_(ranges), inbox_(session) {}

  // The answers; nullopt if the daemon was lost.
  Result<std::optional<std::vector<RestoredRange>>> run(const Deadline& deadline);

 private:
  struct Want {
    size_t range = 0;                                // index in ranges_
    std::vector<std::pair<uint64_t, uint64_t>> got;  // [begin, end) in the unit
  };
  Result<uint64_t> open(const Deadline& deadline);
  Status take_notes(const fb::RestoreWindowT& window);
  Status take_piece(const fb::RestoredPiece& piece, MutableByteView slab);
  Status take_window(const fb::RestoreWindowT& window);
  Status check_complete();
  std::string name(const Want& want) const;

  Session& session_;
  const RestoreOptions& options_;
  const std::vector<RestoreRange>& ranges_;
  RestoreInbox inbox_;
  std::vector<Want> wants_;  // ranges that are not empty
  std::vector<RestoredRange> restored_;
};

std::string Attempt::name(const Want& want) const {
  const UnitRange& range = ranges_[want.range].range;
  const auto& units = session_.units();
  return fmt::format(
      "run {} unit {}", options_.run,
      range.unit < units.size() ? units[range.unit].name : fmt::format("number {}", range.unit));
}

Result<uint64_t> Attempt::open(const Deadline& deadline) {
  fb::OpenRestoreT body;
  body.run = options_.run;
  body.lineage = options_.lineage;
  body.step = options_.step;
  body.latest = options_.latest;
  body.tag = options_.tag;
  body.exact = options_.exact;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const auto [unit, offset, length] = ranges_[i].range;
    if (length == 0) continue;
    wants_.push_back({i, {}});
    body.wants.emplace_back(unit, 0, offset, length);
  }
  const std::string what = fmt::format("run {}: restore", options_.run);
  CKPT_ASSIGN(fb::MessageT reply, session_.call(body, {deadline, what, {}}));
  const fb::RestoreOpenedT* opened = reply.body.AsRestoreOpened();
  if (opened == nullptr || opened->units.size() != wants_.size()) {
    return make_error(ErrorCode::kCorrupt, "{}: the daemon answered with something else", what);
  }
  restored_.resize(ranges_.size());
  for (size_t i = 0; i < wants_.size(); ++i) {
    RestoredRange& out = restored_[wants_[i].range];
    out.version_lineage = opened->units[i]->version_lineage;
    out.version_step = opened->units[i]->version_step;
    out.note = opened->units[i]->note;
  }
  inbox_.opened(opened->request);
  return opened->restore;
}

// A want that fell back to another version is delivered again, all of it.
Status Attempt::take_notes(const fb::RestoreWindowT& window) {
  for (const auto& note : window.notes) {
    if (note->want >= wants_.size()) {
      return make_error(ErrorCode::kCorrupt, "run {}: a note about range {} of {}", options_.run,
                        note->want, wants_.size());
    }
    Want& want = wants_[note->want];
    RestoredRange& out = restored_[want.range];
    if (out.version_lineage != note->version_lineage || out.version_step != note->version_step) {
      want.got.clear();
      out.bytes_memory = 0;
      out.bytes_disk = 0;
    }
    out.version_lineage = note->version_lineage;
    out.version_step = note->version_step;
    out.note = note->note;
  }
  return ok_status();
}

Status Attempt::take_piece(const fb::RestoredPiece& piece, MutableByteView slab) {
  if (piece.want() >= wants_.size()) {
    return make_error(ErrorCode::kCorrupt, "run {}: a piece of range {} of {}", options_.run,
                      piece.want(), wants_.size());
  }
  Want& want = wants_[piece.want()];
  const auto [unit, offset, length] = ranges_[want.range].range;
  const bool inside = piece.unit() == unit && piece.offset() >= offset &&
                      base::range_fits(piece.offset() - offset, piece.length(), length) &&
                      base::range_fits(piece.slab_offset(), piece.length(), slab.size());
  if (!inside) {
    return make_error(ErrorCode::kCorrupt, "{}: the daemon sent bytes that nobody asked for",
                      name(want));
  }
  std::byte* to = ranges_[want.range].data + (piece.offset() - offset);
  const uint32_t crc =
      base::copy_crc32c({to, piece.length()}, slab.subspan(piece.slab_offset(), piece.length()));
  if (crc != piece.crc32c()) {
    return make_error(ErrorCode::kCorrupt,
                      "{}: bytes [{}, {}) do not match their checksum in the arena", name(want),
                      piece.offset(), piece.offset() + piece.length());
  }
  want.got.emplace_back(piece.offset(), piece.offset() + piece.length());
  RestoredRange& out = restored_[want.range];
  const bool memory = piece.source() == static_cast<uint8_t>(fb::Source::Memory);
  (memory ? out.bytes_memory : out.bytes_disk) += piece.length();
  return ok_status();
}

Status Attempt::take_window(const fb::RestoreWindowT& window) {
  CKPT_TRY(take_notes(window));
  if (window.pieces.empty()) return ok_status();  // carries news only, no slab
  const ArenaMapping* arena = session_.arena();
  if (arena == nullptr || window.slab >= arena->layout().slab_count) {
    return make_error(ErrorCode::kCorrupt, "run {}: a window in slab {}, which is not in the arena",
                      options_.run, window.slab);
  }
  const MutableByteView slab = session_.warm_slab(window.slab);
  for (const fb::RestoredPiece& piece : window.pieces) CKPT_TRY(take_piece(piece, slab));
  return ok_status();
}

Status Attempt::check_complete() {
  for (Want& want : wants_) {
    const UnitRange& range = ranges_[want.range].range;
    std::sort(want.got.begin(), want.got.end());
    uint64_t covered = range.offset;
    for (const auto& [begin, end] : want.got) {
      if (begin > covered) break;
      covered = std::max(covered, end);
    }
    if (covered < range.offset + range.length) {
      return make_error(ErrorCode::kCorrupt, "{}: the daemon left out byte {}", name(want),
                        covered);
    }
  }
  return ok_status();
}

Result<std::optional<std::vector<RestoredRange>>> Attempt::run(const Deadline& deadline) {
  CKPT_ASSIGN(const uint64_t restore, open(deadline));
  const uint64_t generation = session_.generation();
  Deadline progress = deadline;
  Status status = ok_status();
  bool last = wants_.empty();
  while (status.ok() && !last) {
    if (std::optional<fb::RestoreWindowT> window = inbox_.next(restore)) {
      status = take_window(*window);
      last = window->last;
      progress = Deadline::after_ms(options_.timeout_ms);
      if (window->pieces.empty()) continue;
      fb::ReleaseWindowT release;
      release.restore = restore;
      release.slab = window->slab;
      session_.post(std::move(release));
    } else if (inbox_.failure()) {
      status = *inbox_.failure();
    } else if (!session_.ready() || session_.generation() != generation) {
      return std::optional<std::vector<RestoredRange>>();
    } else if (progress.expired()) {
      status = make_error(ErrorCode::kDeadlineExceeded, "run {}: restore: nothing came for {} ms",
                          options_.run, options_.timeout_ms);
    } else {
      session_.pump(progress);
    }
  }
  fb::CloseRestoreT close;
  close.restore = restore;
  session_.post(std::move(close));
  CKPT_TRY(status);
  CKPT_TRY(check_complete());
  return std::optional(std::move(restored_));
}

}  // namespace

bool RestoreInbox::take_error(const fb::ErrorReplyT& error) {
  if (request_ == 0 || error.request != request_) return false;
  failure_ = error_from(error);
  return true;
}

// The next window of this restore; those of one given up before are passed over.
std::optional<fb::RestoreWindowT> RestoreInbox::next(uint64_t restore) {
  while (!windows_.empty()) {
    fb::RestoreWindowT window = std::move(windows_.front());
    windows_.pop_front();
    if (window.restore == restore) return window;
  }
  return std::nullopt;
}

Result<std::vector<RestoredRange>> restore_read(Session& session, const RestoreOptions& options,
                                                const std::vector<RestoreRange>& ranges) {
  if (session.options().control && session.options().arena_bytes == 0) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "run {}: a restore needs an arena; open the session with arena_bytes",
                      options.run);
  }
  for (int attempts = 0; attempts < kAttemptsMax; ++attempts) {
    const Deadline deadline = Deadline::after_ms(options.timeout_ms);
    Attempt attempt(session, options, ranges);
    CKPT_ASSIGN(std::optional<std::vector<RestoredRange>> restored, attempt.run(deadline));
    if (restored) return *std::move(restored);
  }
  return make_error(ErrorCode::kUnavailable, "run {}: restore: the daemon was lost {} times",
                    options.run, kAttemptsMax);
}

}  // namespace ckpt::lib

#include "client/src/restore.h"

#include <algorithm>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckpt::lib {
namespace {

// A restore that kills every daemon it meets must end.
constexpr int kAttemptsMax = 8;

}  // namespace

bool RestoreInbox::take_error(const fb::ErrorReplyT& error) {
  if (request_ == 0 || error.request != request_) return false;
  failure_ = error_from(error);
  return true;
}

void RestoreInbox::opened(uint64_t request) {
  request_ = request;
  failure_.reset();
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

Result<std::unique_ptr<Restore>> Restore::begin(Session& session, RestoreOptions options,
                                                std::vector<UnitRange> ranges) {
  if (session.options().control && session.options().arena_bytes == 0) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "run {}: a restore needs an arena; open the session with arena_bytes",
                      options.run);
  }
  if (session.restoring()) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "run {}: the session's last restore has not ended", options.run);
  }
  std::unique_ptr<Restore> restore(new Restore(session, std::move(options), std::move(ranges)));
  CKPT_TRY(restore->open());
  return restore;
}

Restore::~Restore() { close(); }

void Restore::close() {
  if (restore_ == 0) return;
  fb::CloseRestoreT close;
  close.restore = std::exchange(restore_, 0);
  session_.post(std::move(close));  // gives all slabs back
}

std::string Restore::name(size_t range) const {
  const UnitId unit = ranges_[range].unit;
  const auto& units = session_.units();
  return fmt::format("run {} unit {}", options_.run,
                     unit < units.size() ? units[unit].name : fmt::format("number {}", unit));
}

Status Restore::open() {
  if (++attempt_ > kAttemptsMax) {
    return make_error(ErrorCode::kUnavailable, "run {}: restore: the daemon was lost {} times",
                      options_.run, kAttemptsMax);
  }
  fb::OpenRestoreT body;
  body.run = options_.run;
  body.lineage = options_.lineage;
  body.step = options_.step;
  body.latest = options_.latest;
  body.tag = options_.tag;
  body.exact = options_.exact;
  body.newest = options_.newest;
  body.memory = options_.memory;
  wants_.clear();
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const auto [unit, offset, length] = ranges_[i];
    if (length == 0) continue;
    wants_.push_back({i, {}});
    body.wants.emplace_back(unit, 0, offset, length);
  }
  const std::string what = fmt::format("run {}: restore", options_.run);
  progress_ = Deadline::after_ms(options_.timeout_ms);
  CKPT_ASSIGN(fb::MessageT reply, session_.call(body, {progress_, what, {}}));
  const fb::RestoreOpenedT* opened = reply.body.AsRestoreOpened();
  if (opened == nullptr || opened->units.size() != wants_.size()) {
    return make_error(ErrorCode::kCorrupt, "{}: the daemon answered with something else", what);
  }
  restored_.assign(ranges_.size(), {});
  for (size_t i = 0; i < wants_.size(); ++i) {
    RestoredRange& out = restored_[wants_[i].range];
    out.version_lineage = opened->units[i]->version_lineage;
    out.version_step = opened->units[i]->version_step;
    out.note = opened->units[i]->note;
    out.memory_only = opened->units[i]->memory_only;
  }
  inbox_.opened(opened->request);
  restore_ = opened->restore;
  generation_ = session_.generation();
  first_window_ = next_window_;
  last_ = wants_.empty();
  return ok_status();
}

// A want that fell back to another version is delivered again, all of it.
Status Restore::take_notes(const fb::RestoreWindowT& window) {
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
    out.memory_only = note->memory_only;
  }
  return ok_status();
}

Result<RestorePiece> Restore::take_piece(const fb::RestoredPiece& piece, uint64_t slab_bytes) {
  if (piece.want() >= wants_.size()) {
    return make_error(ErrorCode::kCorrupt, "run {}: a piece of range {} of {}", options_.run,
                      piece.want(), wants_.size());
  }
  Want& want = wants_[piece.want()];
  const auto [unit, offset, length] = ranges_[want.range];
  const bool inside = piece.unit() == unit && piece.offset() >= offset &&
                      base::range_fits(piece.offset() - offset, piece.length(), length) &&
                      base::range_fits(piece.slab_offset(), piece.length(), slab_bytes);
  if (!inside) {
    return make_error(ErrorCode::kCorrupt, "{}: the daemon sent bytes that nobody asked for",
                      name(want.range));
  }
  want.got.emplace_back(piece.offset(), piece.offset() + piece.length());
  RestoredRange& out = restored_[want.range];
  const bool memory = piece.source() == static_cast<uint8_t>(fb::Source::Memory);
  (memory ? out.bytes_memory : out.bytes_disk) += piece.length();
  return RestorePiece{want.range, piece.offset() - offset, piece.length(), piece.slab_offset(),
                      piece.crc32c()};
}

// Its id stays 0 if it carries news only, no slab.
Result<LentWindow> Restore::take_window(const fb::RestoreWindowT& window) {
  LentWindow lent;
  CKPT_TRY(take_notes(window));
  if (!window.pieces.empty()) {
    const ArenaMapping* arena = session_.arena();
    if (arena == nullptr || window.slab >= arena->layout().slab_count) {
      return make_error(ErrorCode::kCorrupt,
                        "run {}: a window in slab {}, which is not in the arena", options_.run,
                        window.slab);
    }
    lent.bytes = session_.warm_slab(window.slab);
    lent.pieces.reserve(window.pieces.size());
    for (const fb::RestoredPiece& piece : window.pieces) {
      CKPT_ASSIGN(lent.pieces.emplace_back(), take_piece(piece, lent.bytes.size()));
    }
    lent.id = next_window_++;
    lent_[lent.id] = window.slab;
  }
  last_ = window.last;
  if (last_) CKPT_TRY(check_complete());
  return lent;
}

Status Restore::check_complete() {
  for (Want& want : wants_) {
    const UnitRange& range = ranges_[want.range];
    std::sort(want.got.begin(), want.got.end());
    uint64_t covered = range.offset;
    for (const auto& [begin, end] : want.got) {
      if (begin > covered) break;
      covered = std::max(covered, end);
    }
    if (covered < range.offset + range.length) {
      return make_error(ErrorCode::kCorrupt, "{}: the daemon left out byte {}", name(want.range),
                        covered);
    }
  }
  return ok_status();
}

Result<LentWindow> Restore::next(const Deadline& until) {
  for (bool looked = false;;) {
    if (mismatch_) {
      if (std::exchange(read_again_, true)) return *mismatch_;
      mismatch_.reset();
      close();
      CKPT_TRY(open());
    } else if (last_) {
      return LentWindow{.id = 0, .complete = true, .bytes = {}, .pieces = {}};
    } else if (std::optional<fb::RestoreWindowT> window = inbox_.next(restore_)) {
      progress_ = Deadline::after_ms(options_.timeout_ms);
      CKPT_ASSIGN(LentWindow lent, take_window(*window));
      if (lent.id != 0) return lent;
    } else if (inbox_.failure()) {
      return *inbox_.failure();
    } else if (!session_.ready() || session_.generation() != generation_) {
      restore_ = 0;  // nobody knows it any more
      CKPT_TRY(open());
    } else if (lent_.empty() && progress_.expired()) {
      return make_error(ErrorCode::kDeadlineExceeded, "run {}: restore: nothing came for {} ms",
                        options_.run, options_.timeout_ms);
    } else if (looked && until.expired()) {
      return LentWindow{};
    } else {
      looked = true;  // also where there is no time to wait
      session_.pump(lent_.empty() ? until.or_earlier(progress_.at()) : until);
    }
  }
}

void Restore::release(uint64_t window) {
  const auto found = lent_.find(window);
  if (found == lent_.end()) return;
  const uint32_t slab = found->second;
  lent_.erase(found);
  progress_ = Deadline::after_ms(options_.timeout_ms);
  if (window < first_window_) return;  // its slab went back when that attempt ended
  fb::ReleaseWindowT release;
  release.restore = restore_;
  release.slab = slab;
  session_.post(std::move(release));
}

void Restore::mismatch(uint64_t window, const RestorePiece& piece) {
  if (mismatch_ || window < first_window_) return;
  const uint64_t begin = ranges_[piece.range].offset + piece.offset;
  mismatch_ =
      make_error(ErrorCode::kCorrupt, "{}: bytes [{}, {}) do not match their checksum in the arena",
                 name(piece.range), begin, begin + piece.length);
}

Result<std::vector<RestoredRange>> Restore::finish() {
  if (!last_ || mismatch_) {
    return make_error(ErrorCode::kFailedPrecondition, "run {}: restore: not complete yet",
                      options_.run);
  }
  close();
  return std::move(restored_);
}

Result<std::vector<RestoredRange>> restore_read(Session& session, const RestoreOptions& options,
                                                const std::vector<RestoreRange>& ranges) {
  std::vector<UnitRange> wanted;
  wanted.reserve(ranges.size());
  for (const RestoreRange& range : ranges) wanted.push_back(range.range);
  CKPT_ASSIGN(const std::unique_ptr<Restore> restore,
              Restore::begin(session, options, std::move(wanted)));
  for (;;) {
    CKPT_ASSIGN(const LentWindow window, restore->next(Deadline::after_ms(options.timeout_ms)));
    if (window.complete) return restore->finish();
    for (const RestorePiece& piece : window.pieces) {
      std::byte* to = ranges[piece.range].data + piece.offset;
      const uint32_t crc =
          base::copy_crc32c({to, piece.length}, window.bytes.subspan(piece.at, piece.length));
      if (crc != piece.crc32c) restore->mismatch(window.id, piece);
    }
    if (window.id != 0) restore->release(window.id);
  }
}

}  // namespace ckpt::lib

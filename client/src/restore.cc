#include "client/src/restore.h"

#include <algorithm>

#include "formats/base/checked.h"
#include "formats/base/stream_copy.h"
#include "formats/blob.h"

namespace ckpt::lib {
namespace {

// Bounds the attempts, in case the restore itself crashes every daemon.
constexpr int kAttemptsMax = 8;
// Retry interval after a daemon's "not now" (it is starting, or draining).
constexpr std::chrono::milliseconds kRetryOpenAfter{50};

}  // namespace

bool RestoreInbox::take_error(const fb::ErrorReplyT& error) {
  if (request_ == 0 || error.request != request_) return false;
  failure_ = error_from(error);
  return true;
}

bool RestoreInbox::take_answer(fb::RestoreOpenedT& answer) {
  if (request_ == 0 || answer.request != request_) return false;
  answer_ = std::move(answer);
  return true;
}

void RestoreInbox::asked(uint64_t request) {
  request_ = request;
  answer_.reset();
  failure_.reset();
}

// The next window of this restore; skips windows of an abandoned one.
std::optional<RestoreMessage> RestoreInbox::next(uint64_t restore) {
  while (!windows_.empty()) {
    RestoreMessage message = std::move(windows_.front());
    windows_.pop_front();
    const auto* window = std::get_if<fb::RestoreWindowT>(&message);
    const uint64_t of =
        window != nullptr ? window->restore : std::get<LocatedMessage>(message).body.restore;
    if (of == restore) return message;
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
  CKPT_TRY(restore->start_over());
  for (;;) {
    CKPT_ASSIGN(const bool open, restore->opened());
    if (open) return restore;
    CKPT_TRY(restore->wait_to_open(restore->progress_));
  }
}

Restore::~Restore() { close(); }

void Restore::close() {
  phase_ = Phase::kClosed;
  if (restore_ == 0) return;
  fb::CloseRestoreT close;
  close.restore = std::exchange(restore_, 0);
  session_.post(std::move(close));  // releases all slabs
}

std::string Restore::name(size_t range) const {
  const UnitId unit = ranges_[range].unit;
  const auto& units = session_.units();
  if (is_blob(unit)) {
    return fmt::format("run {} blob number {} of rank {}", options_.run, index_of_blob(unit),
                       rank_of_blob(unit));
  }
  return fmt::format("run {} unit {}", options_.run,
                     unit < units.size() ? units[unit].name : fmt::format("number {}", unit));
}

bool Restore::lost() const { return !session_.ready() || session_.generation() != generation_; }

Status Restore::start_over() {
  phase_ = Phase::kClosed;
  restore_ = 0;
  last_ = false;
  first_window_ = next_window_;
  progress_ = Deadline::after_ms(options_.timeout_ms);
  if (++attempt_ <= kAttemptsMax) return ok_status();
  return make_error(ErrorCode::kUnavailable, "{}: the daemon was lost {} times", what(),
                    kAttemptsMax);
}

// Sends OpenRestore. Precondition: the session is ready.
Status Restore::ask() {
  fb::OpenRestoreT body;
  body.run = options_.run;
  body.lineage = options_.lineage;
  body.step = options_.step;
  body.latest = options_.latest;
  body.tag = options_.tag;
  body.exact = options_.exact;
  body.newest = options_.newest;
  body.memory = options_.memory;
  body.locate_bytes_max = options_.locate_bytes_max;
  wants_.clear();
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const auto [unit, offset, length] = ranges_[i];
    if (length == 0) continue;
    wants_.push_back({i, {}, 0});
    body.wants.emplace_back(unit, 0, offset, length);
  }
  generation_ = session_.generation();
  uint64_t request = 0;
  const Status sent = session_.send(std::move(body), &request);
  if (!sent.ok()) {
    // Too large for a frame: the caller's mistake. Any other error: the daemon was lost.
    if (sent.error().code != ErrorCode::kInvalidArgument) return ok_status();
    return make_error(sent.error().code, "{}: {}", what(), sent.error().message);
  }
  inbox_.asked(request);
  phase_ = Phase::kOpening;
  return ok_status();
}

Status Restore::take_answer(const fb::RestoreOpenedT& answer) {
  restore_ = answer.restore;  // remembered first: it must be closed, even if the rest is invalid
  if (answer.units.size() != wants_.size()) {
    return make_error(ErrorCode::kCorrupt, "{}: the daemon answered {} ranges of {}", what(),
                      answer.units.size(), wants_.size());
  }
  not_located_.clear();
  if (options_.locate_bytes_max > 0 && !answer.locates) {
    // An older daemon does not know the request and leaves the field empty.
    not_located_ =
        answer.not_located.empty() ? "this daemon hands out no files" : answer.not_located;
    if (options_.locate_required) {
      return make_error(ErrorCode::kFailedPrecondition, "{}: {}", what(), not_located_);
    }
  }
  restored_.assign(ranges_.size(), {});
  for (size_t i = 0; i < wants_.size(); ++i) {
    RestoredRange& out = restored_[wants_[i].range];
    out.version_lineage = answer.units[i]->version_lineage;
    out.version_step = answer.units[i]->version_step;
    out.note = answer.units[i]->note;
    out.memory_only = answer.units[i]->memory_only;
  }
  phase_ = Phase::kOpen;
  last_ = wants_.empty();
  progress_ = Deadline::after_ms(options_.timeout_ms);
  return ok_status();
}

Status Restore::take_refusal(const Error& refusal) {
  if (refusal.code != ErrorCode::kUnavailable || progress_.expired()) return refusal;
  phase_ = Phase::kClosed;
  retry_at_ = Clock::now() + kRetryOpenAfter;
  return ok_status();
}

// Advances the opening as far as possible without waiting. True once the restore is open.
Result<bool> Restore::opened() {
  if (phase_ == Phase::kOpening) {
    if (const std::optional<fb::RestoreOpenedT> answer = inbox_.answer()) {
      CKPT_TRY(take_answer(*answer));
    } else if (inbox_.failure()) {
      CKPT_TRY(take_refusal(*inbox_.failure()));
    } else if (lost()) {
      phase_ = Phase::kClosed;
    }
  }
  const bool may_ask = session_.ready() && Clock::now() >= retry_at_;
  if (phase_ == Phase::kClosed && may_ask) CKPT_TRY(ask());
  return phase_ == Phase::kOpen;
}

Status Restore::wait_to_open(const Deadline& until) {
  if (session_.interrupted()) return make_error(ErrorCode::kAborted, "{}: interrupted", what());
  if (progress_.expired()) return session_.timed_out({progress_, what(), {}});
  const Deadline wait = until.or_earlier(progress_.at());
  const bool pausing = phase_ == Phase::kClosed && session_.ready();
  session_.pump(pausing ? wait.or_earlier(retry_at_) : wait);
  return ok_status();
}

// A want that fell back to another version is delivered again, completely.
Status Restore::take_notes(const Notes& notes) {
  for (const auto& note : notes) {
    if (note->want >= wants_.size()) {
      return make_error(ErrorCode::kCorrupt, "run {}: a note about range {} of {}", options_.run,
                        note->want, wants_.size());
    }
    Want& want = wants_[note->want];
    RestoredRange& out = restored_[want.range];
    if (out.version_lineage != note->version_lineage || out.version_step != note->version_step) {
      want.got.clear();
      ++want.versions;
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

// Checks that these bytes were requested.
Status Restore::check_range(uint32_t want, uint32_t unit, uint64_t offset, uint64_t length) const {
  if (want >= wants_.size()) {
    return make_error(ErrorCode::kCorrupt, "run {}: a piece of range {} of {}", options_.run, want,
                      wants_.size());
  }
  const UnitRange& range = ranges_[wants_[want].range];
  if (unit == range.unit && offset >= range.offset &&
      base::range_fits(offset - range.offset, length, range.length)) {
    return ok_status();
  }
  return make_error(ErrorCode::kCorrupt, "{}: the daemon sent bytes that were not requested",
                    name(wants_[want].range));
}

Result<RestorePiece> Restore::take_piece(const fb::RestoredPiece& piece, uint64_t slab_bytes) {
  CKPT_TRY(check_range(piece.want(), piece.unit(), piece.offset(), piece.length()));
  Want& want = wants_[piece.want()];
  const uint64_t offset = ranges_[want.range].offset;
  if (!base::range_fits(piece.slab_offset(), piece.length(), slab_bytes)) {
    return make_error(ErrorCode::kCorrupt, "{}: a piece lies outside its slab", name(want.range));
  }
  want.got.emplace_back(piece.offset(), piece.offset() + piece.length());
  RestoredRange& out = restored_[want.range];
  const bool memory = piece.source() == static_cast<uint8_t>(fb::Source::Memory);
  (memory ? out.bytes_memory : out.bytes_disk) += piece.length();
  return RestorePiece{want.range, piece.offset() - offset, piece.length(), piece.slab_offset(),
                      piece.crc32c()};
}

// A window whose id stays 0 carries only notes, no slab.
Result<LentWindow> Restore::take_window(const fb::RestoreWindowT& window) {
  LentWindow lent;
  CKPT_TRY(take_notes(window.notes));
  if (!window.pieces.empty()) {
    const ArenaMapping* arena = session_.arena().mapping();
    if (arena == nullptr || window.slab >= arena->layout().slab_count) {
      return make_error(ErrorCode::kCorrupt,
                        "run {}: a window in slab {}, which is not in the arena", options_.run,
                        window.slab);
    }
    lent.bytes = session_.arena().warm(window.slab);
    lent.pieces.reserve(window.pieces.size());
    for (const fb::RestoredPiece& piece : window.pieces) {
      CKPT_ASSIGN(lent.pieces.emplace_back(), take_piece(piece, lent.bytes.size()));
    }
    lent.id = next_window_++;
    lent_[lent.id].slab = window.slab;
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

// Returns the next window or news that has arrived, if any. Precondition: the restore is open.
Result<LentWindow> Restore::find_window() {
  while (!last_) {
    std::optional<RestoreMessage> message = inbox_.next(restore_);
    if (!message) {
      if (inbox_.failure()) return *inbox_.failure();
      if (lost()) CKPT_TRY(start_over());  // the next daemon does not know this restore
      return LentWindow{};
    }
    progress_ = Deadline::after_ms(options_.timeout_ms);
    auto* window = std::get_if<fb::RestoreWindowT>(&*message);
    CKPT_ASSIGN(LentWindow lent, window != nullptr
                                     ? take_window(*window)
                                     : take_located(std::get<LocatedMessage>(std::move(*message))));
    if (lent.id != 0) return lent;
  }
  LentWindow all;
  all.complete = true;
  return all;
}

Result<LentWindow> Restore::next(const Deadline& until) {
  for (bool polled = false;; polled = true) {  // checks at least once, even with no time to wait
    if (session_.interrupted()) return make_error(ErrorCode::kAborted, "{}: interrupted", what());
    if (mismatch_) {
      if (std::exchange(read_again_, true)) return *mismatch_;
      mismatch_.reset();
      close();
      CKPT_TRY(start_over());
    }
    CKPT_ASSIGN(const bool open, opened());
    if (open) {
      CKPT_ASSIGN(LentWindow found, find_window());
      if (found.id != 0 || found.complete) return found;
    }
    if (polled && until.expired()) return LentWindow{};
    if (phase_ != Phase::kOpen) {
      CKPT_TRY(wait_to_open(until));
    } else if (!lent_.empty()) {
      session_.pump(until);
    } else if (!progress_.expired()) {
      session_.pump(until.or_earlier(progress_.at()));
    } else {
      return make_error(ErrorCode::kDeadlineExceeded, "{}: nothing came for {} ms", what(),
                        options_.timeout_ms);
    }
  }
}

void Restore::release(uint64_t window) {
  const auto found = lent_.find(window);
  if (found == lent_.end()) return;
  Lent lent = std::move(found->second);
  lent_.erase(found);
  progress_ = Deadline::after_ms(options_.timeout_ms);
  if (window < first_window_) return;  // its slab was returned when that attempt ended
  if (lent.file.valid()) return answer_located(lent);
  fb::ReleaseWindowT release;
  release.restore = restore_;
  release.slab = lent.slab;
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
  if (phase_ != Phase::kOpen || !last_ || mismatch_) {
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
          base::stream_crc32c({to, piece.length}, window.bytes.subspan(piece.at, piece.length));
      if (crc != piece.crc32c) restore->mismatch(window.id, piece);
    }
    if (window.id != 0) restore->release(window.id);
  }
}

}  // namespace ckpt::lib

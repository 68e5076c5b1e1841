#include "ckptd/restore/journal_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ckptd/limits.h"
#include "formats/base/checked.h"

namespace ckptd {

JournalCheck::JournalCheck(Disk& disk, Executor& executor, JournalSource journal, MayRead may_read)
    : disk_(disk),
      executor_(executor),
      journal_(std::move(journal)),
      may_read_(std::move(may_read)) {}

JournalCheck::~JournalCheck() { CKPT_ASSERT_MSG(!busy(), "the journal was still being read"); }

void JournalCheck::start(std::function<void(Outcome)> on_done) {
  CKPT_ASSERT_MSG(!busy() && !on_stopped_, "the journal is read twice at once");
  on_done_ = std::move(on_done);
  outcome_ = {};
  end_ = journal_.durable_end();
  at_ = {};
  next_batch_ = 0;
  on_executor({}, [this] { read_piece(); });
}

void JournalCheck::resume() {
  if (on_done_ && !waiting_ && !on_stopped_) read_piece();
}

void JournalCheck::read_piece() {
  if (at_.offset >= end_) return finish({});
  const uint64_t left = end_ - at_.offset;
  if (*next_batch_ > left) {
    return finish(fmt::format("journal at offset {}: a batch of {} bytes, of which {} are there",
                              at_.offset, *next_batch_, left));
  }
  const uint64_t wanted = std::max<uint64_t>(*next_batch_, limits::kVerifyPieceBytes);
  piece_bytes_ = std::min(ckpt::base::align_up(wanted, ckpt::kBlockBytes), left);
  if (may_read_ && !may_read_(piece_bytes_)) return;
  if (buffer_.size() < piece_bytes_) buffer_ = AlignedBuffer(piece_bytes_);
  waiting_ = true;
  disk_.submit({.op = IoOp::kRead,
                .file = journal_.file,
                .offset = at_.offset,
                .memory = buffer_.bytes().first(piece_bytes_),
                .on_done = [this](const Result<uint64_t>& got) {
                  if (end_wait()) check_piece(got);
                }});
}

void JournalCheck::check_piece(const Result<uint64_t>& got) {
  outcome_.bytes += piece_bytes_;
  if (!got.ok() && !is_data_loss(got.error())) return finish_unchecked(got.error());
  if (!got.ok()) return finish(got.error().message);
  if (*got < piece_bytes_) {
    return finish(fmt::format("journal at offset {}: the file ends here", at_.offset + *got));
  }
  on_executor(
      [this] { next_batch_ = ckpt::check_journal_piece(buffer_.bytes().first(piece_bytes_), at_); },
      [this] { piece_checked(); });
}

void JournalCheck::piece_checked() {
  if (!next_batch_.ok()) return finish(next_batch_.error().message);
  read_piece();
}

void JournalCheck::finish(const std::string& damage) {
  if (!damage.empty()) {
    outcome_.error =
        fmt::format("{}; restart ckptd: it writes the journal anew from the catalog", damage);
    outcome_.damage = true;
  }
  finish_with_outcome();
}

void JournalCheck::finish_unchecked(const ckpt::Error& why) {
  outcome_.error = fmt::format("{}; the rest of the journal was not checked", why.message);
  finish_with_outcome();
}

void JournalCheck::finish_with_outcome() {
  buffer_ = AlignedBuffer();
  const auto on_done = std::exchange(on_done_, nullptr);
  on_done(std::move(outcome_));  // may destroy this
}

void JournalCheck::stop(std::function<void()> on_stopped) {
  CKPT_ASSERT_MSG(!on_stopped_, "the journal's check is stopped twice");
  on_stopped_ = std::move(on_stopped);
  on_done_ = nullptr;
  if (!waiting_) on_executor({}, [] {});
}

void JournalCheck::on_executor(std::function<void()> work, std::function<void()> then) {
  waiting_ = true;
  executor_.run(std::move(work), [this, then = std::move(then)] {
    if (end_wait()) then();
  });
}

// False: the check is being stopped, and on_stopped has run.
bool JournalCheck::end_wait() {
  waiting_ = false;
  if (!on_stopped_) return true;
  buffer_ = AlignedBuffer();
  const auto on_stopped = std::exchange(on_stopped_, nullptr);
  on_stopped();  // may destroy this
  return false;
}

}  // namespace ckptd

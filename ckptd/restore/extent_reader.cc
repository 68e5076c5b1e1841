#include "ckptd/restore/extent_reader.h"

#include <algorithm>
#include <utility>

#include "ckptd/limits.h"

namespace ckptd {

// O_DIRECT reads whole blocks: headers and padded payloads consist of whole blocks.
static_assert(limits::kVerifyPieceBytes % ckpt::kBlockBytes == 0);

namespace {

ExtentCheck::Missing missing_by(const ckpt::Error& error) {
  return is_data_loss(error) ? ExtentCheck::Missing::kLost : ExtentCheck::Missing::kUnchecked;
}

}  // namespace

ExtentReader::ExtentReader(const RestoreContext& context, MayRead may_read)
    : context_(context), may_read_(std::move(may_read)) {}

ExtentReader::~ExtentReader() { CKPT_ASSERT_MSG(!busy(), "an extent was still being read"); }

void ExtentReader::on_executor(std::function<void()> work, void (ExtentReader::*then)()) {
  waiting_ += 1;
  context_.executor.run(std::move(work), [this, then] {
    waiting_ -= 1;
    if (on_stopped_) {
      finish_stop();
    } else {
      (this->*then)();
    }
  });
}

void ExtentReader::start(ExtentPosition position, ExtentCheck check,
                         std::function<void(Outcome)> on_done) {
  CKPT_ASSERT_MSG(!busy() && !on_stopped_, "two extents at once");
  position_ = position;
  check_.emplace(std::move(check));
  on_done_ = std::move(on_done);
  outcome_ = {};
  submitted_ = 0;
  feeding_ = false;
  waiting_ += 1;
  context_.segments.open(position.segment, [this](const Result<SegmentHandle>& handle) {
    waiting_ -= 1;
    if (on_stopped_) {
      finish_stop();
    } else {
      opened(handle);
    }
  });
}

void ExtentReader::opened(const Result<SegmentHandle>& handle) {
  if (!handle.ok()) {
    // The extent is unreadable: every unit in it is named. From the loop: see start().
    check_->skip(check_->bytes(), handle.error().message, missing_by(handle.error()));
    on_executor([] {}, &ExtentReader::finish);
    return;
  }
  file_ = *handle;
  outcome_.file_damage = context_.segments.header_damage(position_.segment);
  read_more();
}

void ExtentReader::resume() {
  if (file_ && !on_stopped_) read_more();
}

AlignedBuffer ExtentReader::take_buffer(uint64_t bytes) {
  AlignedBuffer buffer;
  if (!spare_.empty()) {
    buffer = std::move(spare_.back());
    spare_.pop_back();
  }
  if (buffer.size() < bytes) buffer = AlignedBuffer(bytes);
  return buffer;
}

void ExtentReader::read_more() {
  while (submitted_ < check_->bytes() && pieces_.size() < limits::kVerifyPiecesInFlightMax) {
    const uint64_t bytes =
        std::min<uint64_t>(limits::kVerifyPieceBytes, check_->bytes() - submitted_);
    if (may_read_ && !may_read_(bytes)) return;
    Piece& piece = pieces_.emplace_back();
    piece.buffer = take_buffer(bytes);
    piece.memory = piece.buffer.bytes().first(bytes);
    waiting_ += 1;
    context_.disk.submit({.op = IoOp::kRead,
                          .file = *file_,
                          .offset = position_.offset + submitted_,
                          .memory = piece.memory,
                          .on_done = [this, &piece](Result<uint64_t> got) {
                            waiting_ -= 1;
                            piece.here = true;
                            piece.got = std::move(got);
                            on_stopped_ ? finish_stop() : feed_more();
                          }});
    submitted_ += bytes;
  }
}

// Feeds one piece at a time, in order, on the executor.
void ExtentReader::feed_more() {
  if (feeding_ || pieces_.empty() || !pieces_.front().here) return;
  feeding_ = true;
  Piece& piece = pieces_.front();
  on_executor(
      [this, &piece] {
        const uint64_t bytes = piece.memory.size();
        const uint64_t got = piece.got.ok() ? std::min(*piece.got, bytes) : 0;
        check_->feed(piece.memory.first(got));
        if (got < bytes) {
          check_->skip(
              bytes - got, piece.got.ok() ? "the file ends here" : piece.got.error().message,
              piece.got.ok() ? ExtentCheck::Missing::kLost : missing_by(piece.got.error()));
        }
      },
      &ExtentReader::piece_fed);
}

void ExtentReader::piece_fed() {
  feeding_ = false;
  outcome_.bytes += pieces_.front().memory.size();
  spare_.push_back(std::move(pieces_.front().buffer));
  pieces_.pop_front();
  if (pieces_.empty() && submitted_ == check_->bytes()) {
    finish();
    return;
  }
  read_more();
  feed_more();
}

void ExtentReader::finish() {
  outcome_.findings = check_->finish();
  Outcome outcome = std::move(outcome_);
  release();
  const auto on_done = std::exchange(on_done_, nullptr);
  on_done(std::move(outcome));  // may start the next extent, or destroy this
}

void ExtentReader::stop(std::function<void()> on_stopped) {
  CKPT_ASSERT_MSG(!on_stopped_, "a reader is stopped twice");
  on_stopped_ = std::move(on_stopped);
  on_executor([] {}, nullptr);
}

void ExtentReader::finish_stop() {
  if (waiting_ > 0) return;
  release();
  on_done_ = nullptr;
  const auto on_stopped = std::exchange(on_stopped_, nullptr);
  on_stopped();  // may destroy this
}

// Closes the file between two extents, because a rate-limited reader would hold it for long. Keeps
// one buffer: allocating one for each of many small extents costs more than reading them.
void ExtentReader::release() {
  check_.reset();
  file_.reset();
  pieces_.clear();
  if (spare_.size() > 1) spare_.resize(1);
}

}  // namespace ckptd

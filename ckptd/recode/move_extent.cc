// Moves the current extent through its stages.
#include <algorithm>
#include <utility>

#include "ckptd/limits.h"
#include "ckptd/recode/recoder.h"
#include "formats/base/checked.h"

namespace ckptd {

namespace fb = ckpt::fb;

namespace {

uint64_t padded_bytes(uint64_t bytes) { return ckpt::base::align_up(bytes, ckpt::kBlockBytes); }

}  // namespace

void Recoder::read() {
  const fb::ExtentT& place = *commit_->record().extents[extent_];
  at_hand_ = {};
  at_hand_.from = commit_->expected(extent_);
  at_hand_.header_bytes = place.header_bytes;
  at_hand_.bytes = place.header_bytes + padded_bytes(place.payload_bytes);
  ExtentCheck check = commit_->check(extent_);
  at_hand_.raw = AlignedBuffer(check.bytes());
  if (commit_->info().deleted) {  // other parts may be reclaimed already
    at_hand_.bytes = place.header_bytes;
    for (const auto& fragment : at_hand_.from.fragments)
      at_hand_.bytes += padded_bytes(fragment.length);
  }
  stage_ = Stage::kRead;
  reader_.start(
      at_hand_.position(), std::move(check),
      [this](const ExtentReader::Outcome& outcome) { read_done(outcome); }, at_hand_.raw.bytes());
}

void Recoder::read_done(const ExtentReader::Outcome& outcome) {
  counters_.read_bytes += outcome.bytes;
  if (!outcome.file_damage.empty()) return leave(outcome.file_damage);
  if (!outcome.findings.empty()) return leave(outcome.findings.front().reason);
  at_hand_.encoder = std::make_unique<SlabEncoder>(
      ckpt::ByteView(at_hand_.raw.bytes()).subspan(at_hand_.header_bytes), at_hand_.from.fragments,
      encode_all(commit_->units()));
  stage_ = Stage::kEncode;
  encode();
}

// One step at a time, and none while others are busy, because the threads are shared.
void Recoder::encode() {
  if (!may_pass(0)) return;
  stage_ = Stage::kAway;
  encoding_ = true;
  auto stepped = std::make_shared<Status>();
  context_.executor.run(
      [this, stepped] {
        if (at_hand_.encoded.size() == 0) at_hand_.encoded = AlignedBuffer(at_hand_.raw.size());
        *stepped = at_hand_.encoder->step(limits::kEncodeStepBytes, at_hand_.encoded.bytes());
      },
      [this, stepped] {
        encoding_ = false;
        if (on_closed_) return std::exchange(on_closed_, nullptr)();
        encode_stepped(*stepped);
      });
}

void Recoder::encode_stepped(const Status& status) {
  if (!status.ok()) return leave(status.error().message);
  stage_ = Stage::kEncode;
  if (!at_hand_.encoder->done()) return encode();
  encoded();
}

void Recoder::encoded() {
  const SlabEncoder& encoder = *at_hand_.encoder;
  const size_t fragments = commit_->record().fragments.size() + encoder.fragments().size();
  at_hand_.to.fragments = encoder.fragments();
  at_hand_.to.payload_bytes = encoder.stored_bytes();
  const uint64_t bytes =
      ckpt::extent_header_bytes(at_hand_.to.fragments) + padded_bytes(at_hand_.to.payload_bytes);
  const bool gains = encoder.any() && fragments <= limits::kFragmentsPerSnapshotMax &&
                     bytes <= at_hand_.bytes - at_hand_.bytes / limits::kRecodeGain;
  if (!gains) return leave();
  at_hand_.to.payload = std::move(at_hand_.encoded);
  at_hand_.encoder.reset();
  at_hand_.raw = AlignedBuffer();
  stage_ = Stage::kWrite;
  write();
}

// If the disk has no room for both copies, waits until it has.
void Recoder::write() {
  const uint64_t bytes =
      ckpt::extent_header_bytes(at_hand_.to.fragments) + padded_bytes(at_hand_.to.payload_bytes);
  const uint64_t record_bytes =
      at_hand_.to.fragments.size() * (sizeof(fb::Fragment) + sizeof(fb::Encoded)) +
      limits::kMovedRecordBytes;
  if (!unchanged()) {
    drop_commit();
    return go_on();
  }
  if (!options_.may_record() || !may_pass(bytes)) return;
  if (!persist_.try_reserve(key(), bytes, record_bytes)) return;
  writing_ = true;
  stage_ = Stage::kAway;
  persist_.write_encoded(key(), at_hand_.from.rank, std::exchange(at_hand_.to, {}),
                         [this](const Result<WrittenExtent>& extent) { written(extent); });
}

void Recoder::written(const Result<WrittenExtent>& extent) {
  if (closed_) return;
  if (!extent.ok()) {
    give_up();
    return leave(extent.error().message);
  }
  at_hand_.written = *extent;
  counters_.written_bytes += extent->header_bytes + padded_bytes(extent->payload_bytes);
  stage_ = Stage::kReadBack;
  read_back();
}

// Checks the new extent before the old one is dropped: detects a lost or misdirected write.
void Recoder::read_back() {
  const WrittenExtent& to = *at_hand_.written;
  if (!persist_.is_readable(to.segment)) return;
  ckpt::ExtentHeader expected{.store = context_.segments.store(),
                              .segment = to.segment,
                              .offset = to.offset,
                              .snapshot = key(),
                              .rank = to.rank,
                              .payload_bytes = to.payload_bytes,
                              .payload_crc32c = to.payload_crc32c,
                              .fragments = to.fragments};
  stage_ = Stage::kCheck;
  reader_.start({to.segment, to.offset},
                ExtentCheck(std::move(expected), to.header_bytes, to.header_crc32c),
                [this](const ExtentReader::Outcome& outcome) { checked(outcome); });
}

void Recoder::checked(const ExtentReader::Outcome& outcome) {
  counters_.read_bytes += outcome.bytes;
  const bool holds = outcome.file_damage.empty() && outcome.findings.empty();
  if (!holds) {
    give_up();
    return leave("what was written of it is damaged: " + (outcome.findings.empty()
                                                              ? outcome.file_damage
                                                              : outcome.findings.front().reason));
  }
  stage_ = Stage::kRecord;
  record();
}

// Units of the commit, or the extent itself, may have been removed since the read.
bool Recoder::unchanged() const {
  const auto now = catalog_.commit(key().run, key().lineage, key().step);
  return now && now->sequence == commit_->info().sequence && now->snapshot == key() &&
         !now->damaged && now->deleted == commit_->info().deleted &&
         now->units == commit_->info().units;
}

ckpt::fb::RecordT Recoder::moved_record() const {
  fb::CommittedT listed;
  fill_extents({*at_hand_.written}, listed);
  fb::MovedT moved;
  moved.run = key().run;
  moved.lineage = key().lineage;
  moved.epoch = key().epoch;
  moved.step = key().step;
  moved.attempt = key().attempt;
  moved.time_ns = options_.wall_clock_ns();
  moved.from.emplace_back(at_hand_.from.segment, at_hand_.from.offset);
  moved.extents = std::move(listed.extents);
  moved.fragments = std::move(listed.fragments);
  moved.encoded = std::move(listed.encoded);
  fb::RecordT record;
  record.body.Set(std::move(moved));
  return record;
}

void Recoder::record() {
  if (!options_.may_record()) return;
  const bool same = unchanged();
  if (!same || !may_move()) {
    give_up();
    if (same) return leave();
    drop_commit();
    return go_on();
  }
  stage_ = Stage::kAway;
  recording_ = key().run;
  const auto record = std::make_shared<const fb::RecordT>(moved_record());
  persist_.commit(
      key(), [record] { return *record; },
      [this, record](const Result<uint64_t>& sequence) { recorded(*record, sequence); });
}

void Recoder::give_up() {
  persist_.abandon(key());
  writing_ = false;
}

void Recoder::recorded(const fb::RecordT& record, const Result<uint64_t>& sequence) {
  recording_.reset();
  writing_ = false;
  if (sequence.ok()) options_.on_moved(*sequence, record);
  if (closed_) return;
  if (!sequence.ok()) return leave(sequence.error().message);
  const WrittenExtent& to = *at_hand_.written;
  counters_.saved_bytes += at_hand_.bytes - (to.header_bytes + padded_bytes(to.payload_bytes));
  next_extent();
}

}  // namespace ckptd

#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/limits.h"
#include "ckptd/persist/persist.h"
#include "ckptd/safeguards.h"
#include "formats/base/checked.h"

namespace ckptd {

struct JournalWriter::Impl {
  struct Append {
    std::vector<ckpt::fb::RecordT> records;
    std::function<void(Result<uint64_t>)> on_durable;
  };
  struct Waiting {  // in the batch in flight
    uint64_t first_sequence = 0;
    std::function<void(Result<uint64_t>)> on_durable;
  };

  Impl(Disk& with_disk, FileId with_file, const ckpt::JournalEncoder::Position& position)
      : disk(with_disk), file(with_file), encoder(position), durable_end(position.offset) {}

  void start();
  void raise_version(uint64_t& sequence, std::vector<ckpt::fb::RecordT>& records);
  void reserve_ahead(uint64_t wanted);
  void take(uint64_t wanted, bool less_than_wanted);
  void refuse_batch(const ckpt::Error& error);
  void written(const Result<uint64_t>& result);
  void synced(const Result<uint64_t>& result);
  void fail(const ckpt::Error& error);
  void notify(const std::function<void(Result<uint64_t>)>& on_durable,
              const Result<uint64_t>& result) const;

  Disk& disk;
  const FileId file;
  ckpt::JournalEncoder encoder;
  uint64_t durable_end = 0;
  ckpt::JournalEncoder::Position before;  // position before the batch in flight
  std::deque<Append> queue;               // waiting for the batch in flight
  std::vector<Waiting> batch;             // in flight
  AlignedBuffer bytes;                    // bytes of that batch, aligned for O_DIRECT
  bool busy = false;
  bool unawaited = false;     // acknowledged before the sync; never set in ckptd
  uint64_t reserved_end = 0;  // space is allocated up to here
  bool reserving = false;
  bool disk_full = false;  // the last allocation got less than wanted, or nothing
  std::optional<ckpt::Error> failed;
  Deliver deliver;
  std::optional<StoreVersion> version;
  uint32_t raised_to = 0;  // version in the batch in flight
};

JournalWriter::JournalWriter(Disk& disk, FileId file,
                             const ckpt::JournalEncoder::Position& position)
    : impl_(std::make_unique<Impl>(disk, file, position)) {}

JournalWriter::~JournalWriter() {
  CKPT_ASSERT_MSG(in_flight() == 0, "the journal was closed with appends in flight");
}

void JournalWriter::append(std::vector<ckpt::fb::RecordT> records,
                           std::function<void(Result<uint64_t>)> on_durable) {
  CKPT_ASSERT(!records.empty());
  impl_->queue.push_back({std::move(records), std::move(on_durable)});
  if (!impl_->busy) impl_->start();
}

void JournalWriter::Impl::start() {
  busy = true;
  if (failed.has_value()) {
    // A sync that changes nothing delivers the refusal through reap(), as append() promises.
    disk.submit({.op = IoOp::kSync, .file = file, .on_done = [this](const Result<uint64_t>&) {
                   fail(*failed);
                 }});
    return;
  }
  reserve_ahead(limits::kJournalReserveBytes);
  std::vector<ckpt::fb::RecordT> records;
  before = encoder.position();
  uint64_t sequence = before.next_sequence;
  raise_version(sequence, records);
  for (Append& append : queue) {
    batch.push_back({sequence, std::move(append.on_durable)});
    sequence += append.records.size();
    std::move(append.records.begin(), append.records.end(), std::back_inserter(records));
  }
  queue.clear();
  unawaited = left_out(Safeguard::kTombstoneFirst) &&
              std::any_of(records.begin(), records.end(), [](const auto& record) {
                return record.body.type == ckpt::fb::RecordBody::Deleted;
              });
  const ckpt::JournalEncoder::Batch encoded = encoder.encode(records);
  bytes = AlignedBuffer(encoded.bytes.size());
  std::copy(encoded.bytes.begin(), encoded.bytes.end(), bytes.bytes().begin());
  disk.submit({.op = IoOp::kWrite,
               .file = file,
               .offset = encoded.offset,
               .memory = bytes.bytes(),
               .on_done = [this](const Result<uint64_t>& result) { written(result); }});
}

// Puts a StoreOpened before the queued records, if one of them needs a newer version.
void JournalWriter::Impl::raise_version(uint64_t& sequence,
                                        std::vector<ckpt::fb::RecordT>& records) {
  raised_to = 0;
  if (!version) return;
  uint32_t needed = version->least;
  for (const Append& append : queue) {
    for (const auto& record : append.records) {
      needed = std::max(needed, ckpt::store_version_of(record));
    }
  }
  if (needed <= version->version) return;
  raised_to = needed;
  records.push_back(version->make_record(needed));
  batch.push_back({sequence, [this, record = records.back()](const Result<uint64_t>& written_at) {
                     if (written_at.ok()) version->on_raised(*written_at, record);
                   }});
  ++sequence;
}

// Allocates space for later records: `wanted` bytes from the end, or less on a full disk.
void JournalWriter::Impl::reserve_ahead(uint64_t wanted) {
  if (reserving || reserved_end >= encoder.position().offset + wanted / 2) return;
  take(wanted, false);
}

void JournalWriter::Impl::take(uint64_t wanted, bool less_than_wanted) {
  wanted = ckpt::base::align_up(wanted, ckpt::kBlockBytes);  // records have any size
  const uint64_t end = encoder.position().offset;
  reserving = true;
  disk.submit({.op = IoOp::kAllocate,
               .file = file,
               .offset = end,
               .bytes = wanted,
               .on_done = [=, this](const Result<uint64_t>& result) {
                 reserving = false;
                 const bool full =
                     !result.ok() && result.error().code == ckpt::ErrorCode::kResourceExhausted;
                 disk_full = full || (result.ok() && less_than_wanted);
                 if (result.ok()) reserved_end = std::max(reserved_end, end + wanted);
                 if (full && wanted > limits::kJournalReserveMin) take(wanted / 2, true);
               }});
}

// Fails only this batch: its bytes are not synced, and the next batch overwrites them.
void JournalWriter::Impl::refuse_batch(const ckpt::Error& error) {
  if (!left_out(Safeguard::kRefusedAgain)) encoder = ckpt::JournalEncoder(before);
  busy = false;
  disk_full = true;
  reserved_end = before.offset;
  const auto space = disk.space();
  const ckpt::Error full =
      space.ok() ? disk_full_error({.space = *space}, error, ckpt::ErrorDetail::kJournalFull)
                 : error;
  const std::vector<Waiting> refused = std::exchange(batch, {});
  if (!queue.empty()) start();
  for (const Waiting& waiting : refused) notify(waiting.on_durable, full);
}

void JournalWriter::Impl::written(const Result<uint64_t>& result) {
  if (!result.ok() && result.error().code == ckpt::ErrorCode::kResourceExhausted) {
    refuse_batch(result.error());
    return;
  }
  if (!result.ok()) {
    fail(result.error());
    return;
  }
  if (unawaited) {
    synced(result);
    return;
  }
  disk.submit({.op = IoOp::kSync, .file = file, .on_done = [this](const Result<uint64_t>& done) {
                 synced(done);
               }});
}

void JournalWriter::Impl::synced(const Result<uint64_t>& result) {
  if (!result.ok()) {
    fail(result.error());
    return;
  }
  busy = false;
  if (raised_to > 0) version->version = raised_to;
  durable_end = encoder.position().offset;
  const std::vector<Waiting> durable = std::exchange(batch, {});
  // Start the next batch before the callbacks, so that the disk does not wait for them.
  if (!queue.empty()) start();
  for (const Waiting& waiting : durable) {
    notify(waiting.on_durable, waiting.first_sequence);
  }
}

// The kernel's state of the failed batch is unknown, and the kernel reports the failure only once:
// no record may follow the batch in this file.
void JournalWriter::Impl::fail(const ckpt::Error& error) {
  if (!failed.has_value()) {
    failed = ckpt::make_error(error.code, "the journal is closed for writing: {}; restart ckptd",
                              error.message);
    spdlog::error("{}: nothing is committed until then", failed->message);
  }
  busy = false;
  std::vector<std::function<void(Result<uint64_t>)>> refused;
  refused.reserve(batch.size() + queue.size());
  for (Waiting& waiting : batch) refused.push_back(std::move(waiting.on_durable));
  for (Append& append : queue) refused.push_back(std::move(append.on_durable));
  batch.clear();
  queue.clear();
  for (const auto& on_durable : refused) notify(on_durable, *failed);
}

void JournalWriter::Impl::notify(const std::function<void(Result<uint64_t>)>& on_durable,
                                 const Result<uint64_t>& result) const {
  if (!on_durable) return;
  if (!deliver) return on_durable(result);
  deliver([on_durable, result] { on_durable(result); });
}

void JournalWriter::set_store_version(StoreVersion version) { impl_->version = std::move(version); }

void JournalWriter::set_deliver(Deliver deliver) { impl_->deliver = std::move(deliver); }

size_t JournalWriter::in_flight() const {
  return impl_->batch.size() + impl_->queue.size() + (impl_->busy && impl_->batch.empty() ? 1 : 0) +
         (impl_->reserving ? 1 : 0);
}

Status JournalWriter::health() const {
  if (impl_->failed.has_value()) return *impl_->failed;
  return {};
}

namespace {

// Space to allocate ahead for `bytes` of promised records.
uint64_t bytes_ahead(uint64_t bytes) {
  return std::max(limits::kJournalReserveBytes, 2 * (limits::kJournalReserveMin + bytes));
}

}  // namespace

bool JournalWriter::has_room(uint64_t bytes) {
  impl_->reserve_ahead(bytes_ahead(bytes));
  return !lacks_room(bytes);
}

bool JournalWriter::lacks_room(uint64_t bytes) const {
  const uint64_t needed = limits::kJournalReserveMin + bytes;
  if (!impl_->disk_full || impl_->reserved_end >= impl_->encoder.position().offset + needed) {
    return false;
  }
  // `disk_full` may be old: check whether the disk has space now.
  const auto space = impl_->disk.space();
  return !space.ok() || space->free_bytes < bytes_ahead(bytes);
}

uint64_t JournalWriter::bytes() const { return impl_->encoder.position().offset; }
uint64_t JournalWriter::durable_bytes() const { return impl_->durable_end; }

}  // namespace ckptd

#include <deque>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/persist/persist.h"

namespace ckptd {

struct JournalWriter::Impl {
  struct Append {
    std::vector<ckpt::fb::RecordT> records;
    std::function<void(Result<uint64_t>)> on_durable;
  };
  struct Waiting {  // in the batch that is being written
    uint64_t first_sequence = 0;
    std::function<void(Result<uint64_t>)> on_durable;
  };

  Impl(Disk& with_disk, FileId with_file, const ckpt::JournalEncoder::Position& position)
      : disk(with_disk), file(with_file), encoder(position) {}

  void start();
  void written(const Result<uint64_t>& result);
  void synced(const Result<uint64_t>& result);
  void fail(const ckpt::Error& error);

  Disk& disk;
  const FileId file;
  ckpt::JournalEncoder encoder;
  std::deque<Append> queue;    // wait for the batch in flight
  std::vector<Waiting> batch;  // in flight
  AlignedBuffer bytes;         // of that batch: O_DIRECT needs it aligned
  bool busy = false;
  std::optional<ckpt::Error> failed;
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
    // A sync that changes nothing brings the refusal back through reap(), as promised.
    disk.submit({.op = IoOp::kSync, .file = file, .on_done = [this](const Result<uint64_t>&) {
                   fail(*failed);
                 }});
    return;
  }
  std::vector<ckpt::fb::RecordT> records;
  uint64_t sequence = encoder.position().next_sequence;
  for (Append& append : queue) {
    batch.push_back({sequence, std::move(append.on_durable)});
    sequence += append.records.size();
    std::move(append.records.begin(), append.records.end(), std::back_inserter(records));
  }
  queue.clear();
  const ckpt::JournalEncoder::Batch encoded = encoder.encode(records);
  bytes = AlignedBuffer(encoded.bytes.size());
  std::copy(encoded.bytes.begin(), encoded.bytes.end(), bytes.bytes().begin());
  disk.submit({.op = IoOp::kWrite,
               .file = file,
               .offset = encoded.offset,
               .memory = bytes.bytes(),
               .on_done = [this](const Result<uint64_t>& result) { written(result); }});
}

void JournalWriter::Impl::written(const Result<uint64_t>& result) {
  if (!result.ok()) {
    fail(result.error());
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
  const std::vector<Waiting> durable = std::exchange(batch, {});
  // The next batch goes out before the callbacks: the disk need not wait for them.
  if (!queue.empty()) start();
  for (const Waiting& waiting : durable) {
    if (waiting.on_durable) waiting.on_durable(waiting.first_sequence);
  }
}

// What the kernel has of the failed batch is unknown, and it tells of the failure only once: no
// record may follow it in this file.
void JournalWriter::Impl::fail(const ckpt::Error& error) {
  if (!failed.has_value()) {
    failed = ckpt::make_error(error.code, "the journal is closed for writing: {}", error.message);
  }
  busy = false;
  std::vector<std::function<void(Result<uint64_t>)>> refused;
  for (Waiting& waiting : batch) refused.push_back(std::move(waiting.on_durable));
  for (Append& append : queue) refused.push_back(std::move(append.on_durable));
  batch.clear();
  queue.clear();
  for (const auto& on_durable : refused) {
    if (on_durable) on_durable(*failed);
  }
}

size_t JournalWriter::in_flight() const {
  return impl_->batch.size() + impl_->queue.size() + (impl_->busy && impl_->batch.empty() ? 1 : 0);
}

uint64_t JournalWriter::bytes() const { return impl_->encoder.position().offset; }

}  // namespace ckptd

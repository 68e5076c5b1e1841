// Requests on the memory disk: their order, execution and faults.
#include <algorithm>

#include "ckptd/io/memory_disk_impl.h"
#include "ckptd/io/posix_files.h"
#include "formats/base/checked.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using ckpt::make_error;

void MemoryDisk::submit(IoRequest request) {
  if (request.op == IoOp::kAllocate || request.op == IoOp::kPunch) {
    CKPT_ASSERT(request.offset % kBlockBytes == 0 && request.bytes % kBlockBytes == 0);
  } else if (request.op != IoOp::kSync) {
    CKPT_ASSERT(request.offset % kBlockBytes == 0 && request.memory.size() % kBlockBytes == 0);
  }
  if (request.buffer.has_value()) {
    const auto buffer = impl_->buffers.find(*request.buffer);
    CKPT_ASSERT_MSG(buffer != impl_->buffers.end(), "I/O from a buffer that is not registered");
    const MutableByteView whole = buffer->second;
    CKPT_ASSERT(request.memory.data() >= whole.data() &&
                request.memory.data() + request.memory.size() <= whole.data() + whole.size());
  }
  (void)impl_->at(request.file);
  impl_->pending.push_back({std::move(request), impl_->write_sequence, 0});
}

// Target of a misdirected write: an earlier write's place or, at times, one block further.
uint64_t MemoryDisk::Impl::wrong_place(const OpenFile& open_file, uint64_t offset) {
  const auto& places = open_file.written_at;
  const uint64_t place =
      places.empty() || random() % 4 == 0 ? offset : places[random() % places.size()];
  return place == offset ? offset + kBlockBytes : place;
}

void MemoryDisk::Impl::write_bytes(OpenFile& open_file, uint64_t offset, ByteView bytes) {
  const bool hit = faulty(open_file.path);
  open_file.written_at.push_back(offset);
  if (hit && chance(faults.lost_write)) return;
  if (hit && chance(faults.misdirected_write)) offset = wrong_place(open_file, offset);
  std::vector<std::byte> changed;
  if (hit && chance(faults.torn_write) && !bytes.empty()) {
    // A prefix of 512-byte sectors arrives; the rest of the range keeps its old bytes.
    changed.resize(bytes.size());
    open_file.file->read(offset, changed);
    const size_t sectors = random() % (bytes.size() / 512);
    std::copy_n(bytes.begin(), sectors * 512, changed.begin());
    bytes = changed;
  }
  if (hit && chance(faults.flipped_write) && !bytes.empty()) {
    changed.assign(bytes.begin(), bytes.end());
    changed[random() % changed.size()] ^= std::byte{1} << (random() % 8);
    bytes = changed;
  }
  open_file.file->write(offset, bytes, ++write_sequence);
}

std::optional<Result<uint64_t>> MemoryDisk::Impl::apply_write(OpenFile& open_file,
                                                              Pending& waiting) {
  const IoRequest& request = waiting.request;
  const bool hit = faulty(open_file.path);
  if (waiting.done == 0 && hit) ++writes_seen;
  if (waiting.done == 0 && hit && writes_seen == faults.fail_nth_write) {
    return make_error(ErrorCode::kIo, "{}: write of {} bytes at offset {}: Input/output error",
                      open_file.path, request.memory.size(), request.offset);
  }
  ByteView rest = ByteView(request.memory).subspan(waiting.done);
  const uint64_t end = request.offset + request.memory.size();
  const uint64_t allocated = open_file.file->allocated_end();
  const bool full = waiting.done == 0 && hit && writes_seen == faults.full_nth_write;
  if (full || (end > allocated && used_bytes() + (end - allocated) > options.capacity_bytes)) {
    return make_error(ErrorCode::kResourceExhausted,
                      "{}: write of {} bytes at offset {}: No space left on device", open_file.path,
                      request.memory.size(), request.offset);
  }
  if (hit && rest.size() > kBlockBytes && chance(faults.short_write)) {
    const uint64_t blocks = rest.size() / kBlockBytes;
    rest = rest.first((1 + random() % (blocks - 1)) * kBlockBytes);
  }
  write_bytes(open_file, request.offset + waiting.done, rest);
  waiting.done += rest.size();
  if (waiting.done < request.memory.size()) return std::nullopt;
  return Result<uint64_t>(waiting.done);
}

Result<uint64_t> MemoryDisk::Impl::apply_allocation(const OpenFile& open_file,
                                                    const IoRequest& request) {
  const uint64_t end = request.offset + request.bytes;
  const uint64_t allocated = open_file.file->allocated_end();
  if (end <= allocated) return 0;
  if (used_bytes() + (end - allocated) > options.capacity_bytes) {
    return make_error(ErrorCode::kResourceExhausted,
                      "{}: allocation of {} bytes at offset {}: No space left on device",
                      open_file.path, request.bytes, request.offset);
  }
  open_file.file->allocate(end);
  return 0;
}

std::optional<Result<uint64_t>> MemoryDisk::Impl::apply(Pending& waiting) {
  const IoRequest& request = waiting.request;
  OpenFile& open_file = at(request.file);
  const bool hit = faulty(open_file.path);
  switch (request.op) {
    case IoOp::kWrite:
      return apply_write(open_file, waiting);
    case IoOp::kRead:
      if (hit && ++reads_seen == faults.fail_nth_read) {
        return make_error(ErrorCode::kIo, "{}: read of {} bytes at offset {}: Input/output error",
                          open_file.path, request.memory.size(), request.offset);
      }
      if (refuses(open_file.path, faults.refused_read)) {
        return errno_error(faults.refusal,
                           fmt::format("{}: read of {} bytes at offset {}", open_file.path,
                                       request.memory.size(), request.offset));
      }
      return Result<uint64_t>(open_file.file->read(request.offset, request.memory));
    case IoOp::kSync:
      if (hit && ++syncs_seen == faults.fail_nth_sync) {
        return make_error(ErrorCode::kIo, "{}: sync: Input/output error", open_file.path);
      }
      open_file.file->sync(waiting.sequence);
      if (!is_named(open_file)) return lost_name_error(open_file.path, "cp");
      return Result<uint64_t>(0);
    case IoOp::kAllocate:
      return apply_allocation(open_file, request);
    case IoOp::kPunch:
      open_file.file->punch(request.offset, request.bytes, ++write_sequence);
      return Result<uint64_t>(0);
  }
  return std::nullopt;
}

size_t MemoryDisk::reap() {
  CKPT_ASSERT_MSG(!impl_->reaping, "reap() called from a completion");
  if (impl_->pending.empty()) return 0;
  const size_t rounds = 1 + impl_->random() % impl_->pending.size();
  struct Finished {
    std::function<void(Result<uint64_t>)> on_done;
    Result<uint64_t> result;
  };
  std::vector<Finished> finished;
  // Short writes take a turn without finishing: repeat until one request is done.
  for (size_t round = 0; (round < rounds || finished.empty()) && !impl_->pending.empty(); ++round) {
    const size_t pick = impl_->random() % impl_->pending.size();
    auto outcome = impl_->apply(impl_->pending[pick]);
    if (!outcome.has_value()) continue;
    std::swap(impl_->pending[pick], impl_->pending.back());
    note_end(impl_->pending.back().request.op, outcome->ok());
    finished.push_back({std::move(impl_->pending.back().request.on_done), *std::move(outcome)});
    impl_->pending.pop_back();
  }
  impl_->reaping = true;
  for (Finished& each : finished) {
    if (each.on_done) each.on_done(std::move(each.result));
  }
  impl_->reaping = false;
  return finished.size();
}

}  // namespace ckptd

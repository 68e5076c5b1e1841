#include "ckptd/restore/segment_reader.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/limits.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

using Then = std::function<void(Result<SegmentHandle>)>;

}  // namespace

struct SegmentReader::Impl {
  struct OpenFile {
    SegmentHandle handle;
    uint64_t last_used = 0;
  };
  // A file whose header is being read, and the callbacks that wait for it.
  struct Opening {
    FileId file = 0;
    AlignedBuffer header{ckpt::kBlockBytes};
    std::vector<Then> waiting;
  };

  Impl(Disk& with_disk, const ckpt::base::Hash128& of_store) : disk(with_disk), store(of_store) {}

  Disk& disk;
  const ckpt::base::Hash128 store;
  std::map<ckpt::SegmentId, OpenFile> files;
  std::map<ckpt::SegmentId, Opening> opening;
  std::map<ckpt::SegmentId, std::string> header_damages;
  uint64_t clock = 0;

  void begin_open(ckpt::SegmentId segment, Then then);
  void header_read(ckpt::SegmentId segment, const Result<uint64_t>& bytes);
  static Result<ckpt::SegmentHeader> read_header(const Result<uint64_t>& bytes,
                                                 ckpt::ByteView block);
  Status check_header(ckpt::SegmentId segment, const ckpt::SegmentHeader& header) const;
  size_t close_unused(size_t most);
};

SegmentReader::SegmentReader(Disk& disk, const ckpt::base::Hash128& store)
    : impl_(std::make_unique<Impl>(disk, store)) {}

SegmentReader::~SegmentReader() {
  CKPT_ASSERT(impl_->opening.empty());
  for (const auto& [segment, file] : impl_->files) {
    CKPT_ASSERT_MSG(file.handle.use_count() == 1, "a segment is still being read");
    impl_->disk.close(*file.handle);
  }
}

std::string SegmentReader::header_damage(ckpt::SegmentId segment) const {
  const auto found = impl_->header_damages.find(segment);
  return found == impl_->header_damages.end() ? std::string() : found->second;
}

bool SegmentReader::close(ckpt::SegmentId segment) {
  if (impl_->opening.contains(segment)) return false;
  const auto found = impl_->files.find(segment);
  if (found == impl_->files.end()) return true;
  if (found->second.handle.use_count() > 1) return false;
  impl_->disk.close(*found->second.handle);
  impl_->files.erase(found);
  return true;
}

const ckpt::base::Hash128& SegmentReader::store() const { return impl_->store; }

void SegmentReader::open(ckpt::SegmentId segment, Then then) {
  if (const auto found = impl_->files.find(segment); found != impl_->files.end()) {
    found->second.last_used = ++impl_->clock;
    const SegmentHandle handle = found->second.handle;
    then(handle);
    return;
  }
  if (const auto found = impl_->opening.find(segment); found != impl_->opening.end()) {
    found->second.waiting.push_back(std::move(then));
    return;
  }
  impl_->begin_open(segment, std::move(then));
}

void SegmentReader::Impl::begin_open(ckpt::SegmentId segment, Then then) {
  const Disk::OpenOptions options{.create = false, .direct = true};
  auto file = disk.open(segment_path(segment), options);
  // Perhaps out of descriptors: close files without readers.
  if (!file.ok() && file.error().code == ErrorCode::kUnavailable && close_unused(0) > 0) {
    file = disk.open(segment_path(segment), options);
  }
  if (!file.ok()) {
    const bool missing = file.error().code == ErrorCode::kNotFound;
    then(missing ? make_error(ErrorCode::kNotFound, "{}", missing_reason(segment))
                 : file.error());  // names the file
    return;
  }
  Opening& entry = opening[segment];
  entry.file = *file;
  entry.waiting.push_back(std::move(then));
  disk.submit(
      {.op = IoOp::kRead,
       .file = *file,
       .offset = 0,
       .memory = entry.header.bytes(),
       .on_done = [this, segment](const Result<uint64_t>& bytes) { header_read(segment, bytes); }});
}

// The decoded header, or why it is damaged.
Result<ckpt::SegmentHeader> SegmentReader::Impl::read_header(const Result<uint64_t>& bytes,
                                                             ckpt::ByteView block) {
  CKPT_TRY(bytes);
  return ckpt::decode_segment_header(block.first(std::min<uint64_t>(*bytes, block.size())));
}

Status SegmentReader::Impl::check_header(ckpt::SegmentId segment,
                                         const ckpt::SegmentHeader& header) const {
  if (header.store != store) {
    return make_error(ErrorCode::kCorrupt, "segment {}: belongs to store {}, not {}", segment,
                      ckpt::base::to_hex(header.store), ckpt::base::to_hex(store));
  }
  if (header.segment != segment) {
    return make_error(ErrorCode::kCorrupt, "segment {}: its header says segment {}", segment,
                      header.segment);
  }
  return {};
}

void SegmentReader::Impl::header_read(ckpt::SegmentId segment, const Result<uint64_t>& bytes) {
  auto node = opening.extract(segment);
  Opening& entry = node.mapped();
  const auto header = read_header(bytes, entry.header.bytes());
  Status checked = header.ok() ? check_header(segment, *header) : Status();
  // The system refused the read: the state of the header is unknown.
  if (!bytes.ok() && !is_data_loss(bytes.error())) checked = bytes.error();
  if (!checked.ok()) {
    disk.close(entry.file);
    for (const Then& then : entry.waiting) then(checked.error());
    return;
  }
  header_damages.erase(segment);
  if (!header.ok()) {
    header_damages[segment] = header.error().message;
    spdlog::warn("segment {}: its header is damaged, its extents are checked by themselves: {}",
                 segment, header.error().message);
  }
  const auto handle = std::make_shared<const FileId>(entry.file);
  files[segment] = {handle, ++clock};
  close_unused(limits::kSegmentFilesOpenMax);
  for (const Then& then : entry.waiting) then(handle);
}

// Closes files without readers, the least recently used first, until `most` are open. Returns the
// number of closed files.
size_t SegmentReader::Impl::close_unused(size_t most) {
  const size_t before = files.size();
  while (files.size() > most) {
    auto oldest = files.end();
    for (auto file = files.begin(); file != files.end(); ++file) {
      if (file->second.handle.use_count() > 1) continue;  // a handle is held
      if (oldest == files.end() || file->second.last_used < oldest->second.last_used) {
        oldest = file;
      }
    }
    if (oldest == files.end()) break;
    disk.close(*oldest->second.handle);
    files.erase(oldest);
  }
  return before - files.size();
}

Result<std::vector<std::byte>> SegmentReader::read_header(ckpt::SegmentId segment, uint64_t offset,
                                                          uint32_t header_bytes) {
  if (header_bytes == 0 || header_bytes > ckpt::kExtentHeaderBytesMax) {
    return make_error(ErrorCode::kCorrupt, "a header of {} bytes", header_bytes);
  }
  std::optional<Result<SegmentHandle>> handle;
  open(segment, [&](Result<SegmentHandle> opened) { handle.emplace(std::move(opened)); });
  while (!handle) {
    impl_->disk.wait();
    impl_->disk.reap();
  }
  if (!handle->ok()) return handle->error();
  AlignedBuffer buffer(header_bytes);
  const auto bytes = read_blocking(impl_->disk, *handle->value(), offset, buffer.bytes());
  if (!bytes.ok()) return bytes.error();
  if (*bytes < header_bytes) {
    return make_error(ErrorCode::kCorrupt, "the file ends inside the extent header");
  }
  const auto view = buffer.bytes().first(header_bytes);
  return std::vector<std::byte>(view.begin(), view.end());
}

}  // namespace ckptd

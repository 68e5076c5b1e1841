#include "ckptd/io/memory_disk.h"

#include <algorithm>
#include <random>
#include <unordered_map>

#include "ckptd/io/memory_file.h"
#include "formats/base/checked.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using ckpt::make_error;

namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

// A set of names with what of it survives a crash: names as of the last sync of their directory.
using Names = std::map<std::string, std::shared_ptr<MemoryFile>>;  // null: a directory

}  // namespace

struct MemoryDisk::Impl {
  struct OpenFile {
    std::string path;
    std::shared_ptr<MemoryFile> file;
  };
  struct Pending {
    IoRequest request;
    uint64_t sequence = 0;  // of the newest completed write when it was submitted (kSync)
    uint64_t done = 0;      // bytes applied so far (after a short write)
  };

  explicit Impl(const Options& with) : options(with), random(with.seed) {}

  uint64_t used_bytes() const;
  bool chance(double probability) {
    return probability > 0 && std::uniform_real_distribution<double>(0, 1)(random) < probability;
  }
  bool faulty(const std::string& path) const { return path.starts_with(faults.path_prefix); }
  // Applies the request; nullopt if it goes on later (a short write).
  std::optional<Result<uint64_t>> apply(Pending& pending);
  std::optional<Result<uint64_t>> apply_write(const OpenFile& open_file, Pending& pending);
  Result<uint64_t> apply_allocation(const OpenFile& open_file, const IoRequest& request);
  void write_bytes(const OpenFile& open_file, uint64_t offset, ByteView bytes);
  OpenFile& at(FileId id) {
    const auto found = open_files.find(id);
    CKPT_ASSERT_MSG(found != open_files.end(), "I/O on a file that is not open");
    return found->second;
  }

  Options options;
  std::mt19937_64 random;
  MemoryFaults faults;
  uint64_t writes_seen = 0;
  uint64_t reads_seen = 0;
  uint64_t syncs_seen = 0;
  Names names;
  Names durable_names;
  std::unordered_map<FileId, OpenFile> open_files;
  FileId next_file = 1;
  std::map<BufferId, MutableByteView> buffers;
  BufferId next_buffer = 1;
  std::vector<Pending> pending;
  uint64_t write_sequence = 0;  // completed writes
  bool reaping = false;
};

MemoryDisk::MemoryDisk(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
MemoryDisk::MemoryDisk(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MemoryDisk::~MemoryDisk() = default;

uint64_t MemoryDisk::Impl::used_bytes() const {
  uint64_t used = 0;
  for (const auto& [path, file] : names) {
    if (file != nullptr) used += file->allocated_bytes();
  }
  return used;
}

void MemoryDisk::set_faults(const MemoryFaults& faults) {
  impl_->faults = faults;
  impl_->writes_seen = impl_->reads_seen = impl_->syncs_seen = 0;
}

void MemoryDisk::set_capacity(uint64_t bytes) { impl_->options.capacity_bytes = bytes; }

std::unique_ptr<MemoryDisk> MemoryDisk::crash(uint64_t seed) const {
  Options options = impl_->options;
  options.seed = seed;
  auto image = std::make_unique<Impl>(options);
  // What was in flight may have reached the platter in part: applied to a copy, unsynced.
  std::map<const MemoryFile*, std::shared_ptr<MemoryFile>> copies;
  auto copy_of = [&copies](const std::shared_ptr<MemoryFile>& file) {
    auto& copy = copies[file.get()];
    if (copy == nullptr) copy = std::make_shared<MemoryFile>(*file);
    return copy;
  };
  for (const Impl::Pending& pending : impl_->pending) {
    if (pending.request.op != IoOp::kWrite || image->random() % 2 == 0) continue;
    const auto copy = copy_of(impl_->at(pending.request.file).file);
    copy->write(pending.request.offset, pending.request.memory, impl_->write_sequence + 1);
  }
  Names possible = impl_->durable_names;
  for (const auto& [path, file] : impl_->names) {
    const bool durable = possible.count(path) != 0;
    if (durable || image->random() % 2 == 0) possible[path] = file;
  }
  for (const auto& [path, file] : impl_->durable_names) {
    // Removed, but the directory was not synced: it may be back.
    if (impl_->names.count(path) == 0 && image->random() % 2 == 0) possible.erase(path);
  }
  for (const auto& [path, file] : possible) {
    image->names[path] = file == nullptr
                             ? nullptr
                             : std::make_shared<MemoryFile>(copy_of(file)->crashed(image->random));
  }
  image->durable_names = image->names;
  return std::unique_ptr<MemoryDisk>(new MemoryDisk(std::move(image)));
}

std::unique_ptr<MemoryDisk> MemoryDisk::clone(uint64_t seed) const {
  Options options = impl_->options;
  options.seed = seed;
  auto image = std::make_unique<Impl>(options);
  for (const auto& [path, file] : impl_->names) {
    image->names[path] =
        file == nullptr ? nullptr : std::make_shared<MemoryFile>(file->as_written());
  }
  image->durable_names = image->names;
  return std::unique_ptr<MemoryDisk>(new MemoryDisk(std::move(image)));
}

void MemoryDisk::flip(std::string_view path, uint64_t offset, uint8_t bits) {
  const auto found = impl_->names.find(std::string(path));
  CKPT_ASSERT_MSG(found != impl_->names.end() && found->second != nullptr, path);
  found->second->flip(offset, bits);
}

Result<FileId> MemoryDisk::open(std::string_view path, const OpenOptions& options) {
  const std::string name(path);
  const std::string parent = parent_of(name);
  if (!parent.empty() && impl_->names.count(parent) == 0) {
    return make_error(ErrorCode::kNotFound, "{}: open: no such directory", name);
  }
  const auto found = impl_->names.find(name);
  const bool exists = found != impl_->names.end();
  if (exists && options.create) {
    return make_error(ErrorCode::kAlreadyExists, "{}: open: file exists", name);
  }
  if (!exists && !options.create) {
    return make_error(ErrorCode::kNotFound, "{}: open: no such file", name);
  }
  if (exists && found->second == nullptr) {
    return make_error(ErrorCode::kIo, "{}: open: is a directory", name);
  }
  auto file = exists ? found->second : std::make_shared<MemoryFile>();
  const uint64_t wanted = ckpt::base::align_up(options.preallocate_bytes, kBlockBytes);
  const uint64_t more = wanted > file->allocated_end() ? wanted - file->allocated_end() : 0;
  if (more > 0 && impl_->used_bytes() + more > impl_->options.capacity_bytes) {
    return make_error(ErrorCode::kResourceExhausted,
                      "{}: preallocating {} bytes: no space left on device", name, wanted);
  }
  if (options.preallocate_bytes > 0) file->preallocate(options.preallocate_bytes);
  impl_->names[name] = file;
  const FileId id = impl_->next_file++;
  impl_->open_files.emplace(id, Impl::OpenFile{name, std::move(file)});
  return id;
}

Result<Disk::NewFile> MemoryDisk::create_file(std::string_view path, uint64_t preallocate_bytes) {
  CKPT_ASSIGN(const FileId file,
              open(path, {.create = true, .preallocate_bytes = preallocate_bytes}));
  close(file);
  CKPT_TRY(sync_directory(parent_of(std::string(path))));
  return NewFile{.path = std::string(path), .fd = {}};
}

FileId MemoryDisk::adopt(NewFile file) { return open(file.path, {}).value(); }

void MemoryDisk::close(FileId file) { CKPT_ASSERT(impl_->open_files.erase(file) == 1); }

Result<uint64_t> MemoryDisk::read_now(FileId file, uint64_t offset, MutableByteView memory) {
  const Impl::OpenFile& open_file = impl_->at(file);
  if (impl_->faulty(open_file.path) && ++impl_->reads_seen == impl_->faults.fail_nth_read) {
    return make_error(ErrorCode::kIo, "{}: read of {} bytes at offset {}: Input/output error",
                      open_file.path, memory.size(), offset);
  }
  return open_file.file->read(offset, memory);
}

Result<uint64_t> MemoryDisk::size(FileId file) { return impl_->at(file).file->size(); }

Status MemoryDisk::truncate(FileId file, uint64_t bytes) {
  impl_->at(file).file->truncate(bytes);
  return {};
}

Result<std::vector<std::string>> MemoryDisk::list(std::string_view directory) {
  const std::string parent(directory);
  if (!parent.empty() && impl_->names.count(parent) == 0) {
    return make_error(ErrorCode::kNotFound, "{}: no such directory", parent);
  }
  std::vector<std::string> entries;
  for (const auto& [path, file] : impl_->names) {
    if (parent_of(path) != parent) continue;
    entries.push_back(parent.empty() ? path : path.substr(parent.size() + 1));
  }
  return entries;
}

Status MemoryDisk::make_directory(std::string_view path) {
  impl_->names.try_emplace(std::string(path), nullptr);
  return {};
}

Status MemoryDisk::remove(std::string_view path) {
  const auto found = impl_->names.find(std::string(path));
  if (found == impl_->names.end() || found->second == nullptr) {
    return make_error(ErrorCode::kNotFound, "{}: remove: no such file", path);
  }
  impl_->names.erase(found);
  return {};
}

Status MemoryDisk::sync_directory(std::string_view path) {
  const std::string parent(path);
  for (auto entry = impl_->durable_names.begin(); entry != impl_->durable_names.end();) {
    const bool gone = parent_of(entry->first) == parent && impl_->names.count(entry->first) == 0;
    entry = gone ? impl_->durable_names.erase(entry) : std::next(entry);
  }
  for (const auto& [name, file] : impl_->names) {
    if (parent_of(name) == parent) impl_->durable_names[name] = file;
  }
  return {};
}

Result<Disk::Space> MemoryDisk::space() {
  const uint64_t used = std::min(impl_->used_bytes(), impl_->options.capacity_bytes);
  return Space{.total_bytes = impl_->options.capacity_bytes,
               .free_bytes = impl_->options.capacity_bytes - used};
}

Result<BufferId> MemoryDisk::register_buffer(MutableByteView memory) {
  if (!impl_->options.allow_buffers) {
    return make_error(ErrorCode::kUnavailable, "the memory disk was told to refuse buffers");
  }
  impl_->buffers.emplace(impl_->next_buffer, memory);
  return impl_->next_buffer++;
}

void MemoryDisk::unregister_buffer(BufferId buffer) {
  CKPT_ASSERT(impl_->buffers.erase(buffer) == 1);
}

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

void MemoryDisk::Impl::write_bytes(const OpenFile& open_file, uint64_t offset, ByteView bytes) {
  const bool hit = faulty(open_file.path);
  if (hit && chance(faults.lost_write)) return;
  if (hit && chance(faults.misdirected_write)) offset += kBlockBytes;
  std::vector<std::byte> changed;
  if (hit && chance(faults.torn_write) && !bytes.empty()) {
    // A prefix of 512-byte sectors arrives; the rest of the range keeps what it had.
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

std::optional<Result<uint64_t>> MemoryDisk::Impl::apply_write(const OpenFile& open_file,
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
  const OpenFile& open_file = at(request.file);
  const bool hit = faulty(open_file.path);
  switch (request.op) {
    case IoOp::kWrite:
      return apply_write(open_file, waiting);
    case IoOp::kRead:
      if (hit && ++reads_seen == faults.fail_nth_read) {
        return make_error(ErrorCode::kIo, "{}: read of {} bytes at offset {}: Input/output error",
                          open_file.path, request.memory.size(), request.offset);
      }
      return Result<uint64_t>(open_file.file->read(request.offset, request.memory));
    case IoOp::kSync:
      if (hit && ++syncs_seen == faults.fail_nth_sync) {
        return make_error(ErrorCode::kIo, "{}: sync: Input/output error", open_file.path);
      }
      open_file.file->sync(waiting.sequence);
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
  // Short writes take a turn without finishing: go on until one request is done.
  for (size_t round = 0; (round < rounds || finished.empty()) && !impl_->pending.empty(); ++round) {
    const size_t pick = impl_->random() % impl_->pending.size();
    auto outcome = impl_->apply(impl_->pending[pick]);
    if (!outcome.has_value()) continue;
    std::swap(impl_->pending[pick], impl_->pending.back());
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

size_t MemoryDisk::in_flight() const { return impl_->pending.size(); }

}  // namespace ckptd

#include "ckptd/io/memory_disk.h"

#include <algorithm>

#include "ckptd/io/memory_disk_impl.h"
#include "ckptd/io/posix_files.h"
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

}  // namespace

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

// Keeps a prefix of the renames that no sync covers, like a journaling file system.
MemoryDisk::Impl::Names MemoryDisk::Impl::names_after_crash(std::mt19937_64& of_crash) const {
  Names left = durable_names;
  if (renames.empty()) return left;
  const size_t kept = of_crash() % (renames.size() + 1);
  for (size_t i = 0; i < kept; ++i) {
    const auto moved = left.extract(renames[i].first);
    if (!moved.empty()) left[renames[i].second] = moved.mapped();
  }
  return left;
}

bool MemoryDisk::Impl::renamed(const std::string& path) const {
  return std::any_of(renames.begin(), renames.end(), [&](const auto& rename) {
    return rename.first == path || rename.second == path;
  });
}

std::unique_ptr<MemoryDisk> MemoryDisk::crash(uint64_t seed) const {
  Options options = impl_->options;
  options.seed = seed;
  auto image = std::make_unique<Impl>(options);
  // Requests in flight may have reached the platter in part: applied to a copy, unsynced.
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
  const Impl::Names durable_names = impl_->names_after_crash(image->random);
  Impl::Names possible = durable_names;
  for (const auto& [path, file] : impl_->names) {
    if (impl_->renamed(path)) continue;
    const bool durable = possible.count(path) != 0;
    if (durable || image->random() % 2 == 0) possible[path] = file;
  }
  for (const auto& [path, file] : durable_names) {
    if (impl_->renamed(path)) continue;
    // A removal without a sync of the directory: the file may be back.
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

std::unique_ptr<MemoryDisk> MemoryDisk::after_kill(uint64_t seed) const {
  Options options = impl_->options;
  options.seed = seed;
  auto image = std::make_unique<Impl>(options);
  std::map<const MemoryFile*, std::shared_ptr<MemoryFile>> copies;
  const auto copy = [&copies](const Impl::Names& from, Impl::Names& to) {
    for (const auto& [path, file] : from) {
      auto& copied = copies[file.get()];
      if (file != nullptr && copied == nullptr) copied = std::make_shared<MemoryFile>(*file);
      to[path] = copied;
    }
  };
  copy(impl_->names, image->names);
  copy(impl_->durable_names, image->durable_names);
  image->renames = impl_->renames;
  image->write_sequence = impl_->write_sequence;
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
  if (exists && impl_->refuses(name, impl_->faults.refused_open)) {
    return errno_error(impl_->faults.refusal, fmt::format("{}: open", name));
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

FileId MemoryDisk::adopt(NewFile file) {
  const FileId id = impl_->next_file++;
  const auto found = impl_->names.find(file.path);
  CKPT_ASSERT_MSG(found != impl_->names.end(), file.path);
  impl_->open_files.emplace(id, Impl::OpenFile{file.path, found->second});
  return id;
}

void MemoryDisk::close(FileId file) { CKPT_ASSERT(impl_->open_files.erase(file) == 1); }

Result<uint64_t> MemoryDisk::read_now(FileId file, uint64_t offset, MutableByteView memory) {
  const Impl::OpenFile& open_file = impl_->at(file);
  if (impl_->faulty(open_file.path) && ++impl_->reads_seen == impl_->faults.fail_nth_read) {
    return make_error(ErrorCode::kIo, "{}: read of {} bytes at offset {}: Input/output error",
                      open_file.path, memory.size(), offset);
  }
  if (impl_->refuses(open_file.path, impl_->faults.refused_read)) {
    return errno_error(impl_->faults.refusal, fmt::format("{}: read of {} bytes at offset {}",
                                                          open_file.path, memory.size(), offset));
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

Status MemoryDisk::rename(std::string_view from, std::string_view to) {
  const std::string before(from);
  const std::string after(to);
  CKPT_ASSERT_MSG(impl_->names.count(after) == 0, "somebody has that name");
  const auto found = impl_->names.find(before);
  if (found == impl_->names.end() || found->second == nullptr) {
    return make_error(ErrorCode::kNotFound, "{}: rename: no such file", before);
  }
  for (auto& [id, open_file] : impl_->open_files) {
    if (open_file.path == before) open_file.path = after;
  }
  impl_->names[after] = found->second;
  impl_->names.erase(found);
  impl_->renames.emplace_back(before, after);
  return {};
}

Status MemoryDisk::sync_directory(std::string_view path) {
  const std::string parent(path);
  std::erase_if(impl_->renames,
                [&](const auto& rename) { return parent_of(rename.first) == parent; });
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

size_t MemoryDisk::in_flight() const { return impl_->pending.size(); }

}  // namespace ckptd

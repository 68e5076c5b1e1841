#include "ckptd/io/posix_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "formats/base/errno_code.h"
#include "formats/base/open_files.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::base::UniqueFd;

int fallocate_mode(IoOp op) {
  return op == IoOp::kPunch ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : FALLOC_FL_KEEP_SIZE;
}

ckpt::Error errno_error(int error, std::string_view what) {
  // EFBIG alone does not say which limit was reached.
  return make_error(
      ckpt::code_of_errno(error), "{}: {}{}", what, std::strerror(error),
      error == EFBIG ? " (limit for file sizes, ulimit -f)" : ckpt::base::open_files_hint(error));
}

namespace {

// Opening a FIFO would wait for its other end, and reading one for bytes. So paths of the store are
// opened without waiting (kNoWait), and anything but a regular file is an error.
constexpr int kNoWait = O_NONBLOCK | O_CLOEXEC;

// Then clears O_NONBLOCK: with the flag io_uring may return EAGAIN.
Status regular_file(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error(errno, fmt::format("{}: stat", path));
  if (!S_ISREG(info.st_mode)) {
    return make_error(ErrorCode::kFailedPrecondition, "{}: not a regular file", path);
  }
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return errno_error(errno, fmt::format("{}: flags", path));
  }
  return {};
}

}  // namespace

std::string mount_point_of(const std::string& directory) {
  const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(directory.c_str(), nullptr),
                                                        ::free);
  if (resolved == nullptr) return directory;
  std::string at = resolved.get();
  struct stat here {};
  if (::stat(at.c_str(), &here) != 0) return at;
  while (at != "/") {
    const std::string above = at.substr(0, std::max<size_t>(at.rfind('/'), 1));
    struct stat info {};
    if (::stat(above.c_str(), &info) != 0 || info.st_dev != here.st_dev) break;
    at = above;
  }
  return at;
}

PosixFiles::PosixFiles(std::string root) : root_(std::move(root)) {}

Status PosixFiles::open_root() {
  root_fd_.reset(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root_fd_.valid()) return errno_error(errno, fmt::format("data directory {}", root_));
  mount_point_ = mount_point_of(root_);
  return {};
}

Result<UniqueFd> PosixFiles::open_descriptor(const std::string& path, const OpenOptions& options) {
  const int flags = O_RDWR | kNoWait | (options.create ? O_CREAT | O_EXCL : 0);
  UniqueFd fd;
  if (options.direct) {
    fd.reset(::openat(root_fd_.get(), path.c_str(), flags | O_DIRECT, 0600));
    if (!fd.valid() && errno != EINVAL) return errno_error(errno, fmt::format("{}: open", path));
    // Some kernels create the file before they refuse the flag.
    if (!fd.valid() && options.create) ::unlinkat(root_fd_.get(), path.c_str(), 0);
  }
  const bool refused = options.direct && !fd.valid();
  if (!fd.valid()) fd.reset(::openat(root_fd_.get(), path.c_str(), flags, 0600));
  if (!fd.valid()) return errno_error(errno, fmt::format("{}: open", path));
  CKPT_TRY(regular_file(fd.get(), path));
  if (refused && !direct_refused_.exchange(true)) {
    spdlog::warn("{}: this file system refuses O_DIRECT; using buffered I/O", root_);
  }
  return fd;
}

Result<UniqueFd> PosixFiles::open_file(const std::string& name, const OpenOptions& options) {
  CKPT_ASSIGN(UniqueFd fd, open_descriptor(name, options));
  if (options.preallocate_bytes > 0 &&
      ::fallocate(fd.get(), 0, 0, static_cast<off_t>(options.preallocate_bytes)) != 0) {
    const int error = errno;
    // tmpfs on old kernels and some network file systems lack fallocate: use a sparse file.
    const bool sparse = error == EOPNOTSUPP &&
                        ::ftruncate(fd.get(), static_cast<off_t>(options.preallocate_bytes)) == 0;
    if (!sparse) {
      if (options.create) ::unlinkat(root_fd_.get(), name.c_str(), 0);
      return errno_error(
          error, fmt::format("{}: preallocating {} bytes", name, options.preallocate_bytes));
    }
  }
  return fd;
}

Result<FileId> PosixFiles::open(std::string_view path, const OpenOptions& options) {
  const std::string name(path);
  CKPT_ASSIGN(UniqueFd fd, open_file(name, options));
  return adopt({name, std::move(fd)});
}

Result<Disk::NewFile> PosixFiles::create_file(std::string_view path, uint64_t preallocate_bytes) {
  const std::string name(path);
  CKPT_ASSIGN(UniqueFd fd,
              open_file(name, {.create = true, .preallocate_bytes = preallocate_bytes}));
  const size_t slash = name.rfind('/');
  const Status named = sync_directory(slash == std::string::npos ? "" : name.substr(0, slash));
  if (!named.ok()) {
    (void)remove(name);
    return named.error();
  }
  return NewFile{name, std::move(fd)};
}

FileId PosixFiles::adopt(NewFile file) {
  const FileId id = next_file_++;
  files_.emplace(id, OpenFile{std::move(file.fd), std::move(file.path)});
  return id;
}

Result<UniqueFd> PosixFiles::share(std::string_view path) {
  const std::string name(path);
  UniqueFd fd(::openat(root_fd_.get(), name.c_str(), O_RDONLY | O_DIRECT | kNoWait));
  if (fd.valid()) {
    CKPT_TRY(regular_file(fd.get(), name));
    return fd;
  }
  if (errno == EINVAL) {
    // A path that is no regular file refuses O_DIRECT, too.
    const UniqueFd plain(::openat(root_fd_.get(), name.c_str(), O_RDONLY | kNoWait));
    if (plain.valid()) CKPT_TRY(regular_file(plain.get(), name));
    return make_error(ErrorCode::kUnavailable, "{}: this file system refuses O_DIRECT", name);
  }
  return errno_error(errno, fmt::format("{}: open", name));
}

void PosixFiles::close(FileId file) { CKPT_ASSERT(files_.erase(file) == 1); }

const PosixFiles::OpenFile& PosixFiles::file_at(FileId file) const {
  const auto found = files_.find(file);
  CKPT_ASSERT_MSG(found != files_.end(), "I/O on a file that is not open");
  return found->second;
}

int PosixFiles::descriptor(FileId file) const { return file_at(file).fd.get(); }

ckpt::Error PosixFiles::request_error(const IoRequest& request, int error) const {
  const bool of_space = request.op == IoOp::kAllocate || request.op == IoOp::kPunch;
  const char* operation = request.op == IoOp::kRead       ? "read"
                          : request.op == IoOp::kWrite    ? "write"
                          : request.op == IoOp::kAllocate ? "allocation"
                          : request.op == IoOp::kPunch    ? "giving back"
                                                          : "sync";
  return errno_error(
      error, fmt::format("{}: {} of {} bytes at offset {}", file_at(request.file).path, operation,
                         of_space ? request.bytes : request.memory.size(), request.offset));
}

Result<uint64_t> PosixFiles::synced(FileId file) const {
  struct stat open_file {};
  struct stat named {};
  const OpenFile& at = file_at(file);
  if (::fstat(at.fd.get(), &open_file) != 0) return errno_error(errno, at.path + ": stat");
  const bool is_there = ::fstatat(root_fd_.get(), at.path.c_str(), &named, 0) == 0;
  if (is_there && named.st_ino == open_file.st_ino && named.st_dev == open_file.st_dev) return 0;
  if (!is_there && errno != ENOENT && errno != ENOTDIR) {
    return errno_error(errno, at.path + ": stat");
  }
  return lost_name_error(
      at.path, fmt::format("cp /proc/{}/fd/{} {}/{}", ::getpid(), at.fd.get(), root_, at.path));
}

Result<uint64_t> PosixFiles::read_now(FileId file, uint64_t offset, MutableByteView memory) {
  const OpenFile& open_file = file_at(file);
  uint64_t done = 0;
  while (done < memory.size()) {
    const ssize_t got = ::pread(open_file.fd.get(), memory.data() + done, memory.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return errno_error(errno, fmt::format("{}: read of {} bytes at offset {}", open_file.path,
                                            memory.size(), offset));
    }
    done += static_cast<uint64_t>(got);
    // End of the file, which O_DIRECT may reach in the middle of a block.
    if (got == 0 || done % ckpt::kBlockBytes != 0) break;
  }
  return done;
}

Result<uint64_t> PosixFiles::size(FileId file) {
  struct stat info {};
  const OpenFile& open_file = file_at(file);
  if (::fstat(open_file.fd.get(), &info) != 0) return errno_error(errno, open_file.path);
  return static_cast<uint64_t>(info.st_size);
}

Status PosixFiles::truncate(FileId file, uint64_t bytes) {
  const OpenFile& open_file = file_at(file);
  if (::ftruncate(open_file.fd.get(), static_cast<off_t>(bytes)) != 0) {
    return errno_error(errno, fmt::format("{}: truncate to {} bytes", open_file.path, bytes));
  }
  return {};
}

Result<std::vector<std::string>> PosixFiles::list(std::string_view directory) {
  const std::string name = directory.empty() ? "." : std::string(directory);
  const int fd = ::openat(root_fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno_error(errno, name);
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
  if (stream == nullptr) {
    const int error = errno;
    ::close(fd);
    return errno_error(error, name);
  }
  std::vector<std::string> names;
  // readdir() returns null for the end and for errors; errno tells them apart.
  const dirent* entry = nullptr;
  while (errno = 0, (entry = ::readdir(stream.get())) != nullptr) {
    const std::string_view found(entry->d_name);
    if (found != "." && found != "..") names.emplace_back(found);
  }
  if (errno != 0) return errno_error(errno, fmt::format("{}: list", name));
  std::sort(names.begin(), names.end());
  return names;
}

Status PosixFiles::make_directory(std::string_view path) {
  const std::string name(path);
  if (::mkdirat(root_fd_.get(), name.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_error(errno, fmt::format("{}: mkdir", name));
  }
  return {};
}

Status PosixFiles::remove(std::string_view path) {
  const std::string name(path);
  if (::unlinkat(root_fd_.get(), name.c_str(), 0) != 0) {
    return errno_error(errno, fmt::format("{}: remove", name));
  }
  return {};
}

Status PosixFiles::rename(std::string_view from, std::string_view to) {
  const std::string before(from);
  const std::string after(to);
  if (::renameat(root_fd_.get(), before.c_str(), root_fd_.get(), after.c_str()) != 0) {
    return errno_error(errno, fmt::format("{}: rename to {}", before, after));
  }
  for (auto& [id, file] : files_) {
    if (file.path == before) file.path = after;
  }
  return {};
}

Status PosixFiles::sync_directory(std::string_view path) {
  const std::string name = path.empty() ? "." : std::string(path);
  const UniqueFd fd(::openat(root_fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) {
    return errno_error(errno, fmt::format("{}: sync of the directory", name));
  }
  return {};
}

Result<Disk::Space> PosixFiles::space() {
  struct statvfs info {};
  if (::fstatvfs(root_fd_.get(), &info) != 0) return errno_error(errno, root_);
  return Space{.total_bytes = uint64_t{info.f_blocks} * info.f_frsize,
               .free_bytes = uint64_t{info.f_bavail} * info.f_frsize,
               .directory = root_,
               .mount_point = mount_point_};
}

}  // namespace ckptd

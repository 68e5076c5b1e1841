// Disk: the only interface to segments and journal. Three implementations: io_uring, pwritev2, and
// a seeded in-memory disk that tears, loses, reorders, misdirects and flips writes on demand and
// drops unsynced bytes in a crash. One test body runs on all three.
//
// Paths are relative to the store's directory ("segments/000001.seg"). Directory operations are
// synchronous: they run at startup, or, for a file made under load, in create_file() on another
// thread. Reads, writes and syncs of file contents are asynchronous: submit() queues, reap() runs
// the completions. A completion never runs inside submit(). All calls but create_file() come from
// the loop thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

using ckpt::ByteView;
using ckpt::MutableByteView;
using ckpt::Result;
using ckpt::Status;

using FileId = uint32_t;  // an open file of this Disk; not reused

// A registered range of memory: pages pinned once, so that writes from it are zero-copy.
using BufferId = uint32_t;

// kAllocate reserves disk space for later bytes: it changes neither the file's contents nor its
// size. kPunch frees the space of a range: the range reads as zeros, the size stays; until the file
// is synced, a crash may restore the old bytes. kUnavailable if the file system does not support
// it.
// A kSync fails with kIo if another process has removed or replaced the file: its bytes would be
// lost when it is closed (lost_name_error() below).
enum class IoOp : uint8_t { kRead, kWrite, kSync, kAllocate, kPunch };

struct IoRequest {
  IoOp op = IoOp::kRead;
  FileId file = 0;
  uint64_t offset = 0;             // multiple of 4096; memory and length too
  MutableByteView memory;          // a kWrite only reads it
  uint64_t bytes = 0;              // kAllocate, kPunch: length from `offset`; a multiple of 4096
  std::optional<BufferId> buffer;  // `memory` lies in this registered buffer
  // Bytes moved, or the error. A read may be short at end of file. A write never is: the Disk
  // continues short writes. Runs in reap().
  std::function<void(Result<uint64_t>)> on_done;
};

class Disk {
 public:
  virtual ~Disk() = default;

  struct OpenOptions {
    bool create = false;  // fails with kAlreadyExists if the file exists
    bool direct = true;   // O_DIRECT; falls back if refused, logged once
    uint64_t preallocate_bytes = 0;
  };
  virtual Result<FileId> open(std::string_view path, const OpenOptions& options) = 0;
  // A file that was created and has no FileId yet. Dropping it closes it.
  struct NewFile {
    std::string path;
    ckpt::base::UniqueFd fd;
  };
  // Creates a file with a durable name: opens and preallocates it, syncs its directory. From any
  // thread, concurrently with calls of the loop thread; the disk must outlive the call. After an
  // error the file does not exist. adopt() then assigns the FileId.
  virtual Result<NewFile> create_file(std::string_view path, uint64_t preallocate_bytes) = 0;
  virtual FileId adopt(NewFile file) = 0;
  virtual void close(FileId file) = 0;
  // A descriptor of an existing file to pass to another process: opened anew, read-only, O_DIRECT.
  // kUnavailable if the file system refuses that.
  virtual Result<ckpt::base::UniqueFd> share(std::string_view path) = 0;
  // Like kRead, but synchronous, and no completion runs meanwhile: for readers that must see one
  // consistent state.
  virtual Result<uint64_t> read_now(FileId file, uint64_t offset, MutableByteView memory) = 0;
  virtual Result<uint64_t> size(FileId file) = 0;
  virtual Status truncate(FileId file, uint64_t bytes) = 0;
  // Names of the entries of a directory, sorted.
  virtual Result<std::vector<std::string>> list(std::string_view directory) = 0;
  virtual Status make_directory(std::string_view path) = 0;
  virtual Status remove(std::string_view path) = 0;
  // Renames a file that is not open to a name in the same directory that the caller knows is
  // unused. A crash leaves the old or the new name; sync_directory() makes the new one durable.
  virtual Status rename(std::string_view from, std::string_view to) = 0;
  virtual Status sync_directory(std::string_view path) = 0;
  struct Space {
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;
    // For messages: the store's directory and its file system. Empty: the disk is in memory.
    std::string directory;
    std::string mount_point;
  };
  virtual Result<Space> space() = 0;

  // Pins a range for zero-copy. kUnavailable if that is refused: the caller uses plain I/O.
  virtual Result<BufferId> register_buffer(MutableByteView memory) = 0;
  virtual void unregister_buffer(BufferId buffer) = 0;

  virtual void submit(IoRequest request) = 0;
  // Runs the pending completions; returns how many ran.
  virtual size_t reap() = 0;
  // Blocks until a completion is pending (nothing in flight: returns at once).
  virtual void wait() = 0;
  // Readable when reap() has work; -1 if the disk has no descriptor (in memory).
  virtual int event_fd() const = 0;
  virtual size_t in_flight() const = 0;
  virtual std::string_view engine_name() const = 0;  // "uring", "pwritev", "memory"

  // Failed writes and syncs since startup.
  uint64_t write_errors() const { return write_errors_; }

 protected:
  // Each engine calls this in reap(), for every finished request.
  void note_end(IoOp op, bool ok) {
    if (!ok && (op == IoOp::kWrite || op == IoOp::kSync)) ++write_errors_;
  }

 private:
  uint64_t write_errors_ = 0;
};

// True if this error of reading or opening a file means lost bytes: they were read and are wrong
// (kCorrupt), the disk cannot read them (kIo), or their file is missing (kNotFound). False: the
// system refused for another reason, such as permissions, descriptors or memory. The bytes may then
// be intact, and no caller may treat them as lost.
inline bool is_data_loss(const ckpt::Error& error) {
  return error.code == ckpt::ErrorCode::kCorrupt || error.code == ckpt::ErrorCode::kIo ||
         error.code == ckpt::ErrorCode::kNotFound;
}

// The error of a sync of a file that another process removed or replaced. `rescue`: the command
// that brings its bytes back while the daemon runs.
ckpt::Error lost_name_error(std::string_view path, std::string_view rescue);
bool is_lost_name(std::string_view message);

// Blocking helpers for startup and tools: submit, wait, reap.
Result<uint64_t> read_blocking(Disk& disk, FileId file, uint64_t offset, MutableByteView memory);
Status write_blocking(Disk& disk, FileId file, uint64_t offset, ByteView memory);
Status sync_blocking(Disk& disk, FileId file);

struct DiskOptions {
  std::string root;              // the store's directory; must exist
  std::string engine = "uring";  // or "pwritev"
};
// The requested engine; pwritev, with a warning, if io_uring is not allowed.
Result<std::unique_ptr<Disk>> open_disk(const DiskOptions& options);

}  // namespace ckptd

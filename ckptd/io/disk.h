// Disk: the one door to segments and journal. Three rooms behind it: io_uring, pwritev2, and a
// seeded in-memory disk that tears, loses, reorders, misdirects and flips on demand and forgets
// what was not synced. One test body runs on all three.
//
// Paths are relative to the store's directory ("segments/000001.seg"). Directory operations are
// synchronous: they happen at start, or, where a file is made under load, in create_file() on
// another thread. Reads, writes and syncs of file contents are asynchronous: submit() queues,
// reap() runs the completions. A completion never runs inside submit(). All calls but create_file()
// come from one thread, the loop thread.
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

// kAllocate takes space on the disk for bytes to come: it does not change what the file holds or
// its size. kPunch gives the space of a range back: it reads as zeros from then on, the size stays;
// a crash may bring the bytes back until the file is synced. kUnavailable where the file system
// cannot.
enum class IoOp : uint8_t { kRead, kWrite, kSync, kAllocate, kPunch };

struct IoRequest {
  IoOp op = IoOp::kRead;
  FileId file = 0;
  uint64_t offset = 0;             // multiple of 4096; memory and length too
  MutableByteView memory;          // for kWrite the bytes are only read
  uint64_t bytes = 0;              // kAllocate, kPunch: from `offset` on; a multiple of 4096
  std::optional<BufferId> buffer;  // `memory` lies in this registered buffer
  // Bytes moved (a read may be short at end of file, a write never is: the Disk continues short
  // writes), or the error. Runs in reap().
  std::function<void(Result<uint64_t>)> on_done;
};

class Disk {
 public:
  virtual ~Disk() = default;

  struct OpenOptions {
    bool create = false;  // fails with kAlreadyExists if it is there
    bool direct = true;   // O_DIRECT; falls back where refused, says so once
    uint64_t preallocate_bytes = 0;
  };
  virtual Result<FileId> open(std::string_view path, const OpenOptions& options) = 0;
  // A file that was made and has no FileId yet. Dropping it closes it.
  struct NewFile {
    std::string path;
    ckpt::base::UniqueFd fd;
  };
  // Makes a file whose name is durable: opens and preallocates it, syncs its directory. From any
  // thread, beside calls of the loop thread; the disk must not go away meanwhile. After an error
  // there is no such file. adopt() then gives it its id.
  virtual Result<NewFile> create_file(std::string_view path, uint64_t preallocate_bytes) = 0;
  virtual FileId adopt(NewFile file) = 0;
  virtual void close(FileId file) = 0;
  // A descriptor of a file that is there, to be given to another process: opened anew, read-only,
  // O_DIRECT. kUnavailable where the file system refuses that.
  virtual Result<ckpt::base::UniqueFd> share(std::string_view path) = 0;
  // As kRead, but within this call, and nobody's completion runs: for who must see one state of
  // things from the first byte to the last.
  virtual Result<uint64_t> read_now(FileId file, uint64_t offset, MutableByteView memory) = 0;
  virtual Result<uint64_t> size(FileId file) = 0;
  virtual Status truncate(FileId file, uint64_t bytes) = 0;
  // Names of the entries of a directory, sorted.
  virtual Result<std::vector<std::string>> list(std::string_view directory) = 0;
  virtual Status make_directory(std::string_view path) = 0;
  virtual Status remove(std::string_view path) = 0;
  // Of a file that is not open, to a name in the same directory that nobody has (the caller sees to
  // that): after a crash it has the one or the other, and the other once the directory was synced.
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

  // Pins a range for zero-copy. kUnavailable where that is refused: plain I/O is used then.
  virtual Result<BufferId> register_buffer(MutableByteView memory) = 0;
  virtual void unregister_buffer(BufferId buffer) = 0;

  virtual void submit(IoRequest request) = 0;
  // Runs the completions that are there; returns how many ran.
  virtual size_t reap() = 0;
  // Blocks until at least one completion is there (nothing in flight: returns at once).
  virtual void wait() = 0;
  // Readable when reap() has something to do; -1 if the disk has none (in memory).
  virtual int event_fd() const = 0;
  virtual size_t in_flight() const = 0;
  virtual std::string_view engine_name() const = 0;  // "uring", "pwritev", "memory"

  // Writes and syncs submitted since the start that have failed.
  uint64_t write_errors() const { return write_errors_; }

 protected:
  // Each engine calls it in reap(), for every request that has ended.
  void note_end(IoOp op, bool ok) {
    if (!ok && (op == IoOp::kWrite || op == IoOp::kSync)) ++write_errors_;
  }

 private:
  uint64_t write_errors_ = 0;
};

// Does this error of reading or opening a file say that bytes are lost? True: they were read and
// are wrong (kCorrupt), the disk cannot give them (kIo), or their file is missing (kNotFound).
// False: the system refused for another reason, such as permissions, descriptors or memory. The
// bytes may be intact then, and nobody may act as if they were not.
inline bool says_damage(const ckpt::Error& error) {
  return error.code == ckpt::ErrorCode::kCorrupt || error.code == ckpt::ErrorCode::kIo ||
         error.code == ckpt::ErrorCode::kNotFound;
}

// Blocking helpers for start-up and tools: submit, wait, reap.
Result<uint64_t> read_blocking(Disk& disk, FileId file, uint64_t offset, MutableByteView memory);
Status write_blocking(Disk& disk, FileId file, uint64_t offset, ByteView memory);
Status sync_blocking(Disk& disk, FileId file);

struct DiskOptions {
  std::string root;              // the store's directory; must exist
  std::string engine = "uring";  // or "pwritev"
};
// The engine asked for; where io_uring is not allowed, pwritev with a warning.
Result<std::unique_ptr<Disk>> open_disk(const DiskOptions& options);

}  // namespace ckptd

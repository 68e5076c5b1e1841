// MemoryDisk: the in-memory implementation of Disk. Seeded, single-threaded, no real time.
//
// The seed shuffles the completion order. A crash keeps synced bytes plus a seeded choice of the
// unsynced 512-byte sectors, in any order. Faults happen on demand. A sync makes durable exactly
// the writes that completed before it was submitted: a daemon that syncs too early loses data here.
// Names are durable once their directory was synced.
//
// Thread: all calls from one. After crash() the old disk can continue; the image is independent.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ckptd/io/disk.h"

namespace ckptd {

// Fault injection. Probabilities are per write request, drawn from the seed. Silent faults report
// success, as real disks do.
struct MemoryFaults {
  double lost_write = 0;         // silent: nothing is written
  double torn_write = 0;         // silent: only a prefix of its sectors is written
  double flipped_write = 0;      // silent: one bit differs
  double misdirected_write = 0;  // silent: lands at the place of an earlier write of its file
  double short_write = 0;        // the device writes a part first; the Disk continues
  // All faults of this struct apply only to paths that start with this.
  std::string path_prefix;
  // Counted from the moment the faults are set, 1 = the next request. 0: never.
  uint64_t fail_nth_write = 0;  // EIO
  uint64_t full_nth_write = 0;  // ENOSPC
  uint64_t fail_nth_read = 0;   // EIO
  uint64_t fail_nth_sync = 0;   // EIO; the unsynced writes of the file stay unsynced
  // The system refuses with this errno, though the bytes are intact. Per open or read, drawn from
  // the seed; opens that create files are not affected.
  double refused_open = 0;
  double refused_read = 0;
  int refusal = 24;  // EMFILE
};

class MemoryDisk final : public Disk {
 public:
  struct Options {
    uint64_t seed = 1;
    uint64_t capacity_bytes = 16ull << 30;  // ENOSPC beyond; preallocation counts
    bool allow_buffers = true;              // false: register_buffer is refused
  };
  explicit MemoryDisk(const Options& options);
  ~MemoryDisk() override;

  void set_faults(const MemoryFaults& faults);
  // The disk after a power loss at this moment: synced contents, and a seeded choice of unsynced
  // sectors and names. Requests in flight may be partly applied.
  std::unique_ptr<MemoryDisk> crash(uint64_t seed) const;
  // An exact copy of everything written so far, all of it durable.
  std::unique_ptr<MemoryDisk> clone(uint64_t seed) const;
  // The disk for the next process after kill -9: everything written so far, because the kernel
  // survives. A crash() of it may still drop unsynced bytes.
  std::unique_ptr<MemoryDisk> after_kill(uint64_t seed) const;
  // Flips bits of one stored byte: bit rot. The byte must exist.
  void flip(std::string_view path, uint64_t offset, uint8_t bits = 1);
  void set_capacity(uint64_t bytes);

  Result<FileId> open(std::string_view path, const OpenOptions& options) override;
  Result<NewFile> create_file(std::string_view path, uint64_t preallocate_bytes) override;
  FileId adopt(NewFile file) override;
  void close(FileId file) override;
  // A copy of everything written so far.
  Result<ckpt::base::UniqueFd> share(std::string_view path) override;
  Result<uint64_t> read_now(FileId file, uint64_t offset, MutableByteView memory) override;
  Result<uint64_t> size(FileId file) override;
  Status truncate(FileId file, uint64_t bytes) override;
  Result<std::vector<std::string>> list(std::string_view directory) override;
  Status make_directory(std::string_view path) override;
  Status remove(std::string_view path) override;
  Status rename(std::string_view from, std::string_view to) override;
  Status sync_directory(std::string_view path) override;
  Result<Space> space() override;
  Result<BufferId> register_buffer(MutableByteView memory) override;
  void unregister_buffer(BufferId buffer) override;
  void submit(IoRequest request) override;
  size_t reap() override;  // applies and completes a seeded number of requests, at least one
  void wait() override {}
  int event_fd() const override { return -1; }
  size_t in_flight() const override;
  std::string_view engine_name() const override { return "memory"; }

 private:
  struct Impl;
  explicit MemoryDisk(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd

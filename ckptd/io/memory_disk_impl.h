// Private to this folder: the parts of MemoryDisk. memory_disk.cc has its files, names and crashes,
// memory_disk_requests.cc the execution of requests.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckptd/io/memory_disk.h"
#include "ckptd/io/memory_file.h"

namespace ckptd {

struct MemoryDisk::Impl {
  struct OpenFile {
    std::string path;
    std::shared_ptr<MemoryFile> file;
    std::vector<uint64_t> written_at;  // offsets of its writes: targets of misdirected writes
  };
  struct Pending {
    IoRequest request;
    uint64_t sequence = 0;  // of the newest completed write when it was submitted (kSync)
    uint64_t done = 0;      // bytes applied so far (after a short write)
  };

  explicit Impl(const Options& with) : options(with), random(with.seed) {}

  uint64_t used_bytes() const;
  bool renamed(const std::string& path) const;  // since its directory was synced
  bool chance(double probability) {
    return probability > 0 && std::uniform_real_distribution<double>(0, 1)(random) < probability;
  }
  bool faulty(const std::string& path) const { return path.starts_with(faults.path_prefix); }
  bool refuses(const std::string& path, double probability) {
    return faulty(path) && chance(probability);
  }
  // Applies the request; nullopt if it continues later (a short write).
  std::optional<Result<uint64_t>> apply(Pending& pending);
  std::optional<Result<uint64_t>> apply_write(OpenFile& open_file, Pending& pending);
  Result<uint64_t> apply_allocation(const OpenFile& open_file, const IoRequest& request);
  void write_bytes(OpenFile& open_file, uint64_t offset, ByteView bytes);
  uint64_t wrong_place(const OpenFile& open_file, uint64_t offset);
  OpenFile& at(FileId id) {
    const auto found = open_files.find(id);
    CKPT_ASSERT_MSG(found != open_files.end(), "I/O on a file that is not open");
    return found->second;
  }

  // True if the file's path still leads to it.
  bool is_named(const OpenFile& open_file) const {
    const auto found = names.find(open_file.path);
    return found != names.end() && found->second == open_file.file;
  }

  Options options;
  std::mt19937_64 random;
  MemoryFaults faults;
  uint64_t writes_seen = 0;
  uint64_t reads_seen = 0;
  uint64_t syncs_seen = 0;
  // Names, and the names that survive a crash: those at the last sync of their directory.
  using Names = std::map<std::string, std::shared_ptr<MemoryFile>>;  // null: a directory
  Names names;
  Names durable_names;
  Names names_after_crash(std::mt19937_64& of_crash) const;
  std::vector<std::pair<std::string, std::string>> renames;  // since that sync, in order
  std::unordered_map<FileId, OpenFile> open_files;
  FileId next_file = 1;
  std::map<BufferId, MutableByteView> buffers;
  BufferId next_buffer = 1;
  std::vector<Pending> pending;
  uint64_t write_sequence = 0;  // completed writes
  bool reaping = false;
};

}  // namespace ckptd

// RecordingDisk: forwards to another Disk and records all changes in order: the begin and the end
// of each write and sync, and the changes of names and sizes.
//
// image() builds a disk that a power loss at any of those moments may leave. Changes that a sync of
// the file or directory covers by then are there. The caller chooses among the others.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ckptd/io/memory_disk.h"
#include "tests/ckptd/io/passing_disk.h"

namespace ckptd::testing {

class RecordingDisk final : public PassingDisk {
 public:
  using PassingDisk::PassingDisk;

  // -- the record ------------------------------------------------------------------------------
  // Number of moments so far. A cut at moment m comes after the first m of them.
  size_t moments() const { return moments_; }
  // Changes that began before the cut and that nothing had made durable, by their number.
  std::vector<size_t> uncertain(size_t cut) const;
  // Builds the disk after the cut: all certain changes, and the uncertain changes in `kept`, in
  // order. Changes in `torn` are written in part: the seed chooses some of their sectors.
  struct Choice {
    std::vector<bool> kept;  // by number of the change
    std::vector<bool> torn;
    uint64_t seed = 1;
  };
  std::unique_ptr<MemoryDisk> image(size_t cut, const Choice& choice) const;
  size_t changes() const { return changes_.size(); }
  bool began_before(size_t change, size_t cut) const { return changes_[change].begun < cut; }

  // -- Disk ------------------------------------------------------------------------------------
  Result<FileId> open(std::string_view path, const OpenOptions& options) override;
  Result<NewFile> create_file(std::string_view path, uint64_t preallocate_bytes) override;
  FileId adopt(NewFile file) override;
  void close(FileId file) override;
  Status truncate(FileId file, uint64_t bytes) override;
  Status make_directory(std::string_view path) override;
  Status remove(std::string_view path) override;
  Status rename(std::string_view from, std::string_view to) override;
  Status sync_directory(std::string_view path) override;
  void submit(IoRequest request) override;

 private:
  enum class Kind { kCreate, kRemove, kMakeDirectory, kTruncate, kWrite, kPunch };
  static constexpr size_t kNever = SIZE_MAX;
  struct Change {
    Kind kind = Kind::kWrite;
    std::string path;
    uint64_t offset = 0;  // kTruncate: the size
    uint64_t bytes = 0;   // kPunch; kCreate: preallocated
    std::vector<std::byte> content;
    size_t begun = kNever;    // at which moment
    size_t done = kNever;     // what a barrier that begins later covers
    size_t durable = kNever;  // since then nothing takes it back
    bool of_name() const { return kind <= Kind::kMakeDirectory; }
  };
  size_t now() { return moments_++; }
  size_t add(Change change);
  void barrier_done(const std::string& path, bool of_directory, size_t begun);
  static void apply(const Change& change, MemoryDisk& disk, std::mt19937_64* torn);

  std::map<FileId, std::string> paths_;
  std::vector<Change> changes_;
  size_t moments_ = 0;
};

}  // namespace ckptd::testing

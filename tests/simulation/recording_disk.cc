#include "tests/simulation/recording_disk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "ckptd/io/aligned_buffer.h"

namespace ckptd::testing {

namespace {

constexpr uint64_t kSectorBytes = 512;

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

void on_file(MemoryDisk& disk, const std::string& path, const std::function<void(FileId)>& work) {
  const auto file = disk.open(path, {});
  if (!file.ok()) return;  // its name did not survive
  work(*file);
  disk.close(*file);
}

void run(MemoryDisk& disk, IoRequest request) {
  disk.submit(std::move(request));
  while (disk.in_flight() > 0) disk.reap();
}

}  // namespace

size_t RecordingDisk::add(Change change) {
  change.begun = now();
  if (change.kind != Kind::kWrite && change.kind != Kind::kPunch) change.done = change.begun;
  changes_.push_back(std::move(change));
  return changes_.size() - 1;
}

void RecordingDisk::barrier_done(const std::string& path, bool of_directory, size_t begun) {
  const size_t moment = now();
  for (Change& change : changes_) {
    const bool covered = change.of_name() == of_directory &&
                         (of_directory ? directory_of(change.path) : change.path) == path;
    if (covered && change.done < begun && change.durable == kNever) change.durable = moment;
  }
}

Result<FileId> RecordingDisk::open(std::string_view path, const OpenOptions& options) {
  CKPT_ASSIGN(const FileId file, disk_.open(path, options));
  paths_[file] = path;
  if (options.create) {
    add({.kind = Kind::kCreate, .path = std::string(path), .bytes = options.preallocate_bytes});
  }
  return file;
}

Result<Disk::NewFile> RecordingDisk::create_file(std::string_view path,
                                                 uint64_t preallocate_bytes) {
  CKPT_ASSIGN(NewFile file, disk_.create_file(path, preallocate_bytes));
  const size_t change =
      add({.kind = Kind::kCreate, .path = std::string(path), .bytes = preallocate_bytes});
  changes_[change].durable = now();
  return file;
}

FileId RecordingDisk::adopt(NewFile file) {
  std::string path = file.path;
  const FileId id = disk_.adopt(std::move(file));
  paths_[id] = std::move(path);
  return id;
}

void RecordingDisk::close(FileId file) {
  paths_.erase(file);
  disk_.close(file);
}

Status RecordingDisk::truncate(FileId file, uint64_t bytes) {
  CKPT_TRY(disk_.truncate(file, bytes));
  add({.kind = Kind::kTruncate, .path = paths_.at(file), .offset = bytes});
  return {};
}

Status RecordingDisk::make_directory(std::string_view path) {
  CKPT_TRY(disk_.make_directory(path));
  add({.kind = Kind::kMakeDirectory, .path = std::string(path)});
  return {};
}

Status RecordingDisk::remove(std::string_view path) {
  CKPT_TRY(disk_.remove(path));
  add({.kind = Kind::kRemove, .path = std::string(path)});
  return {};
}

// Only the rewrite of a damaged journal renames a file. Recorded histories have no damage.
Status RecordingDisk::rename(std::string_view from, std::string_view to) {
  ADD_FAILURE() << from << " is renamed, which is not recorded";
  return disk_.rename(from, to);
}

Status RecordingDisk::sync_directory(std::string_view path) {
  const size_t begun = now();
  CKPT_TRY(disk_.sync_directory(path));
  barrier_done(std::string(path), /*of_directory=*/true, begun);
  return {};
}

void RecordingDisk::submit(IoRequest request) {
  const bool writes = request.op == IoOp::kWrite || request.op == IoOp::kPunch;
  const bool syncs = request.op == IoOp::kSync;
  if (writes || syncs) {
    const std::string path = paths_.at(request.file);
    size_t change = 0;
    if (writes) {
      change = add({.kind = request.op == IoOp::kWrite ? Kind::kWrite : Kind::kPunch,
                    .path = path,
                    .offset = request.offset,
                    .bytes = request.bytes,
                    .content = {request.memory.begin(), request.memory.end()}});
    }
    request.on_done = [this, writes, path, change, begun = syncs ? now() : 0,
                       then = std::move(request.on_done)](Result<uint64_t> result) {
      EXPECT_TRUE(result.ok()) << "a disk that is recorded has no faults";
      if (writes) {
        changes_[change].done = now();
      } else {
        barrier_done(path, /*of_directory=*/false, begun);
      }
      if (then) then(std::move(result));
    };
  }
  disk_.submit(std::move(request));
}

std::vector<size_t> RecordingDisk::uncertain(size_t cut) const {
  std::vector<size_t> numbers;
  numbers.reserve(changes_.size());
  for (size_t number = 0; number < changes_.size(); ++number) {
    const Change& change = changes_[number];
    if (change.begun < cut && change.durable >= cut) numbers.push_back(number);
  }
  return numbers;
}

void RecordingDisk::apply(const Change& change, MemoryDisk& disk, std::mt19937_64* torn) {
  switch (change.kind) {
    case Kind::kCreate: {
      const auto file = disk.open(change.path, {.create = true, .preallocate_bytes = change.bytes});
      if (file.ok()) disk.close(*file);
      return;
    }
    case Kind::kRemove:
      (void)disk.remove(change.path);  // or it was never there
      return;
    case Kind::kMakeDirectory:
      EXPECT_TRUE(disk.make_directory(change.path).ok());
      return;
    case Kind::kTruncate:
      on_file(disk, change.path,
              [&](FileId file) { EXPECT_TRUE(disk.truncate(file, change.offset).ok()); });
      return;
    case Kind::kPunch:
      on_file(disk, change.path, [&](FileId file) {
        run(disk,
            {.op = IoOp::kPunch, .file = file, .offset = change.offset, .bytes = change.bytes});
      });
      return;
    case Kind::kWrite:
      on_file(disk, change.path, [&](FileId file) {
        AlignedBuffer bytes(change.content.size());
        EXPECT_TRUE(disk.read_now(file, change.offset, bytes.bytes()).ok());
        for (uint64_t at = 0; at < bytes.size(); at += kSectorBytes) {
          if (torn != nullptr && (*torn)() % 2 == 0) continue;
          std::copy_n(change.content.begin() + static_cast<ptrdiff_t>(at), kSectorBytes,
                      bytes.bytes().begin() + static_cast<ptrdiff_t>(at));
        }
        run(disk,
            {.op = IoOp::kWrite, .file = file, .offset = change.offset, .memory = bytes.bytes()});
      });
      return;
  }
}

std::unique_ptr<MemoryDisk> RecordingDisk::image(size_t cut, const Choice& choice) const {
  MemoryDisk disk({.seed = choice.seed});
  std::mt19937_64 random(choice.seed);
  for (size_t number = 0; number < changes_.size(); ++number) {
    const Change& change = changes_[number];
    if (change.begun >= cut) break;
    const bool certain = change.durable < cut;
    if (!certain && !choice.kept[number]) continue;
    apply(change, disk, !certain && choice.torn[number] ? &random : nullptr);
  }
  return disk.clone(choice.seed);
}

}  // namespace ckptd::testing


#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "bench/common/scratch.h"
#include "bench/service/save_run.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/persist/persist.h"
#include "ckptd/staging/staging.h"
#include "formats/base/crc32c.h"

namespace bench {

using ckpt::Result;
using ckpt::Status;

namespace {

struct FilledSlab {
  size_t arena = 0;
  uint32_t slab = 0;
  std::vector<ckpt::ExtentFragment> fragments;
};

class EngineSave final : public SaveRun {
 public:
  explicit EngineSave(const SaveShape& shape) : shape_(shape) {}
  ~EngineSave() override;
  Status init(const std::string& directory);
  bool full() const override { return stored_bytes_ + shape_.bytes > kStoreBytesMax; }
  Status renew() override;
  Result<double> run() override;
  Result<Usage> usage() const override { return usage_of(::getpid()); }

 private:
  void pump();  // waits for an event of the disk or the executor, and runs it
  void open_store();
  Status fill();
  Status seal_and_write(const ckpt::SnapshotKey& key, std::vector<ckptd::WrittenExtent>* extents,
                        std::optional<ckpt::Error>* error);

  const SaveShape shape_;
  std::optional<ScratchDirectory> directory_;
  std::unique_ptr<ckptd::Disk> disk_;
  std::unique_ptr<ckptd::Executor> executor_;
  std::unique_ptr<ckptd::Staging> staging_;
  std::unique_ptr<ckptd::JournalWriter> journal_;
  std::unique_ptr<ckptd::Persist> persist_;
  ckptd::FileId journal_file_ = 0;
  std::vector<ckptd::Staging::Granted> arenas_;
  std::vector<FilledSlab> slabs_;
  ckpt::Step step_ = 0;
  ckpt::SegmentId next_segment_ = 1;
  uint64_t stored_bytes_ = 0;
};

void EngineSave::pump() {
  pollfd waiting[2] = {{disk_->event_fd(), POLLIN, 0}, {executor_->event_fd(), POLLIN, 0}};
  ::poll(waiting, 2, 1000);
  disk_->reap();
  executor_->reap();
}

Status EngineSave::init(const std::string& directory) {
  CKPT_ASSIGN(directory_, ScratchDirectory::make(directory));
  CKPT_ASSIGN(disk_, ckptd::open_disk({.root = directory_->path(), .engine = shape_.engine}));
  executor_ = ckptd::make_thread_executor(2);
  CKPT_TRY(disk_->make_directory(ckptd::kJournalDirectory));
  CKPT_ASSIGN(journal_file_, disk_->open(ckptd::kJournalPath, {.create = true}));
  journal_ = std::make_unique<ckptd::JournalWriter>(*disk_, journal_file_,
                                                    ckpt::JournalEncoder::Position{});
  return fill();
}

Status EngineSave::fill() {
  const uint64_t share = shape_.bytes / shape_.sessions;
  staging_ = std::make_unique<ckptd::Staging>(
      *disk_, *executor_,
      ckptd::Staging::Options{.arena_bytes_total = 2 * shape_.bytes, .restore_slabs = 0});
  for (uint32_t i = 0; i < shape_.sessions; ++i) {
    CKPT_ASSIGN(auto granted, staging_->create(0, share, shape_.slab_bytes));
    arenas_.push_back(granted);
  }
  while (executor_->outstanding() > 0) pump();
  for (size_t arena = 0; arena < arenas_.size(); ++arena) {
    CKPT_ASSIGN(auto mapping, ckpt::ArenaMapping::map(arenas_[arena].fd, arenas_[arena].layout));
    for (uint32_t slab = 0; slab < arenas_[arena].layout.slab_count; ++slab) {
      fill_random(mapping.slab(slab), arena * 1000 + slab);
      FilledSlab filled{.arena = arena, .slab = slab};
      for (uint64_t at = 0; at < shape_.slab_bytes; at += shape_.fragment_bytes) {
        const uint64_t length = std::min(shape_.fragment_bytes, shape_.slab_bytes - at);
        const auto unit = static_cast<ckpt::UnitId>(slabs_.size());
        filled.fragments.push_back(
            {.unit = unit,
             .offset = at,
             .length = length,
             .payload_offset = at,
             .crc32c = ckpt::base::crc32c(mapping.slab(slab).subspan(at, length))});
      }
      slabs_.push_back(std::move(filled));
    }
  }
  return {};
}

void EngineSave::open_store() {
  persist_ = std::make_unique<ckptd::Persist>(
      *disk_, *executor_, *journal_, ckptd::Persist::Options{.first_segment = next_segment_});
}

Status EngineSave::seal_and_write(const ckpt::SnapshotKey& key,
                                  std::vector<ckptd::WrittenExtent>* extents,
                                  std::optional<ckpt::Error>* error) {
  for (const FilledSlab& filled : slabs_) {
    CKPT_ASSIGN(auto staged, staging_->seal(arenas_[filled.arena].arena, filled.slab,
                                            shape_.slab_bytes, filled.fragments));
    persist_->write(key, static_cast<ckpt::Rank>(filled.arena), std::move(staged),
                    [extents, error](Result<ckptd::WrittenExtent> written) {
                      if (written.ok()) {
                        extents->push_back(std::move(written).value());
                      } else {
                        *error = written.error();
                      }
                    });
  }
  return {};
}

Result<double> EngineSave::run() {
  open_store();
  for (const auto& arena : arenas_) {
    staging_->lease(arena.arena, arena.layout.slab_count);
  }
  const ckpt::SnapshotKey key{.run = 1, .lineage = 1, .epoch = 1, .step = ++step_};
  CKPT_TRY(persist_->reserve(key, shape_.bytes));
  std::vector<ckptd::WrittenExtent> extents;
  std::optional<ckpt::Error> error;
  while (!persist_->idle()) pump();  // the first segment's header

  const auto start = std::chrono::steady_clock::now();
  CKPT_TRY(seal_and_write(key, &extents, &error));
  while (extents.size() < slabs_.size() && !error.has_value()) pump();
  std::optional<Result<uint64_t>> committed;
  if (!error.has_value()) {
    ckpt::fb::CommittedT body;
    ckpt::fill_extents(extents, body);
    ckpt::fb::RecordT record;
    record.body.Set(std::move(body));
    persist_->commit(
        key, [&record] { return record; },
        [&committed](Result<uint64_t> result) { committed = std::move(result); });
    while (!committed.has_value()) pump();
    if (!committed->ok()) error = committed->error();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  persist_->close();
  persist_.reset();
  stored_bytes_ += shape_.bytes;
  next_segment_ += 1000;
  if (error.has_value()) return *error;
  return static_cast<double>(shape_.bytes) / elapsed.count();
}

Status EngineSave::renew() {
  CKPT_ASSIGN(const auto names, disk_->list(ckptd::kSegmentsDirectory));
  for (const std::string& name : names) {
    CKPT_TRY(disk_->remove(fmt::format("{}/{}", ckptd::kSegmentsDirectory, name)));
  }
  stored_bytes_ = 0;
  settle(directory_->path());
  return {};
}

EngineSave::~EngineSave() {
  if (persist_ != nullptr) persist_->close();
  persist_.reset();
  if (staging_ != nullptr) staging_->close();
  journal_.reset();
}

}  // namespace

Result<std::unique_ptr<SaveRun>> open_engine_save(const std::string& directory,
                                                  const SaveShape& shape) {
  auto save = std::make_unique<EngineSave>(shape);
  CKPT_TRY(save->init(directory));
  return std::unique_ptr<SaveRun>(std::move(save));
}

}  // namespace bench

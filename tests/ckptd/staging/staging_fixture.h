// A staging area on a disk in memory, and trainers that seal slabs of it.
#pragma once

#include <gmock/gmock.h>

#include "ckptd/io/memory_disk.h"
#include "ckptd/staging/staging.h"
#include "tests/ckptd/staging/small_trainer.h"

namespace ckptd {

class StagingTest : public testing::Test {
 protected:
  static constexpr uint64_t kSlab = 64 << 10;
  static constexpr uint32_t kFirst = 2;  // slab of a snapshot; those before are for restores
  static constexpr uid_t kAlice = 1000;
  static constexpr uid_t kBob = 1001;
  static inline const ckpt::SnapshotKey kStep5{.run = 1, .lineage = 1, .epoch = 1, .step = 5};
  static inline const ckpt::SnapshotKey kStep6{.run = 1, .lineage = 1, .epoch = 1, .step = 6};

  StagingTest() { staging_ = make(16 * kSlab); }
  ~StagingTest() override {
    if (staging_) staging_->close();
  }

  std::unique_ptr<Staging> make(uint64_t total) {
    return std::make_unique<Staging>(
        disk_, *executor_,
        Staging::Options{
            .arena_bytes_total = total, .session_bytes_default = 8 * kSlab, .restore_slabs = 2});
  }
  SmallTrainer open(uid_t uid, uint64_t bytes = 8 * kSlab) {
    auto granted = staging_->create(uid, bytes, kSlab);
    EXPECT_TRUE(granted.ok()) << granted.error().message;
    run_all(disk_, *executor_);
    return SmallTrainer(*granted);
  }
  StagedSlab seal(SmallTrainer& trainer, uint32_t slab, ckpt::UnitId unit, uint64_t length = 5000) {
    const auto filled = trainer.fill(slab, {{unit, length}}, unit + 1);
    auto staged = staging_->seal(trainer.arena, slab, filled.payload_bytes, filled.fragments);
    EXPECT_TRUE(staged.ok()) << staged.error().message;
    return std::move(staged).value();
  }
  void make_durable(SmallTrainer& trainer, uint32_t slab, ckpt::UnitId unit,
                    const ckpt::SnapshotKey& snapshot) {
    StagedSlab staged = seal(trainer, slab, unit);
    staged.mark_writing();
    staged.mark_durable(snapshot);
    EXPECT_FALSE(staged);
  }
  uint64_t count(SlabState state) { return staging_->stats().slabs[state]; }

  MemoryDisk disk_{{.seed = 1}};
  std::unique_ptr<Executor> executor_ = make_inline_executor();
  std::unique_ptr<Staging> staging_;
};

}  // namespace ckptd

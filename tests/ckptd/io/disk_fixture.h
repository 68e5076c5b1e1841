// Every test of the disk runs on all three engines: this fixture opens the one named by the
// parameter, in a directory of its own that goes away with it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/engines.h"
#include "ckptd/io/memory_disk.h"
#include "tests/support/temp_folder.h"

namespace ckptd {

inline AlignedBuffer random_bytes(size_t bytes, uint64_t seed) {
  AlignedBuffer buffer(bytes);
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < buffer.size(); at += 8)
    ckpt::base::store(buffer.bytes().data() + at, random());
  return buffer;
}

// A real engine in `root`, or the memory disk. Null: this machine has no io_uring.
inline std::unique_ptr<Disk> open_engine(const std::string& engine, const std::string& root) {
  if (engine == "memory") return std::make_unique<MemoryDisk>(MemoryDisk::Options{.seed = 7});
  auto disk = engine == "uring" ? open_uring_disk(root) : open_pwritev_disk(root);
  if (disk.ok()) return std::move(disk).value();
  EXPECT_EQ(disk.error().code, ckpt::ErrorCode::kUnavailable) << disk.error().message;
  return nullptr;
}

class DiskTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    disk_ = open_engine(GetParam(), folder_.root());
    if (disk_ == nullptr) GTEST_SKIP() << "io_uring is not available here";
  }

  FileId create(const std::string& path, uint64_t preallocate_bytes = 0) {
    auto file = disk_->open(path, {.create = true, .preallocate_bytes = preallocate_bytes});
    EXPECT_TRUE(file.ok()) << file.error().message;
    return file.value();
  }
  void drain() {
    while (disk_->in_flight() > 0) {
      disk_->wait();
      disk_->reap();
    }
  }

  const ckpt::test::TempFolder folder_;
  std::unique_ptr<Disk> disk_;
};

}  // namespace ckptd

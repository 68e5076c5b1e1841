// Both implementations of KvStore, for tests that must hold in either.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "ckptd/catalog/kv_store.h"

namespace ckptd {

// A directory of its own, removed with the value.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = testing::TempDir() + "ckptd-catalog-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// open() gives the same contents again, as a restarted daemon would find them.
class MemoryRoom {
 public:
  std::unique_ptr<KvStore> open() { return make_memory_store(image_); }
  MemoryKvImage& image() { return *image_; }

 private:
  std::shared_ptr<MemoryKvImage> image_ = std::make_shared<MemoryKvImage>();
};
class RocksDbRoom {
 public:
  std::unique_ptr<KvStore> open() {
    auto opened = open_rocksdb_store(directory());
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ(opened->broken, "");
    return std::move(opened->store);
  }
  std::string directory() const { return temporary_.file("catalog"); }

 private:
  TemporaryDirectory temporary_;
};

}  // namespace ckptd

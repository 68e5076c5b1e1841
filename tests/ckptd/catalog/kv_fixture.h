// Both implementations of KvStore, for tests that must hold in either.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ckptd/catalog/kv_store.h"
#include "tests/support/temp_folder.h"

namespace ckptd {

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
  std::string directory() const { return folder_.path("catalog"); }

 private:
  ckpt::test::TempFolder folder_;
};

}  // namespace ckptd

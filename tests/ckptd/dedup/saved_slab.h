// SavedSlab: a store with a slab of two fragments on the disk, which tests compare or read back.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ckptd/catalog/catalog.h"
#include "ckptd/dedup/dedup_plan.h"
#include "ckptd/io/memory_disk.h"
#include "tests/ckptd/persist/small_store.h"

namespace ckptd {

class SavedSlab : public ::testing::Test {
 protected:
  SavedSlab() {
    EXPECT_TRUE(store_.save(1, /*slabs=*/1));
    extent_ = store_.snapshots[1].extents.front();
    path_ = segment_path(extent_.segment);
  }

  // Offset of the payload in the segment.
  uint64_t payload() const { return extent_.offset + extent_.header_bytes; }
  FragmentPlace place(const ckpt::ExtentFragment& fragment) const {
    FragmentPlace place;
    place.offset = fragment.offset;
    place.length = fragment.length;
    place.crc32c = fragment.crc32c;
    place.segment = extent_.segment;
    place.extent_offset = extent_.offset;
    place.payload_offset = payload() + fragment.payload_offset;
    return place;
  }
  DedupExtent dedup_extent() const {
    return {.expected = {.store = kTestStore,
                         .segment = extent_.segment,
                         .offset = extent_.offset,
                         .snapshot = SmallStore::key(1),
                         .payload_bytes = extent_.payload_bytes,
                         .payload_crc32c = extent_.payload_crc32c,
                         .fragments = {}},
            .header_bytes = extent_.header_bytes,
            .header_crc32c = extent_.header_crc32c};
  }

  MemoryDisk disk_{{.seed = 1}};
  SmallStore store_{disk_, /*slabs=*/16};
  WrittenExtent extent_;
  std::string path_;
  Catalog catalog_{make_memory_store()};
  SegmentReader segments_{disk_, kTestStore};
};

}  // namespace ckptd

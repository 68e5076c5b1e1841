// Bases read back from earlier versions, and bases that are rejected.
#include "ckptd/dedup/base_reader.h"

#include <gmock/gmock.h>

#include "ckptd/io/memory_disk.h"
#include "ckptd/limits.h"
#include "tests/ckptd/persist/small_store.h"

namespace ckptd {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// A slab of two fragments is on the disk.
class BaseReaderTest : public ::testing::Test {
 protected:
  BaseReaderTest() {
    EXPECT_TRUE(store_.save(1, /*slabs=*/1));
    extent_ = store_.snapshots[1].extents.front();
    path_ = segment_path(extent_.segment);
    start_slab();
  }
  ~BaseReaderTest() override { store_.run(); }

  void start_slab() {
    std::vector<BaseReader::Base> bases;
    for (const ckpt::ExtentFragment& fragment : extent_.fragments) {
      FragmentPlace place;
      place.offset = fragment.offset;
      place.length = fragment.length;
      place.crc32c = fragment.crc32c;
      place.segment = extent_.segment;
      place.extent_offset = extent_.offset;
      place.payload_offset = payload() + fragment.payload_offset;
      bases.push_back({fragment.unit, place});
    }
    slab_ =
        reader_.of_slab(std::move(bases), {{.expected = {.store = kTestStore,
                                                         .segment = extent_.segment,
                                                         .offset = extent_.offset,
                                                         .snapshot = SmallStore::key(1),
                                                         .payload_bytes = extent_.payload_bytes,
                                                         .payload_crc32c = extent_.payload_crc32c,
                                                         .fragments = {}},
                                            .header_bytes = extent_.header_bytes,
                                            .header_crc32c = extent_.header_crc32c}});
  }
  uint64_t payload() const { return extent_.offset + extent_.header_bytes; }
  ckpt::UnitRange range(size_t fragment) const {
    const ckpt::ExtentFragment& of = extent_.fragments[fragment];
    return {of.unit, of.offset, of.length};
  }
  BasePieces read(const std::vector<ckpt::UnitRange>& ranges) {
    std::optional<BasePieces> pieces;
    slab_->read(ranges, [&](BasePieces got) { pieces = std::move(got); });
    EXPECT_FALSE(pieces.has_value()) << "an answer within the question";
    store_.run();
    EXPECT_TRUE(pieces.has_value());
    return pieces.value_or(BasePieces());
  }
  BasePieces read_all() { return read({range(0), range(1)}); }

  MemoryDisk disk_{{.seed = 1}};
  SmallStore store_{disk_, /*slabs=*/16};
  WrittenExtent extent_;
  std::string path_;
  Catalog catalog_{make_memory_store()};
  SegmentReader segments_{disk_, kTestStore};
  BaseReader reader_{{disk_, store_.executor(), store_.staging(), segments_, catalog_}, 0};
  std::shared_ptr<BaseSource> slab_;
};

TEST_F(BaseReaderTest, ReadsBasesAndCachesTheirHeader) {
  const BasePieces pieces = read_all();
  ASSERT_THAT(pieces, SizeIs(2));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(pieces[i].range, range(i));
    EXPECT_EQ(pieces[i].stored_bytes, range(i).length);
    EXPECT_EQ(pieces[i].crc32c, extent_.fragments[i].crc32c);
    EXPECT_EQ(ckpt::base::crc32c(pieces[i].bytes), extent_.fragments[i].crc32c);
  }
  const uint64_t before = reader_.read_bytes();
  EXPECT_GT(before, extent_.header_bytes);
  EXPECT_THAT(read({range(1)}), SizeIs(1)) << "the header is known by now";
  EXPECT_LT(reader_.read_bytes() - before, before);
}

TEST_F(BaseReaderTest, ReadsNothingForOtherRanges) {
  ckpt::UnitRange shorter = range(0);
  shorter.length -= 1;
  EXPECT_THAT(read({shorter, {99, 0, 10}}), IsEmpty());
  EXPECT_THAT(read({}), IsEmpty());
  EXPECT_EQ(reader_.read_bytes(), 0u);
}

TEST_F(BaseReaderTest, SkipsBasesWithChecksumMismatch) {
  disk_.flip(path_, payload() + 100, 1);
  const BasePieces pieces = read_all();
  ASSERT_THAT(pieces, SizeIs(1));
  EXPECT_EQ(pieces[0].range, range(1));
}

// A restart would mark the extent damaged, and with it every commit that names the extent.
TEST_F(BaseReaderTest, SkipsExtentsWithDamagedHeader) {
  disk_.flip(path_, extent_.offset + 9, 1);
  EXPECT_THAT(read_all(), IsEmpty());
  const uint64_t before = reader_.read_bytes();
  EXPECT_THAT(read_all(), IsEmpty());
  EXPECT_EQ(reader_.read_bytes(), before) << "nor is it asked for again";
}

TEST_F(BaseReaderTest, SkipsUnreadableBases) {
  disk_.set_faults({.fail_nth_read = 2});  // the read after the file's header
  EXPECT_THAT(read_all(), IsEmpty());
  EXPECT_TRUE(disk_.remove(path_).ok());
  start_slab();
  EXPECT_THAT(read_all(), IsEmpty());
}

TEST_F(BaseReaderTest, SlowDiskEndsReadsForTheSlab) {
  std::optional<BasePieces> pieces;
  slab_->read({range(0)}, [&](BasePieces got) { pieces = std::move(got); });
  reader_.tick(limits::kCompareWaitMax);
  store_.run();
  EXPECT_THAT(pieces.value(), SizeIs(1)) << "what was asked for is waited for";
  const uint64_t before = reader_.read_bytes();
  EXPECT_THAT(read_all(), IsEmpty());
  EXPECT_EQ(reader_.read_bytes(), before);
  start_slab();
  EXPECT_THAT(read_all(), SizeIs(2)) << "that was another slab";
}

}  // namespace
}  // namespace ckptd

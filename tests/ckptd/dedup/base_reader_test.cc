// Bases read back from earlier versions, and bases that are rejected.
#include "ckptd/dedup/base_reader.h"

#include <gmock/gmock.h>

#include "ckptd/limits.h"
#include "tests/ckptd/dedup/saved_slab.h"

namespace ckptd {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class BaseReaderTest : public SavedSlab {
 protected:
  BaseReaderTest() { start_slab(); }
  ~BaseReaderTest() override { store_.run(); }

  void start_slab() {
    std::vector<BaseReader::Base> bases;
    for (const ckpt::ExtentFragment& fragment : extent_.fragments) {
      bases.push_back({fragment.unit, place(fragment)});
    }
    slab_ = reader_.of_slab(std::move(bases), {dedup_extent()});
  }
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

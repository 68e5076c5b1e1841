#include <gmock/gmock.h>

#include "tests/ckptd/persist/small_store.h"

namespace ckptd {
namespace {

ckpt::fb::RecordT tag(const std::string& name) {
  ckpt::fb::TaggedT body;
  body.tag = name;
  ckpt::fb::RecordT record;
  record.body.Set(std::move(body));
  return record;
}

class JournalWriterTest : public DiskTest {
 protected:
  void SetUp() override {
    DiskTest::SetUp();
    if (disk_ != nullptr) file_ = create("journal.log", 1 << 20);
  }
  void TearDown() override {
    if (disk_ != nullptr) disk_->close(file_);
  }
  ckpt::JournalScan scan(std::vector<std::string>* tags) {
    AlignedBuffer image(1 << 20);
    EXPECT_TRUE(read_blocking(*disk_, file_, 0, image.bytes()).ok());
    return ckpt::scan_journal(image.bytes(),
                              [tags](uint64_t, const ckpt::fb::RecordT& record) {
                                tags->push_back(record.body.AsTagged()->tag);
                                return Status();
                              })
        .value();
  }
  FileId file_ = 0;
};

TEST_P(JournalWriterTest, RecordsGetSequenceNumbersInOrder) {
  JournalWriter writer(*disk_, file_, {});
  std::vector<uint64_t> sequences;
  auto note = [&sequences](Result<uint64_t> first) { sequences.push_back(first.value()); };
  writer.append({tag("a"), tag("b")}, note);
  writer.append({tag("c")}, note);
  writer.append({tag("d"), tag("e")}, note);
  EXPECT_THAT(sequences, testing::IsEmpty()) << "durable later, not at once";
  drain();
  EXPECT_THAT(sequences, testing::ElementsAre(1, 3, 4));
  std::vector<std::string> tags;
  const ckpt::JournalScan end = scan(&tags);
  EXPECT_THAT(tags, testing::ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_EQ(end.end.next_batch, 3u) << "what arrived while the first was written is one batch";
  EXPECT_EQ(writer.bytes(), end.end.offset);
}

TEST_P(JournalWriterTest, ContinuesAtTheEndOfScan) {
  {
    JournalWriter writer(*disk_, file_, {});
    writer.append({tag("a")}, nullptr);
    drain();
  }
  std::vector<std::string> tags;
  JournalWriter writer(*disk_, file_, scan(&tags).end);
  uint64_t sequence = 0;
  writer.append({tag("b")}, [&sequence](Result<uint64_t> first) { sequence = first.value(); });
  drain();
  EXPECT_EQ(sequence, 2u);
  tags.clear();
  scan(&tags);
  EXPECT_THAT(tags, testing::ElementsAre("a", "b"));
}

TEST_P(JournalWriterTest, ACallbackMayAppend) {
  JournalWriter writer(*disk_, file_, {});
  int left = 5;
  std::function<void(Result<uint64_t>)> again = [&](const Result<uint64_t>& first) {
    ASSERT_TRUE(first.ok());
    if (--left > 0) writer.append({tag(std::to_string(left))}, again);
  };
  writer.append({tag("5")}, again);
  drain();
  std::vector<std::string> tags;
  scan(&tags);
  EXPECT_THAT(tags, testing::ElementsAre("5", "4", "3", "2", "1"));
}

INSTANTIATE_TEST_SUITE_P(Engines, JournalWriterTest, testing::Values("uring", "pwritev", "memory"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ckptd

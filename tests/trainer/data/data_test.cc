#include "trainer/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "trainer/model/philox.h"

namespace moetrain {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class DataFiles : public testing::Test {
 protected:
  DataFiles() {
    std::string name = testing::TempDir() + "data_test_XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~DataFiles() override { fs::remove_all(root_); }
  std::string write(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << text;
    return (root_ / name).string();
  }
  void expect_refused(const std::vector<std::string>& paths, const std::string& named,
                      const std::string& why) {
    const auto corpus = Corpus::load(paths);
    ASSERT_FALSE(corpus.ok());
    EXPECT_EQ(ckpt::exit_code_for(corpus.error().code), 2);
    EXPECT_THAT(corpus.error().message, HasSubstr(named));
    EXPECT_THAT(corpus.error().message, HasSubstr(why));
  }
  fs::path root_;
};

std::string text_of(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

TEST_F(DataFiles, KeepsFileOrderAndSortsDirectories) {
  const std::string last = write("z.txt", "tail of the corpus, named first");
  write("dir/b.txt", "B");
  write("dir/a/x.txt", "A");
  write("dir/.hidden/secret.txt", "no");
  write("dir/build/output.o", "no");
  write("dir/empty.txt", "");
  const auto corpus = Corpus::load({last, (root_ / "dir").string()});
  ASSERT_TRUE(corpus.ok()) << corpus.error().message;
  const std::string all = text_of(corpus->train()) + text_of(corpus->held_out());
  EXPECT_EQ(all, "tail of the corpus, named firstAB");
}

TEST_F(DataFiles, RefusesMissingUnreadableAndEmptyFiles) {
  const std::string good = write("good.txt", "text");
  const std::string empty = write("empty.txt", "");
  expect_refused({good, (root_ / "none.txt").string()}, "none.txt", "No such file");
  expect_refused({good, empty}, "empty.txt", "is empty");
  fs::create_directories(root_ / "hollow");
  expect_refused({(root_ / "hollow").string()}, "hollow", "no files");
  write("only/empty.txt", "");
  expect_refused({(root_ / "only").string()}, "only", "no bytes");
  const std::string device = "/proc/self/mem";  // opens, and cannot be read, even by root
  expect_refused({device}, device, "");
  const std::string fifo = (root_ / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_refused({fifo}, fifo, "not a regular file");
  const auto bounded = Corpus::load({good}, 3);
  ASSERT_FALSE(bounded.ok());
  EXPECT_THAT(bounded.error().message, HasSubstr("good.txt"));
}

TEST_F(DataFiles, NamesFileThatIsTooSmall) {
  const std::string small = write("small.txt", std::string(100, 'x'));
  const std::string other = write("other.txt", "more");
  const Status one = Corpus::load({small})->check_fits(64);
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.error().message,
            "data " + small +
                ": 100 bytes are too few for sequences of 64 tokens: at least 1300 are needed, "
                "because one byte in 20 is held out; name more text with --data");
  const Status two = Corpus::load({small, other})->check_fits(64);
  ASSERT_FALSE(two.ok());
  EXPECT_THAT(two.error().message, HasSubstr("data " + small + " and 1 more: 104 bytes are too"));
}

TEST_F(DataFiles, RefusesTooFewBytesForASequence) {
  const Corpus short_text(std::vector<uint8_t>(65 * kHeldOutDivisor - 1, 'x'));
  const Status status = short_text.check_fits(64);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(ckpt::exit_code_for(status.error().code), 2);
  EXPECT_THAT(status.error().message, HasSubstr("1299 bytes"));
  EXPECT_TRUE(Corpus(std::vector<uint8_t>(65 * kHeldOutDivisor, 'x')).check_fits(64).ok());
}

TEST(CorpusTest, HoldsOutTailAndDetectsChangedBytes) {
  std::vector<uint8_t> bytes(1000);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const Corpus corpus(bytes);
  EXPECT_EQ(corpus.train().size(), 950u);
  EXPECT_EQ(corpus.held_out().size(), 50u);
  EXPECT_EQ(corpus.held_out().front(), bytes[950]);
  bytes[3] ^= 1;
  EXPECT_NE(Corpus(bytes).crc32c(), corpus.crc32c());
}

TEST(DefaultData, FollowsTheEnvironment) {
  ASSERT_EQ(setenv("CKPT_SOURCE_DIR", "/nowhere/at/all", 1), 0);
  const auto missing = default_data_paths();
  unsetenv("CKPT_SOURCE_DIR");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("/nowhere/at/all"));
  const auto own = default_data_paths();
  ASSERT_TRUE(own.ok());
  EXPECT_TRUE(Corpus::load(*own).ok());
}

// Known answers of Random123 (kat_vectors), philox4x32 with 10 rounds.
TEST(PhiloxTest, GivesThePublishedAnswers) {
  using testing::ElementsAre;
  EXPECT_THAT(philox(0, 0, 0), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox(~0ull, ~0ull, ~0ull),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

std::vector<uint8_t> counting_text(size_t bytes) {
  std::vector<uint8_t> text(bytes);
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<uint8_t>((i * 2654435761u) >> 13);
  return text;
}

TEST(SequencesTest, DependOnlyOnSeedStepAndIndex) {
  const std::vector<uint8_t> text = counting_text(10'000);
  constexpr uint32_t kLength = 16;
  std::vector<int32_t> whole(8 * kLength), targets(8 * kLength);
  fill_sequences(text, 7, 42, 0, 8, kLength, whole, targets);
  // However the sequences are divided among ranks, each is the same.
  for (uint64_t first : {0, 3, 7}) {
    std::vector<int32_t> one(kLength), next(kLength);
    fill_sequences(text, 7, 42, first, 1, kLength, one, next);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), whole.begin() + first * kLength));
    EXPECT_TRUE(std::equal(next.begin(), next.end(), targets.begin() + first * kLength));
    // Targets are the text one byte later.
    EXPECT_TRUE(std::equal(one.begin() + 1, one.end(), next.begin()));
  }
  std::vector<int32_t> other(8 * kLength);
  fill_sequences(text, 8, 42, 0, 8, kLength, other, targets);
  EXPECT_NE(other, whole);
  fill_sequences(text, 7, 43, 0, 8, kLength, other, targets);
  EXPECT_NE(other, whole);
}

TEST(SequencesTest, OffsetsStayInsideAndReachBothEnds) {
  constexpr uint64_t kBytes = 40;
  constexpr uint32_t kLength = 32;  // offsets 0 .. 7
  std::set<uint64_t> seen;
  for (uint64_t step = 0; step < 200; ++step) {
    seen.insert(sequence_offset(1, step, step % 3, kBytes, kLength));
  }
  EXPECT_EQ(*seen.begin(), 0u);
  EXPECT_EQ(*seen.rbegin(), kBytes - kLength - 1);
  EXPECT_EQ(seen.size(), kBytes - kLength);
  EXPECT_EQ(sequence_offset(1, 5, 5, kLength + 1, kLength), 0u);
}

}  // namespace
}  // namespace moetrain

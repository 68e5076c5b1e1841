// Hostile bytes for every parser of formats/: truncated everywhere, each bit flipped, random, and
// the kept files beside this source. A parser may refuse or, where nothing covers the bit, accept;
// it may not crash, read out of bounds (AddressSanitizer runs this too) or deliver something else
// than what was written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "formats/journal.h"
#include "formats/journal_record.h"
#include "formats/safetensors.h"
#include "tests/formats/random_bytes.h"
#include "tests/formats/samples.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/target.h"

namespace ckpt::fuzz {
namespace {

class EveryParser : public testing::TestWithParam<Target> {};

INSTANTIATE_TEST_SUITE_P(Formats, EveryParser, testing::ValuesIn(format_targets()),
                         [](const auto& target) { return std::string(target.param.name); });

TEST_P(EveryParser, AcceptsItsSeeds) {
  for (const Bytes& seed : GetParam().seeds()) EXPECT_TRUE(GetParam().parse(seed));
}

TEST_P(EveryParser, RefusesTruncationAtEveryLength) {
  // Valid prefixes exist: a journal may end anywhere, a record has no own length, a size is text.
  const std::string_view name = GetParam().name;
  const bool may_be_cut = name == "journal" || name == "record" || name == "size";
  for (const Bytes& seed : GetParam().seeds()) {
    // Every length of small inputs; of large ones the first block, all block edges, and a stride.
    for (size_t length = 0; length < seed.size(); ++length) {
      const size_t to_edge = std::min(length % 4096, 4096 - length % 4096);
      if (length > 5000 && to_edge > 100 && length % 37 != 0) continue;
      // An exact copy, so that a sanitizer sees a read of one byte too many.
      const Bytes start(seed.begin(), seed.begin() + static_cast<ptrdiff_t>(length));
      const bool accepted = GetParam().parse(start);
      ASSERT_FALSE(accepted && !may_be_cut) << "length " << length;
    }
  }
}

TEST_P(EveryParser, SurvivesRandomBytes) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Bytes bytes = test::random_bytes(seed * 7 % 6000, seed);
    // To a journal they are a tail without any record before it.
    const bool accepted = GetParam().parse(bytes);
    EXPECT_TRUE(!accepted || GetParam().name == "journal") << "seed " << seed;
  }
}

// Frames, segment and extent headers: every bit is covered, so every flip is refused.
TEST_P(EveryParser, FlippedBitsAreRefusedWhereCovered) {
  const std::string_view name = GetParam().name;
  const bool covered = name == "frame" || name == "segment" || name == "extent" || name == "ledger";
  for (const Bytes& seed : GetParam().seeds()) {
    if (seed.size() > 4096) continue;
    Bytes bytes = seed;
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      const std::byte mask{static_cast<uint8_t>(1u << (bit % 8))};
      bytes[bit / 8] ^= mask;
      const bool accepted = GetParam().parse(bytes);
      ASSERT_FALSE(covered && accepted) << "bit " << bit;
      bytes[bit / 8] ^= mask;
    }
  }
}

// The journal: a flipped bit is an error, or cut as a torn tail; no other record ever comes out.
TEST(HostileJournal, EveryFlippedBitIsDetected) {
  const test::SampleJournal journal = test::sample_journal();
  std::vector<Bytes> records;
  const OnRecord keep = [&records](uint64_t, const fb::RecordT& record) {
    records.push_back(encode_record(record));
    return ok_status();
  };
  ASSERT_TRUE(scan_journal(journal.image, keep).ok());
  const uint64_t last_batch = journal.batch_offsets[3];

  Bytes image = journal.image;
  for (size_t bit = 0; bit < 8 * image.size(); ++bit) {
    // All bits of the first two and the last batch; of the long one between them, one per byte.
    const uint64_t at = bit / 8;
    const bool in_long_batch = at >= journal.batch_offsets[2] && at < last_batch;
    if (in_long_batch && bit % 8 != at % 8) continue;
    const std::byte mask{static_cast<uint8_t>(1u << (bit % 8))};
    image[at] ^= mask;
    size_t count = 0;
    const Result<JournalScan> scan =
        scan_journal(image, [&](uint64_t, const fb::RecordT& record) -> Status {
          EXPECT_EQ(encode_record(record), records.at(count));
          ++count;
          return ok_status();
        });
    if (at < last_batch) {
      ASSERT_FALSE(scan.ok()) << "bit " << bit;
      ASSERT_EQ(scan.error().code, ErrorCode::kCorrupt);
    } else {
      ASSERT_TRUE(scan.ok()) << "bit " << bit;
      ASSERT_EQ(scan->end.offset, last_batch);
      ASSERT_GT(scan->torn_bytes, 0u);
    }
    image[at] ^= mask;
  }
}

// 4,096 blocks that all claim to begin the missing batch of 12 KiB. The scan reads each header
// once: reading the claimed bytes of each block would take quadratic time.
TEST(HostileJournal, RepeatedBatchClaimsCountAsTorn) {
  constexpr size_t kBlocks = 4096;
  const test::SampleJournal journal = test::sample_journal();
  const uint64_t begin = journal.batch_offsets[2];
  const auto long_batch = journal.image.begin() + static_cast<ptrdiff_t>(begin);
  Bytes image(journal.image.begin(), long_batch);
  image.resize(begin + 4096);
  image.reserve(begin + 4096 + kBlocks * 4096);
  for (size_t i = 0; i < kBlocks; ++i) {
    image.insert(image.end(), long_batch, long_batch + 4096);
    const uint64_t at = image.size() - 4096;
    auto header = base::load<journal::RecordHeader>(image.data() + at);
    header.offset = at;
    header.header_crc32c = journal::crc32c_of(header);
    base::store(image.data() + at, header);
  }
  const Result<JournalScan> scan =
      scan_journal(image, [](uint64_t, const fb::RecordT&) { return ok_status(); });
  ASSERT_TRUE(scan.ok()) << scan.error().message;
  EXPECT_EQ(scan->end.offset, begin);
  EXPECT_GT(scan->torn_bytes, kBlocks * 4096);
}

// ---- kept files -------------------------------------------------------------------------------

// expected.txt: "<parser>/<file>: <what the error says>", a line each.
std::map<std::string, std::string> expected_errors(const std::filesystem::path& folder) {
  std::map<std::string, std::string> expected;
  std::ifstream lines(folder / "expected.txt");
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) expected[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return expected;
}

Bytes file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const ByteView bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

std::string error_of(std::string_view parser, const Bytes& bytes) {
  const auto message = [](const auto& result) {
    return result.ok() ? std::string("accepted") : result.error().message;
  };
  if (parser == "frame") return message(wire::decode(bytes));
  if (parser == "record") return message(decode_record(bytes));
  if (parser == "segment") return message(decode_segment_header(bytes));
  if (parser == "extent") return message(decode_extent_header(bytes));
  if (parser == "safetensors") return message(safetensors::parse_header(bytes, bytes.size()));
  if (parser == "journal") {
    return message(scan_journal(bytes, [](uint64_t, const fb::RecordT&) { return ok_status(); }));
  }
  return "no such parser";
}

TEST(KeptHostileFiles, EachIsRefusedForItsReason) {
  const std::filesystem::path folder = CKPT_HOSTILE_FORMATS_DIR;
  std::map<std::string, std::string> expected = expected_errors(folder);
  ASSERT_FALSE(expected.empty());
  for (const Target& target : format_targets()) {
    const std::filesystem::path files = folder / std::string(target.name);
    if (!std::filesystem::exists(files)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(files)) {
      const std::string name = fmt::format("{}/{}", target.name, entry.path().filename().string());
      SCOPED_TRACE(name);
      const Bytes bytes = file_bytes(entry.path());
      EXPECT_FALSE(target.parse(bytes));
      ASSERT_EQ(expected.count(name), 1u) << "not in expected.txt";
      EXPECT_THAT(error_of(target.name, bytes), testing::HasSubstr(expected[name]));
      expected.erase(name);
    }
  }
  for (const auto& [name, error] : expected) ADD_FAILURE() << name << " is not there: " << error;
}

// ---- the attackers themselves -----------------------------------------------------------------

TEST(CanaryDeathTest, IsFoundWithinThousandInputs) {
  const Mutator mutator(canary(), 7);
  EXPECT_DEATH(
      {
        for (uint64_t i = 0; i < 1000; ++i) canary().parse(mutator.input(i));
      },
      "the canary read out of bounds");
}

TEST(AllocationBoundDeathTest, OversizedAllocationAborts) {
  EXPECT_DEATH({ const Bytes bytes(1u << 30); }, "a length that nobody checked");
}

TEST_P(EveryParser, AcceptsSomeMutatedInputs) {
  // A fuzzer whose every input dies at the first checksum tests nothing.
  const Mutator mutator(GetParam(), 11);
  size_t accepted = 0;
  for (uint64_t i = 0; i < 2000; ++i) accepted += GetParam().parse(mutator.input(i)) ? 1 : 0;
  EXPECT_GE(accepted, 10u);
}

TEST(Mutator, SameNumbersGiveSameInput) {
  const Mutator one(canary(), 5);
  const Mutator same(canary(), 5);
  const Mutator other(canary(), 6);
  size_t equal = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(one.input(i), same.input(i));
    equal += one.input(i) == other.input(i) ? 1 : 0;
  }
  EXPECT_LT(equal, 10u);
}

}  // namespace
}  // namespace ckpt::fuzz

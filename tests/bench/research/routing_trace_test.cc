#include "bench/research/routing_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <random>
#include <string>

#include "tests/support/temp_folder.h"

namespace bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kGood =
    "iteration,layer,e0,e1,e2\n"
    "1,0,3,4,5\n"
    "1,1,12,0,0\n"
    "20,0,4,4,4\n"
    "20,1,5,5,2\n";

std::string refusal(const std::string& text) {
  const auto trace = parse_routing_trace(text, "t.csv");
  return trace.ok() ? "accepted" : trace.error().message;
}

TEST(RoutingTraceTest, ReadsSampleBySample) {
  const auto trace = parse_routing_trace(kGood, "t.csv");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->grid, (moetrain::ExpertGrid{2, 3}));
  EXPECT_EQ(trace->assignments, 24);
  ASSERT_EQ(trace->samples.size(), 2u);
  EXPECT_THAT(trace->samples[1], ElementsAre(4, 4, 4, 5, 5, 2));
}

TEST(RoutingTraceTest, NamesWrongLine) {
  const std::string header = "iteration,layer,e0,e1\n";
  EXPECT_THAT(refusal(header + "1,0,3\n"), HasSubstr("line 2: e1 is missing"));
  EXPECT_THAT(refusal(header + "1,0,3,4\n1,1,3,5\n"), HasSubstr("layer 1 expert 1 has 5 of 7"));
}

// Batches grow while a run warms up: the layers of one sample agree, samples need not.
TEST(RoutingTraceTest, SamplesMayDifferInSize) {
  const auto trace = parse_routing_trace(
      "iteration,layer,e0,e1\n1,0,3,4\n1,1,7,0\n2,0,3,67108900\n2,1,67108903,0\n", "t.csv");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->assignments, 67108910);
}

TEST(RoutingTraceTest, RefusesMoreTokensThanCanBeCounted) {
  std::string text = "iteration,layer,e0\n";
  for (uint32_t layer = 0; layer < 32768; ++layer) {
    text += "1," + std::to_string(layer) + ",281474976710656\n";  // 2^48, 2^63 in all
  }
  EXPECT_THAT(refusal(text), HasSubstr("too many tokens in all samples together"));
}

TEST(RoutingTraceTest, NamesFileItCannotRead) {
  const ckpt::test::TempFolder folder;
  const std::string path = folder.path("trace.csv");
  std::ofstream(path) << kGood;
  EXPECT_TRUE(read_routing_trace(path).ok());
  EXPECT_THAT(read_routing_trace(path + ".gz").error().message, HasSubstr("trace.csv.gz"));
}

// kGood, packed in two pieces with a flush between them: after the second sample's first line.
std::string write_packed(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "wb");
  const size_t flushed = kGood.find("20,0");
  gzwrite(file, kGood.data(), static_cast<unsigned>(flushed));
  gzflush(file, Z_FULL_FLUSH);
  gzwrite(file, kGood.data() + flushed, static_cast<unsigned>(kGood.size() - flushed));
  gzclose(file);
  std::ifstream packed(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(packed), std::istreambuf_iterator<char>()};
}

// zlib decodes the beginning of a truncated file, which may end after a whole sample.
TEST(RoutingTraceTest, RefusesPackedFilesThatEndInTheMiddle) {
  const ckpt::test::TempFolder folder;
  const std::string path = folder.path("trace.csv.gz");
  const std::string packed = write_packed(path);
  const auto whole = read_routing_trace(path);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->samples.size(), 2u);
  const size_t flush = packed.find(std::string("\0\0\xff\xff", 4)) + 4;
  ASSERT_LT(flush, packed.size());
  for (size_t length = 3; length < packed.size(); ++length) {
    SCOPED_TRACE(testing::Message() << length << " bytes of " << packed.size());
    std::ofstream(path, std::ios::binary) << packed.substr(0, length);
    const auto cut = read_routing_trace(path);
    ASSERT_FALSE(cut.ok()) << (length == flush ? "cut where it was flushed" : "");
    EXPECT_EQ(cut.error().code, ckpt::ErrorCode::kCorrupt);
    EXPECT_EQ(cut.error().message, path + ": ends in the middle");
  }
}

// Random bytes give a consistent trace or an error message (asan and ubsan watch).
TEST(RoutingTraceTest, ParsesHostileTextSafely) {
  const uint32_t seed = 99;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr std::string_view kLetters = "0123456789,\n-eil x";
  for (int round = 0; round < 20'000; ++round) {
    std::string text(kGood);
    for (uint32_t i = random() % 4; i < 4; ++i) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) text.erase(at, 1 + random() % 9);
      if (text.empty()) break;
      text[at % text.size()] = kLetters[random() % kLetters.size()];
    }
    const auto trace = parse_routing_trace(text, "t.csv");
    if (!trace.ok()) {
      EXPECT_THAT(trace.error().message, HasSubstr("t.csv line"));
      continue;
    }
    for (const auto& sample : trace->samples) EXPECT_EQ(sample.size(), trace->grid.size());
  }
}

}  // namespace
}  // namespace bench

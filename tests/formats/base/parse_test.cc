#include "formats/base/parse.h"

#include <gtest/gtest.h>

namespace ckpt::base {
namespace {

using std::chrono::nanoseconds;

TEST(ParseSize, AcceptsCommonUnits) {
  EXPECT_EQ(parse_size("0").value(), 0u);
  EXPECT_EQ(parse_size("4096").value(), 4096u);
  EXPECT_EQ(parse_size("7B").value(), 7u);
  EXPECT_EQ(parse_size("64KiB").value(), 64u << 10);
  EXPECT_EQ(parse_size("64MiB").value(), 64u << 20);
  EXPECT_EQ(parse_size("1.5GiB").value(), 3ull << 29);
  EXPECT_EQ(parse_size("2TB").value(), 2'000'000'000'000u);
  EXPECT_EQ(parse_size("18446744073709551615").value(), UINT64_MAX);
}

TEST(ParseSize, RefusesAmbiguousText) {
  for (const char* text :
       {"", "MiB", "64M", "64 MiB", "-1", "64mib", "1.", ".5GiB", "0.3B", "18446744073709551616",
        "99999999999999999999999999999999999999999999", "17179869184GiB", "1.2.3KiB", "64MiBx"}) {
    const auto result = parse_size(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(result.error().message.find(fmt::format("'{}'", text)), std::string::npos);
  }
}

TEST(ParseDuration, NeedsAUnit) {
  EXPECT_EQ(parse_duration("250us").value(), nanoseconds(250'000));
  EXPECT_EQ(parse_duration("10s").value(), nanoseconds(10'000'000'000));
  EXPECT_EQ(parse_duration("0.5m").value(), nanoseconds(30'000'000'000));
  EXPECT_EQ(parse_duration("2h").value(), nanoseconds(7'200'000'000'000));
  for (const char* text : {"", "10", "s", "10 s", "10sec", "-1s", "300000d"}) {
    EXPECT_FALSE(parse_duration(text).ok()) << text;
  }
}

TEST(ParseAge, IsWrittenAsInRestic) {
  const nanoseconds day = std::chrono::hours(24);
  EXPECT_EQ(parse_age("7d").value(), 7 * day);
  EXPECT_EQ(parse_age("36h").value(), 36 * std::chrono::hours(1));
  EXPECT_EQ(parse_age("2m").value(), 2 * 31 * day) << "months, not minutes";
  EXPECT_EQ(parse_age("1y5m7d2h").value(),
            366 * day + 5 * 31 * day + 7 * day + std::chrono::hours(2));
  EXPECT_EQ(parse_age("2h1y").value(), 366 * day + std::chrono::hours(2));
  for (const char* text : {"", "0d", "7", "d", "7d ", "7d7d", "1s", "-1d", "1y-2d", "300y", "7d3",
                           "99999999999999999999h", "292y292y"}) {
    const auto result = parse_age(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_NE(result.error().message.find(fmt::format("'{}'", text)), std::string::npos);
  }
}

TEST(FormatSize, ShowsOneDecimal) {
  EXPECT_EQ(format_size(512), "512 B");
  EXPECT_EQ(format_size(64u << 20), "64.0 MiB");
  EXPECT_EQ(format_size(3ull << 29), "1.5 GiB");
  EXPECT_EQ(format_size(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace ckpt::base

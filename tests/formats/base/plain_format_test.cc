// plain_format, which stands in for fmt where there is none, against fmt.
#include "formats/base/plain_format.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>

namespace ckpt::base::plain {
namespace {

template <typename... Args>
void expect_as_fmt(const char* pattern, const Args&... args) {
  EXPECT_EQ(format(pattern, args...), fmt::format(fmt::runtime(pattern), args...)) << pattern;
}

TEST(PlainFormat, AgreesWithFmt) {
  expect_as_fmt("");
  expect_as_fmt("no field");
  expect_as_fmt("{{}} and {{{}}}", 7);
  expect_as_fmt("run {} step {}: {}", std::string("tiny"), uint64_t{1200}, "gone");
  expect_as_fmt("{} {} {}", 'x', true, std::string_view("view"));
  expect_as_fmt("{} {}", std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max());
  expect_as_fmt("{} {} {}", int8_t{-5}, uint16_t{65535}, short{-1});
  expect_as_fmt("{:5}|{:05}|{:02x}|{:X}|{:d}", 42, 42, 10, 48879u, -3);
  expect_as_fmt("{:.3f} {:.4g} {:.1e} {:8.2f}", 2.5, 123456.0, 0.00012, -1.005);
  expect_as_fmt("{} {}", 0.5, 0.1f);
}

TEST(PlainFormat, AgreesWithFmtForRandomNumbers) {
  constexpr uint64_t kSeed = 20241130;
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<double> below_a_million(-1e6, 1e6);
  for (int i = 0; i < 2000; ++i) {
    const double value = below_a_million(random);
    SCOPED_TRACE(value);
    expect_as_fmt("{:.6f} {:.3e} {:.9g}", value, value, value);
    expect_as_fmt("{} {:x}", random(), random());
    EXPECT_EQ(std::stod(format("{}", value)), value);
  }
}

TEST(PlainFormat, WrongFormatStringIsVisibleAndHarmless) {
  EXPECT_EQ(format("{} {}", 1), "1 {?}");
  EXPECT_EQ(format("one", 1, 2), "one");
  EXPECT_EQ(format("{", 1), "{");
  EXPECT_EQ(format("a {0", 1), "a {0");
  EXPECT_EQ(format("}", 1), "}");
  EXPECT_EQ(format("{}", std::string(1000, 'x')), std::string(1000, 'x'));
  EXPECT_EQ(format("{:.1f}", 1e300).size(), fmt::format("{:.1f}", 1e300).size());
}

}  // namespace
}  // namespace ckpt::base::plain

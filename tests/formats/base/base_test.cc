// The small parts of formats/base: Result, checked arithmetic, bytes, hash, file descriptors.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/checked.h"
#include "formats/base/counted.h"
#include "formats/base/hash.h"
#include "formats/base/printable.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"
#include "formats/base/unix_address.h"
#include "formats/base/utf8.h"
#include "tests/formats/random_bytes.h"

namespace ckpt {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

Result<int> half_of_even(int number) {
  if (number % 2 != 0) return make_error(ErrorCode::kInvalidArgument, "number {}: odd", number);
  return number / 2;
}
Result<int> quarter(int number) {
  CKPT_ASSIGN(const int half, half_of_even(number));
  CKPT_TRY(half_of_even(half));
  return half / 2;
}

TEST(Result, TryAndAssignPropagateError) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(7).error().message, "number 7: odd");
  EXPECT_EQ(quarter(6).error().message, "number 3: odd");
  EXPECT_EQ(quarter(6).error().code, ErrorCode::kInvalidArgument);
}

TEST(Result, MovesMoveOnlyValue) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, ValueOfErrorAbortsWithItsMessage) {
  EXPECT_DEATH(half_of_even(3).value(), "number 3: odd");
}

TEST(Result, ExitCodesAreTheDocumentedOnes) {
  EXPECT_EQ(exit_code_for(ErrorCode::kInvalidArgument), 2);
  EXPECT_EQ(exit_code_for(ErrorCode::kNotFound), 3);
  EXPECT_EQ(exit_code_for(ErrorCode::kCorrupt), 4);
  EXPECT_EQ(exit_code_for(ErrorCode::kIo), 1);
  for (int code = 1; code <= 12; ++code) {
    EXPECT_NE(error_code_name(static_cast<ErrorCode>(code)), "unknown error") << code;
  }
}

TEST(Checked, SeesOverflow) {
  using base::checked_add;
  using base::checked_mul;
  EXPECT_EQ(checked_add<uint64_t>(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add<uint64_t>(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_mul<uint64_t>(1ull << 32, 1ull << 31), 1ull << 63);
  EXPECT_EQ(checked_mul<uint64_t>(1ull << 32, 1ull << 32), std::nullopt);
}

TEST(Checked, RangeFitsWithoutOverflow) {
  EXPECT_TRUE(base::range_fits(0, 0, 0));
  EXPECT_TRUE(base::range_fits(4, 6, 10));
  EXPECT_FALSE(base::range_fits(4, 7, 10));
  EXPECT_FALSE(base::range_fits(kMax, 2, 10));
  EXPECT_FALSE(base::range_fits(2, kMax, 10));
}

TEST(Checked, Aligns) {
  EXPECT_EQ(base::align_up(0, 4096), 0u);
  EXPECT_EQ(base::align_up(1, 4096), 4096u);
  EXPECT_EQ(base::align_up(4096, 4096), 4096u);
  EXPECT_EQ(base::align_up(kMax, 4096), kMax - 4095);
  EXPECT_EQ(base::align_down(8191, 4096), 4096u);
  EXPECT_TRUE(base::is_aligned(8192, 4096));
  EXPECT_FALSE(base::is_aligned(8193, 4096));
}

TEST(Bytes, AllZeroFindsASingleBit) {
  EXPECT_TRUE(base::all_zero({}));
  std::vector<std::byte> bytes(1000);
  EXPECT_TRUE(base::all_zero(bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = std::byte{1};
    EXPECT_FALSE(base::all_zero(bytes)) << i;
    bytes[i] = std::byte{0};
  }
}

// The value of the empty input is the one published with XXH3; it pins variant and byte order.
TEST(Hash, IsXxh3AndPrintsHighHalfFirst) {
  EXPECT_EQ(to_hex(base::hash128({})), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_hex(base::Hash128{.low = 1, .high = 0xab}), "00000000000000ab0000000000000001");
  EXPECT_NE(base::hash128(as_bytes("a")), base::hash128(as_bytes("a"), 1));
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(UniqueFd, ClosesOnceAndOnlyItsOwn) {
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  {
    base::UniqueFd owner(fd);
    base::UniqueFd next(std::move(owner));
    EXPECT_FALSE(owner.valid());  // NOLINT(bugprone-use-after-move): that is what is tested
    EXPECT_EQ(next.get(), fd);
    base::UniqueFd& same = next;
    next = std::move(same);
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(Printable, ForeignBytesAreShownAndCut) {
  EXPECT_EQ(base::printable("a\x1b\n\xc3\xa4~"), "a\\x1b\\n\xc3\xa4~");
  EXPECT_EQ(base::printable("abcdef", 6), "abcdef");
  EXPECT_EQ(base::printable("abcdefg", 6), "abcdef...");
  EXPECT_EQ(base::printable(std::string(1000, 'x')).size(), 131u);
  EXPECT_EQ(base::printable("abc\x1b", 6), "abc...") << "no escape is cut";
  EXPECT_EQ(base::printable("abc\xc3\xa4", 4), "abc...") << "no character is cut";
}

TEST(Printable, EscapesTerminalControls) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"plain / text~", "plain / text~"},
      {"\xc3\xa4 \xe2\x82\xac \xe6\xb8\xac \xf0\x9f\x98\x80",
       "\xc3\xa4 \xe2\x82\xac \xe6\xb8\xac \xf0\x9f\x98\x80"},
      {"\x1b]0;title\x07", "\\x1b]0;title\\x07"},
      {"a\r\n\tb\x7f", "a\\r\\n\\tb\\x7f"},
      {"\xc2\x9b"
       "31m",
       "\\u{9b}31m"},
      {"\x9b"
       "31m",
       "\\x9b31m"},
      {"\xe2\x80\xae"
       "fdp\xe2\x81\xa6\xe2\x80\xa8",
       "\\u{202e}fdp\\u{2066}\\u{2028}"},
      {"d\xe4t", "d\\xe4t"},
      {"\xc0\xaf\xed\xa0\x80\xf5", "\\xc0\\xaf\\xed\\xa0\\x80\\xf5"},
      {"\xe2\x82", "\\xe2\\x82"},
      {std::string_view("\0", 1), "\\x00"},
  };
  for (const auto& [text, shown] : cases) EXPECT_EQ(base::escaped(text), shown);
}

TEST(Printable, ScreenKeepsOnlyLayoutAndColours) {
  EXPECT_EQ(base::escaped_screen("\x1b[48;5;53m \x1b[0m\tx\n"), "\x1b[48;5;53m \x1b[0m\tx\n");
  EXPECT_EQ(base::escaped_screen("\x1b[2J\x1b]8;;x\rx"), "\\x1b[2J\\x1b]8;;x\\rx");
}

TEST(Printable, LinesKeepOnlyLayout) {
  EXPECT_EQ(base::escaped_lines("a\x1b[8mb\tc\n"), "a\\x1b[8mb\tc\n");
}

TEST(Printable, JsonKeepsMeaningWithoutControls) {
  EXPECT_EQ(base::escaped_json("{\n \"a\": \"\\u001b\xc3\xa4\"}"),
            "{\n \"a\": \"\\u001b\xc3\xa4\"}");
  EXPECT_EQ(base::escaped_json("\"\xc2\x9b\x7f\xe2\x80\xae\xf3\xa0\x80\x81\""),
            "\"\\u009b\\u007f\\u202e\\udb40\\udc01\"");
}

TEST(Counted, UsesSingularForOne) {
  EXPECT_EQ(base::counted(0, "commit"), "0 commits");
  EXPECT_EQ(base::counted(1, "commit"), "1 commit");
  EXPECT_EQ(base::counted(2, "commit"), "2 commits");
  EXPECT_EQ(base::counted(1, "unit is", "units are"), "1 unit is");
  EXPECT_EQ(base::counted(3, "unit is", "units are"), "3 units are");
}

TEST(UnixAddress, PathsAreNamedWithAndWithoutPrefix) {
  EXPECT_EQ(base::unix_socket_path("unix:/run/ckptd.sock"), "/run/ckptd.sock");
  EXPECT_EQ(base::unix_socket_path("/run/ckptd.sock"), "/run/ckptd.sock");
  EXPECT_EQ(base::unix_socket_path("unix:unix:x"), "unix:x") << "one prefix, once";
  EXPECT_EQ(base::unix_socket_path(""), "");
}

TEST(UnixAddress, ReachesPathsOfAnyLength) {
  const std::string shorter = "/" + std::string(106, 's');
  EXPECT_EQ(base::unix_path_fault(shorter), "");
  EXPECT_THAT(base::unix_path_fault(shorter + "s"), testing::HasSubstr("at most 82"));
  EXPECT_EQ(base::unix_path_fault("/" + std::string(107, 'f') + "/" + std::string(82, 's')), "");
  EXPECT_THAT(base::unix_path_fault(std::string(5000, 'f')), testing::HasSubstr("1 to 4079 bytes"));
  EXPECT_EQ(base::UnixAddress::of("/" + std::string(107, 'f') + "/s").error().code,
            ErrorCode::kNotFound);
}

TEST(Printable, OurMessagesAreCutBetweenCharacters) {
  EXPECT_EQ(base::shortened("abc", 3), "abc");
  EXPECT_EQ(base::shortened("abcd", 3), "abc...");
  EXPECT_EQ(base::shortened("ab\xc3\xa4z", 3), "ab...");
  EXPECT_EQ(base::shortened("ab\xc3\xa4z", 4), "ab\xc3\xa4...");
}

TEST(Utf8, AcceptsOnlyWellFormedText) {
  for (const char* text : {"", "a", "\xc3\xa9", "\xe5\xb1\x82", "\xf0\x9f\x99\x82", "\xed\x9f\xbf",
                           "\xf4\x8f\xbf\xbf", "a\x1b\x7f"}) {
    EXPECT_TRUE(base::is_utf8(text)) << text;
  }
  for (const char* text : {"\xff", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\x80",
                           "\xf4\x90\x80\x80", "\xf0\x9f\x99", "a\xc3(", "\xe5\xb1("}) {
    EXPECT_FALSE(base::is_utf8(text)) << text;
  }
}

TEST(Utf8, DecodesTheFirstCharacter) {
  const auto euro = base::first_utf8_character("\xe2\x82\xacx");
  EXPECT_TRUE(euro.well_formed);
  EXPECT_EQ(euro.bytes, 3u);
  EXPECT_EQ(euro.code, 0x20acu);
  EXPECT_EQ(base::first_utf8_character("\xf0\x9f\x98\x80").code, 0x1f600u);
  const auto cut = base::first_utf8_character("\xe2\x82");
  EXPECT_FALSE(cut.well_formed);
  EXPECT_EQ(cut.bytes, 1u);
  EXPECT_EQ(cut.code, 0xe2u);
}

}  // namespace
}  // namespace ckpt

#include "formats/base/parse.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>

namespace ckpt::base {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr uint64_t kKi = 1024;
constexpr uint64_t kThousand = 1000;
constexpr std::array kSizeUnits = {
    Unit{"", 1},
    Unit{"B", 1},
    Unit{"KiB", kKi},
    Unit{"MiB", kKi* kKi},
    Unit{"GiB", kKi* kKi* kKi},
    Unit{"TiB", kKi* kKi* kKi* kKi},
    Unit{"KB", kThousand},
    Unit{"MB", kThousand* kThousand},
    Unit{"GB", kThousand* kThousand* kThousand},
    Unit{"TB", kThousand* kThousand* kThousand* kThousand},
};
constexpr std::array kDurationUnits = {
    Unit{"ns", 1},
    Unit{"us", 1'000},
    Unit{"ms", 1'000'000},
    Unit{"s", 1'000'000'000},
    Unit{"m", 60ull * 1'000'000'000},
    Unit{"h", 3'600ull * 1'000'000'000},
    Unit{"d", 86'400ull * 1'000'000'000},
};

constexpr std::array kAgeUnits = {
    Unit{"y", 366ull * 86'400 * 1'000'000'000},
    Unit{"m", 31ull * 86'400 * 1'000'000'000},
    Unit{"d", 86'400ull * 1'000'000'000},
    Unit{"h", 3'600ull * 1'000'000'000},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A decimal number times its unit, in exact integer arithmetic: digits "15", one of them after the
// point, times GiB is 15 * 2^30 / 10. nullopt if it overflows or is not whole.
std::optional<uint64_t> scale(std::string_view digits, size_t decimals, uint64_t factor) {
  unsigned __int128 value = 0;
  for (const char digit : digits) {
    value = value * 10 + static_cast<unsigned>(digit - '0');
    if (value > std::numeric_limits<uint64_t>::max()) return std::nullopt;
  }
  value *= factor;
  for (size_t i = 0; i < decimals; ++i) {
    if (value % 10 != 0) return std::nullopt;
    value /= 10;
  }
  if (value > std::numeric_limits<uint64_t>::max()) return std::nullopt;
  return static_cast<uint64_t>(value);
}

std::optional<uint64_t> parse(std::string_view text, std::span<const Unit> units) {
  std::string digits;
  size_t decimals = 0;
  bool point = false;
  size_t i = 0;
  for (; i < text.size() && (is_digit(text[i]) || (text[i] == '.' && !point)); ++i) {
    if (text[i] == '.') {
      point = true;
    } else {
      digits += text[i];
      decimals += point ? 1 : 0;
    }
  }
  const bool ends_in_point = point && decimals == 0;
  if (digits.empty() || ends_in_point || decimals == digits.size()) return std::nullopt;
  for (const Unit& unit : units) {
    if (text.substr(i) == unit.name) return scale(digits, decimals, unit.factor);
  }
  return std::nullopt;
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  if (const auto bytes = parse(text, kSizeUnits)) return *bytes;
  return make_error(ErrorCode::kInvalidArgument,
                    "'{}' is not a size: write a number and KiB, MiB, GiB or TiB, as in 64MiB",
                    text);
}

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  const auto value = parse(text, kDurationUnits);
  if (value && *value <= static_cast<uint64_t>(std::chrono::nanoseconds::max().count())) {
    return std::chrono::nanoseconds(static_cast<int64_t>(*value));
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "'{}' is not a duration: write a number and ms, s, m, h or d, as in 10s", text);
}

Result<std::chrono::nanoseconds> parse_age(std::string_view text) {
  uint64_t age = 0;
  std::string_view seen;
  bool fits = !text.empty();
  for (std::string_view left = text; fits && !left.empty();) {
    const size_t end = std::min(left.find_first_not_of("0123456789."), left.size() - 1);
    const auto part = parse(left.substr(0, end + 1), kAgeUnits);
    const bool again = seen.find(left[end]) != std::string_view::npos;
    fits = part && !again && !__builtin_add_overflow(age, *part, &age);
    seen = text.substr(0, static_cast<size_t>(left.data() - text.data()) + end + 1);
    left.remove_prefix(end + 1);
  }
  if (fits && age > 0 && age <= static_cast<uint64_t>(std::chrono::nanoseconds::max().count())) {
    return std::chrono::nanoseconds(static_cast<int64_t>(age));
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "'{}' is not an age: write numbers and y, m, d or h, years, months, days and "
                    "hours, as in 1y6m7d12h",
                    text);
}

std::string format_size(uint64_t bytes) {
  constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < kKi) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / static_cast<double>(kKi);
  size_t unit = 0;
  while (value >= static_cast<double>(kKi) && unit + 1 < kNames.size()) {
    value /= static_cast<double>(kKi);
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kNames[unit]);
}

std::string format_age(std::chrono::nanoseconds age) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(age).count();
  if (seconds < 10) {
    return fmt::format("{:.1f} s", std::max(std::chrono::duration<double>(age).count(), 0.0));
  }
  constexpr int64_t kMinute = 60;
  constexpr int64_t kHour = 60 * kMinute;
  constexpr int64_t kDay = 24 * kHour;
  if (seconds < kMinute) return fmt::format("{} s", seconds);
  if (seconds < kHour) return fmt::format("{} min {} s", seconds / kMinute, seconds % kMinute);
  if (seconds < kDay) {
    return fmt::format("{} h {} min", seconds / kHour, seconds % kHour / kMinute);
  }
  return fmt::format("{} d {} h", seconds / kDay, seconds % kDay / kHour);
}

}  // namespace ckpt::base

// Sizes and durations as people write them on command lines and in configuration files. One parser
// for every program of the project, so that "64MiB" means the same everywhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "formats/base/result.h"

namespace ckpt::base {

// "4096", "64KiB", "1.5GiB", "2TB". Without a unit: bytes. KiB MiB GiB TiB are powers of 1024,
// KB MB GB TB powers of 1000; a bare K, M, G, T is refused, because people disagree on what it is.
// A fraction must come out as a whole number of bytes. kInvalidArgument quotes the text.
Result<uint64_t> parse_size(std::string_view text);

// "250us", "10ms", "10s", "5m", "2h", "1d". The unit is required: "10" is refused.
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

// An age as restic writes it: years, months, days, hours, each at most once, as in "1y6m7d12h"; m
// is months. Reckoned without a calendar, and so that nothing is younger than it would be with one:
// a year has 366 days here, a month 31. kInvalidArgument quotes the text; "0d" is refused.
Result<std::chrono::nanoseconds> parse_age(std::string_view text);

// The largest binary unit that keeps one decimal: "512 B", "64.0 MiB", "1.5 GiB". For messages.
std::string format_size(uint64_t bytes);

// The two largest units: "0.4 s", "12 s", "3 min 5 s", "2 h 0 min", "4 d 7 h". For messages.
std::string format_age(std::chrono::nanoseconds age);

}  // namespace ckpt::base

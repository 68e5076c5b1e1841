// Values of flags that are sizes or times. Errors name the flag. Private to this folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "formats/base/parse.h"
#include "formats/base/result.h"

namespace ckptctl {

template <typename T>
ckpt::Result<T> about_flag(std::string_view flag, ckpt::Result<T> value) {
  if (value.ok()) return value;
  return ckpt::make_error(value.error().code, "{}: {}", flag, value.error().message);
}

// "64MiB", "1.5GiB", in bytes.
inline ckpt::Result<uint64_t> size_value(std::string_view flag, const std::string& text) {
  return about_flag(flag, ckpt::base::parse_size(text));
}

// "10s", "5m".
inline ckpt::Result<std::chrono::nanoseconds> time_value(std::string_view flag,
                                                         const std::string& text) {
  return about_flag(flag, ckpt::base::parse_duration(text));
}

// "7d", "1y6m".
inline ckpt::Result<std::chrono::nanoseconds> age_value(std::string_view flag,
                                                        const std::string& text) {
  return about_flag(flag, ckpt::base::parse_age(text));
}

}  // namespace ckptctl

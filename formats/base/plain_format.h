// plain_format: the part of fmt::format that formats/base, the kernels and libckpt_cuda use, for
// machines without fmt (the `gpu` preset). Nothing else includes it; if fmt is available, fmt is
// used, and checks at compile time what this does not.
//
//   {} and {:spec} in order, {{ and }}; spec = [0][width][.precision][d|x|X|f|e|g|s], for integers,
//   floating point numbers, bool, char and text. Without a precision a number comes out as printf's
//   shortest %.Ng that reads back as the same number.
// A field without an argument is printed as "{?}": a message about an error must not fail itself.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

namespace ckpt::base::plain {

// `spec` is without the colon, and at most a few characters: our own source wrote it.
template <typename... Values>
std::string printed(std::string_view spec, const char* conversion, Values... values) {
  const std::string pattern = "%" + std::string(spec) + conversion;
  char text[400];  // a double in %f has 310 digits before its point
  const int length = std::snprintf(text, sizeof text, pattern.c_str(), values...);
  if (length < 0) return "{?}";
  return {text, std::min(static_cast<size_t>(length), sizeof text - 1)};
}

inline std::string text_of(std::string_view, std::string_view value) { return std::string(value); }
inline std::string text_of(std::string_view, const char* value) { return value; }
inline std::string text_of(std::string_view, char value) { return {value}; }
inline std::string text_of(std::string_view, bool value) { return value ? "true" : "false"; }

template <std::integral T>
requires(!std::same_as<T, bool> && !std::same_as<T, char>) std::string
    text_of(std::string_view spec, T value) {
  char kind = spec.empty() ? 'd' : spec.back();
  if (kind == 'x' || kind == 'X' || kind == 'd') {
    if (!spec.empty()) spec.remove_suffix(1);
  } else {
    kind = 'd';
  }
  if (kind != 'd') {
    const char conversion[] = {'l', 'l', kind, 0};
    return printed(spec, conversion,
                   static_cast<unsigned long long>(std::make_unsigned_t<T>(value)));
  }
  if constexpr (std::is_signed_v<T>) return printed(spec, "lld", static_cast<long long>(value));
  return printed(spec, "llu", static_cast<unsigned long long>(value));
}

template <std::floating_point T>
std::string text_of(std::string_view spec, T value) {
  const auto number = static_cast<double>(value);
  if (!spec.empty()) {
    const char kind = spec.back();
    const bool has_conversion = kind == 'f' || kind == 'e' || kind == 'g';
    if (has_conversion) spec.remove_suffix(1);
    const char conversion[] = {has_conversion ? kind : 'g', 0};
    return printed(spec, conversion, number);
  }
  constexpr int kDigitsMax = std::same_as<T, float> ? 9 : 17;
  for (int digits = 1; digits < kDigitsMax; ++digits) {
    std::string text = printed("." + std::to_string(digits), "g", number);
    if (static_cast<T>(std::strtod(text.c_str(), nullptr)) == value) return text;
  }
  return printed("." + std::to_string(kDigitsMax), "g", number);
}

// Appends `format` up to the next field, which it removes with the text; its spec is left in *spec.
// False if no field is left.
bool next_field(std::string& out, std::string_view& format, std::string_view* spec);

template <typename... Args>
std::string format(std::string_view format, const Args&... args) {
  std::string out;
  std::string_view spec;
  [[maybe_unused]] const auto put = [&](const auto& value) {
    if (next_field(out, format, &spec)) out += text_of(spec, value);
  };
  (put(args), ...);
  while (next_field(out, format, &spec)) out += "{?}";
  return out;
}

}  // namespace ckpt::base::plain

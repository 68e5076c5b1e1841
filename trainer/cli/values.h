// Numbers, sockets and removed names in the values of flags.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/partial/selector.h"

namespace moetrain {

// The refusal of a socket that ckpt::base::is_network_address().
inline constexpr std::string_view kOnlyUnixSockets =
    "ckptd serves unix sockets of its own machine alone: name one as unix:PATH (--socket or "
    "CKPTD_SOCKET)";

// Parses the whole text as a number; nullopt if it is anything else.
template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// A check of CLI11, whose list of names alone would not say what to use instead. Empty: no removed
// selector.
inline std::string refuse_removed_selector(const std::string& name) {
  return name == "age-aware" ? std::string(kAgeAwareRemoved) : std::string();
}

}  // namespace moetrain

// Numbers on command lines. For programs that parse theirs with CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace ckpt::base {

// CLI11 reads unsigned numbers as strtoull does: -1 and numbers that are too large become the
// largest one. This makes both bad usage, and any text that is no whole number. Call it when all
// options of `app` and its subcommands have been added.
inline void refuse_wrapped_numbers(CLI::App& app) {
  const CLI::Validator whole(
      [](std::string& text) {
        if (text.starts_with('-')) return text + ": must not be negative";
        uint64_t number = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, number);
        if (error == std::errc() && stop == end) return std::string();
        return text + ": not a whole number from 0 to " + std::to_string(UINT64_MAX);
      },
      "");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_name() == "UINT") option->check(whole);
  }
  for (CLI::App* command : app.get_subcommands(nullptr)) refuse_wrapped_numbers(*command);
}

}  // namespace ckpt::base

// Flags and arguments that every command of a program treats alike. For programs that parse their
// command lines with CLI11. Call these when all options and subcommands have been added.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace ckpt::base {

// --version, of the program and of each of its commands. Hidden in the help of the commands.
inline void add_version_flag(CLI::App& app, const std::string& version) {
  CLI::Option* flag = app.set_version_flag("--version", version);
  if (app.get_parent() != nullptr) flag->group("");
  for (CLI::App* command : app.get_subcommands(nullptr)) add_version_flag(*command, version);
}

// Makes an empty value bad usage, for every flag and argument: `--resume ""`, usually an unset
// variable of a script, must not mean the same as no --resume.
inline void refuse_empty_values(CLI::App& app) {
  const CLI::Validator not_empty(
      [](std::string& text) {
        return text.empty() ? std::string("the value is empty") : std::string();
      },
      "");
  for (CLI::Option* option : app.get_options()) {
    const bool is_switch = option->get_items_expected_max() == 0;
    if (!is_switch) option->transform(not_empty);  // before the checks of the option's own
  }
  for (CLI::App* command : app.get_subcommands(nullptr)) refuse_empty_values(*command);
}

}  // namespace ckpt::base

// Errors of command lines, the same for every program that parses with CLI11: the sentence names
// the program, its verb and the argument, and suggests the nearest verb or flag.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/console.h"
#include "formats/base/printable.h"

namespace ckpt::base {

inline constexpr int kBadUsageExit = 2;

// Edit distance: insertions, deletions and exchanges of one letter, and swaps of two neighbours.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  std::iota(rows[0].begin(), rows[0].end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t differs = a[i - 1] == b[j - 1] ? 0 : 1;
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + differs});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

// The nearest of `names`; empty if none is close. Text longer than any name is not a typo.
inline std::string nearest_name(const std::string& typed, const std::vector<std::string>& names) {
  constexpr size_t kNameBytesMax = 64;
  if (typed.size() > kNameBytesMax) return {};
  std::string nearest;
  size_t least = std::max<size_t>(typed.size() / 3, 1) + 1;
  for (const std::string& name : names) {
    const bool begins = typed.size() >= 3 && name.starts_with(typed);
    const size_t distance = begins ? 1 : edit_distance(typed, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

namespace cli_errors {

// Verbs without a group are internal: the help does not list them either.
inline std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name().empty() || verb->get_group().empty()) continue;
    names.push_back(verb->get_name());
  }
  return names;
}

// The flags that the command line of `app` takes: a parent's only if `app` passes them on.
inline std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  const auto next = [](const CLI::App& level) {
    return level.get_fallthrough() ? level.get_parent() : nullptr;
  };
  for (const CLI::App* level = &app; level != nullptr; level = next(*level)) {
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

// The innermost verb that the command line has named.
inline const CLI::App* chosen_verb(const CLI::App* app) {
  auto chosen = app->get_subcommands();
  while (!chosen.empty()) {
    app = chosen.back();
    chosen = app->get_subcommands();
  }
  return app;
}

inline std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

inline std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

inline std::string quoted(const std::string& text) { return "`" + printable(text) + "`"; }

inline std::string with_suggestion(const std::string& text, const std::string& nearest) {
  return nearest.empty() ? text : text + "; did you mean " + quoted(nearest) + "?";
}

inline std::string about_extra(const CLI::App& verb, const std::string& extra, bool takes_verb) {
  if (extra.starts_with("-")) {
    const std::string flag = extra.substr(0, extra.find('='));
    return with_suggestion("unknown flag " + quoted(flag), nearest_name(flag, flag_names(verb)));
  }
  if (!takes_verb) return "one argument too many: " + quoted(extra);
  const auto names = verb_names(verb);
  const std::string nearest = nearest_name(extra, names);
  const std::string text = "unknown command " + quoted(extra);
  return nearest.empty() ? text + "; the commands are " + joined(names)
                         : with_suggestion(text, nearest);
}

// "--data-dir is given twice", from CLI11's message `what`; empty if `what` is another message.
inline std::string about_repeated(const std::string& what) {
  constexpr std::string_view kAtMostOne = ": At Most 1 required but received ";
  const size_t at = what.find(kAtMostOne);
  if (at == std::string::npos) return {};
  const std::string count = what.substr(at + kAtMostOne.size());
  return what.substr(0, at) + " is given " + (count == "2" ? "twice" : count + " times");
}

// The unknown verb on a command line that asks for help; empty if there is none. CLI11 answers such
// a line with the help of the program.
inline std::string unknown_verb(const CLI::App& app, const CLI::App& verb,
                                const CLI::ParseError& error) {
  if (error.get_name() != "CallForHelp" || &verb != &app || verb_names(app).empty()) return {};
  const std::vector<std::string> extras = app.remaining(true);
  return extras.empty() || extras.front().starts_with("-") ? std::string() : extras.front();
}

// A lone "-" is an argument.
inline bool is_flag(const std::string& argument) {
  return argument.size() > 1 && argument.starts_with("-");
}

// The sentence without the program and its verb.
inline std::string sentence(const CLI::App& app, const CLI::App& verb,
                            const CLI::ParseError& error) {
  const bool lacks_verb = &verb == &app && !verb_names(app).empty();
  const std::vector<std::string> extras = app.remaining(true);
  const auto flag = std::ranges::find_if(extras, is_flag);
  if (flag != extras.end() && !lacks_verb) return about_extra(verb, *flag, false);
  // An error of a verb has the verb as its name, so that the code tells its kind.
  const bool is_extra = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (!extras.empty() && (lacks_verb || is_extra)) {
    const bool named = !extras.front().starts_with("-");
    if (named || !lacks_verb) return about_extra(verb, extras.front(), lacks_verb);
  }
  if (lacks_verb) return "a command is missing: one of " + joined(verb_names(app));
  std::string what = error.what();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError)) {
    constexpr std::string_view kRequired = " is required";
    if (what.ends_with(kRequired)) {
      what.resize(what.size() - kRequired.size());
      return "the argument " + cli_errors::quoted(what) + " is missing";
    }
  }
  if (const std::string repeated = about_repeated(what); !repeated.empty()) return repeated;
  // "--limit: 1 required UINT missing"
  if (const size_t at = what.find(": 1 required "); at != std::string::npos) {
    return what.substr(0, at) + " needs a value";
  }
  return escaped(what);
}

// True if an argument is missing or surplus: then examples of the verb help. An error of a flag, or
// of its value, needs none.
inline bool is_about_arguments(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> extras = app.remaining(true);
  if (std::ranges::any_of(extras, is_flag)) return false;
  const int code = error.get_exit_code();
  return code == static_cast<int>(CLI::ExitCodes::RequiredError) ||
         code == static_cast<int>(CLI::ExitCodes::ExtrasError);
}

// The examples at the end of a verb's help; empty if there are none.
inline std::string examples(const CLI::App& verb) {
  const std::string footer = verb.get_footer();
  const size_t at = std::min(footer.find("Examples:\n"), footer.find("Example:\n"));
  return at == std::string::npos ? std::string() : footer.substr(at);
}

}  // namespace cli_errors

// Call this with the exception of app.parse(). Prints help and version as CLI11 does, and returns
// 0; or prints the error on stderr, and returns 2.
inline int report_usage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& verb = *cli_errors::chosen_verb(&app);
  const std::string name = cli_errors::full_name(verb);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    const std::string unknown = cli_errors::unknown_verb(app, verb, error);
    if (unknown.empty()) {
      std::ostringstream text;
      const int exit_code = app.exit(error, text, text);
      write_stdout_exactly(text.str());  // notes the cause if stdout does not take it
      return exit_code;
    }
    print_stderr("{}: {}\n`{} --help` tells more\n", name,
                 cli_errors::about_extra(verb, unknown, true), name);
    return kBadUsageExit;
  }
  print_stderr("{}: {}\n", name, cli_errors::sentence(app, verb, error));
  if (&verb != &app && cli_errors::is_about_arguments(app, error)) {
    const std::string examples = cli_errors::examples(verb);
    if (!examples.empty()) print_stderr("{}\n", examples);
  }
  print_stderr("`{} --help` tells more\n", name);
  return kBadUsageExit;
}

}  // namespace ckpt::base

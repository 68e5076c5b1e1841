// The verbs of ckptctl: their command lines, and the action of each. main.cc runs the verb that
// the user chose.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "client/ctl/link.h"

namespace ckptctl {

// Options of every verb.
struct Common {
  std::string socket;
  std::string output = "table";  // or "json"
  bool json = false;             // --json: the same as -o json
  uint64_t page_bytes = 0;       // page size of paged answers; 0: as much as a message holds
  bool wants_json() const { return json || output == "json"; }
};

// Result of a verb, to be printed.
struct Outcome {
  Json document;
  std::function<std::string(const Json&)> print;
  int exit_code = 0;
};
using Verb = std::function<Result<Outcome>()>;

// Adds all verbs to `app`; `chosen` is set to the one the command line names.
void add_verbs(CLI::App& app, const Common& common, Verb& chosen);

}  // namespace ckptctl

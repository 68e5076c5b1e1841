// The verbs of ckptctl: their command lines, and what each does. main.cc runs the one that was
// chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "client/ctl/link.h"

namespace ckptctl {

// What every verb takes.
struct Common {
  std::string socket;
  std::string output = "table";  // or "json"
  bool json = false;             // --json: the same as -o json
  uint64_t page_bytes = 0;       // of answers that come in pages; 0: as many as a message holds
  bool wants_json() const { return json || output == "json"; }
};

// What a verb leaves to print.
struct Outcome {
  Json document;
  std::function<std::string(const Json&)> print;
  int exit_code = 0;
};
using Verb = std::function<Result<Outcome>()>;

// Adds all verbs to `app`; `chosen` is set to the one the command line names.
void add_verbs(CLI::App& app, const Common& common, Verb& chosen);

}  // namespace ckptctl

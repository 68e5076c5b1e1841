// Output of every bench: absolute numbers, with the machine, the shape and the limit they are
// compared with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/common/paired.h"

namespace bench {

// CPU, cores, memory, kernel, file system of `directory`.
nlohmann::json machine(const std::string& directory);

struct Outcome {
  std::string bench;           // "save"
  nlohmann::json shape;        // parameters of the bench
  std::string unit;            // "bytes/s"
  std::string limit_name;      // description of the limit
  double pass_ratio = 0;       // "pass" if the whole interval is at or above this ratio ...
  bool more_is_better = true;  // ... or at or below it
};
// The document of cli.md, with intervals, the spread of the limit against itself and the verdict.
nlohmann::json to_json(const Outcome& outcome, const Paired& paired, const nlohmann::json& machine);
// The same document as a few lines of text for the terminal.
std::string to_text(const nlohmann::json& document);

// Prints a line of progress to stderr.
void say(const std::string& line);

}  // namespace bench

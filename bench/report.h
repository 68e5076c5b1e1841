// What every bench prints: absolute numbers, with the machine, the shape and the limit they are
// held against.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/paired.h"

namespace bench {

// CPU, cores, memory, kernel, file system of `directory`.
nlohmann::json machine(const std::string& directory);

struct Outcome {
  std::string bench;           // "save"
  nlohmann::json shape;        // what was run
  std::string unit;            // "bytes/s"
  std::string limit_name;      // what the limit is
  double pass_ratio = 0;       // "pass" if the whole interval is at or above this ratio ...
  bool more_is_better = true;  // ... or at or below it
};
// The document of cli.md, with intervals, the ratio of the limit with itself and the verdict.
nlohmann::json to_json(const Outcome& outcome, const Paired& paired, const nlohmann::json& machine);
// The same in a few lines for people.
std::string to_text(const nlohmann::json& document);

// How a bench goes, to stderr.
void say(const std::string& line);

}  // namespace bench

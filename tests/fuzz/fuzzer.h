// Fuzzer: feeds a parser with mutated valid inputs, seeded, so that a finding is repeated by its
// seed alone.
//
// In the suite each target gets a fixed number of inputs. ./dev fuzz SECONDS builds with sanitizers
// and sets CKPT_FUZZ_SECONDS and CKPT_FUZZ_SEED: then each target runs that long. When a parser
// aborts, the target, the seed and the input's number are printed before the process ends.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/bytes.h"

namespace ckpt::fuzz {

using Bytes = std::vector<std::byte>;

struct Target {
  std::string name;
  std::vector<Bytes> corpus;  // valid inputs, at least one
  // Parses the bytes. Returns what is wrong with the parser's answer, for example a value that does
  // not survive encoding and decoding; nothing if the input was refused or read correctly.
  std::function<std::optional<std::string>(ByteView)> feed;
  // Makes checksums right again, so that mutations reach what they protect. Half of the inputs
  // pass through it. May be empty.
  std::function<void(Bytes&)> repair;
};

struct Finding {
  uint64_t seed = 0;
  uint64_t input = 0;
  std::string what;
};

// Runs the target; the first finding ends it.
std::optional<Finding> run(const Target& target);

// The same for a given seed and number of inputs, whatever the environment says.
std::optional<Finding> run(const Target& target, uint64_t seed, uint64_t inputs);

}  // namespace ckpt::fuzz

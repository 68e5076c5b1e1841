// Inputs for a fuzz target: each a pure function of (target, seed, iteration), so that one line
// repeats any of them.
#pragma once

#include <cstdint>

#include "tests/fuzz/target.h"

namespace ckpt::fuzz {

class Mutator {
 public:
  Mutator(const Target& target, uint64_t seed)
      : target_(target), seeds_(target.seeds()), seed_(seed) {}

  // Most iterations change one of the valid seeds in one to eight places and make its checksums
  // right again half the time; some are random bytes from end to end.
  Bytes input(uint64_t iteration) const;

 private:
  const Target& target_;
  std::vector<Bytes> seeds_;
  uint64_t seed_;
};

}  // namespace ckpt::fuzz

// ckptbench placement: what replicas are worth under skewed load, in real runs of moetrain.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace bench {

struct PlacementBenchOptions {
  std::string directory = ".";
  double skew = 1.2;   // moetrain --router-skew
  uint32_t ranks = 2;  // each on its own CPU, if there are enough
  uint32_t slots = 9;  // of 16 experts, of the policies that replicate
  uint32_t replicas_min = 1;
  uint32_t sequences = 128;  // of 64 tokens, in each step
  std::vector<std::string> policies = {"lazarus", "frontier"};
  int orders = 3;  // of popular experts, --router-skew-order 0 and up: static placement is lucky
                   // with one and unlucky with another
  int rounds = 2;  // of each order, at least 2
};

// One run with static placement for each order trains until routing is known and saves; every run
// that counts goes on from there, so that policies plan from that history. A round is one run of
// every arm with every order, in turns; each policy is compared with the static run of its round
// and order.
ckpt::Result<nlohmann::json> bench_placement(const PlacementBenchOptions& options);
std::string placement_text(const nlohmann::json& document);

}  // namespace bench

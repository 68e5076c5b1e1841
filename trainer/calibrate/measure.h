// Measures parameters of the simulator's cost model on this machine: a short real training on one
// rank, collectives between processes' communicators over the loopback interface, and the copy into
// an arena. A run of `moetrain run` measures the times of ckptd and of the supervisor
// (trainer/cli/calibrate.cc), not this.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/train_config.h"

namespace moetrain::calibrate {

struct Compute {
  double dense_us_per_token = 0;   // everything that does not scale with top_k, all layers
  double expert_us_per_token = 0;  // one expert in one layer
};
// `steps` steps (>= 1; the fastest counts: others share the machine) with top_k 1 and 2; the cost
// of the second choice is the experts', the rest is dense. kInvalidArgument: only one expert.
Result<Compute> measure_compute(const TrainConfig& config, std::span<const uint8_t> text,
                                uint32_t steps);

struct Network {
  double all_to_all_bytes_per_s = 0;  // of a rank
  double all_to_all_latency_us = 0;   // of an exchange of one value each
  double all_reduce_bytes_per_s = 0;  // gradient bytes * 2 (n-1)/n / time
};
// Measures `ranks` communicators (2 to kRanksMax) in threads, connected as between processes; the
// median of several runs. Errors are those of the communicators.
Result<Network> measure_network(uint32_t ranks, uint64_t bytes);
inline constexpr uint32_t kRanksMax = 64;  // threads of one process, all of them busy

// Bytes per second of a copy with checksum of `bytes`, as in a snapshot; the best of several.
double measure_copy(uint64_t bytes);

}  // namespace moetrain::calibrate

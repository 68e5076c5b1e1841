// Helpers that the checks of training share.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "bench/service/gpu/state_sink.h"
#include "tests/kernels/checker.h"
#include "tests/trainer/training/training.h"
#include "trainer/device/cuda_device.h"

namespace moetrain {

using bench::gpu::StateSink;
using ckpt::kernels::Check;
using ckpt::kernels::Checker;

// Timeout of each wait: for the device, for a snapshot, and of ranks for each other. Under
// compute-sanitizer a kernel takes minutes.
constexpr uint32_t kTimeoutMs = 600'000;

// Parameters of the checks.
struct Sizes {
  TrainConfig small;   // for repeated steps
  TrainConfig deeper;  // more layers, grouped queries, gradient accumulation
  uint32_t ranks = 0;
  uint64_t steps = 0;           // before and after a snapshot
  uint64_t compared_steps = 0;  // steps compared with the host
  TrainConfig followed;         // for bf16 compared with fp32
  uint64_t followed_steps = 0;
  StateSink::Options sink;
  // Bounds of ||a - b|| / ||b|| for a tensor, and of a loss. Only the order of sums and the
  // rounding of functions differ. After some steps of Adam the error is larger: Adam divides a
  // gradient by its own size, however small.
  double tolerance = 1e-5;
  double trained_tolerance = 0;
  double trained_loss_tolerance = 0;
};

std::span<const uint8_t> check_text();
MakeDevice on_gpu(Precision precision);
TrainConfig with(TrainConfig config, Precision precision);
// The configuration with a random seed, drawn from the check's random numbers.
TrainConfig drawn(Checker& c, const TrainConfig& config, Precision precision);

// Trains; returns the first rank's result with the experts of all ranks. Adds a finding if a step
// failed, or if the losses differ between ranks.
std::optional<TrainedRank> first_of(Checker& c, const Training& training);

// Checks each tensor, or each loss. `tolerance` is relative to the expected norm.
void expect_close(Checker& c, const State& values, const State& expected, double tolerance);
void expect_close(Checker& c, const std::vector<float>& losses, const std::vector<float>& expected,
                  double tolerance);

// bf16_checks.cc: rounding occasionally routes a token to another expert.
// Compares two computations of one step: gradients of dense tensors, of experts with the same
// number of tokens in both, and of all experts together. Notes how many tokens moved.
void expect_close_but_for_moved(Checker& c, const ModelConfig& shape, const TrainedRank& value,
                                const TrainedRank& expected);
void check_bf16(Checker& c, const Sizes& sizes);

// resume_checks.cc: resuming from a snapshot, on the same and on another number of ranks.
void check_resume(Checker& c, const Sizes& sizes, Precision precision);
void check_other_ranks(Checker& c, const Sizes& sizes, uint32_t from, uint32_t to);

// snapshot_checks.cc: snapshots of pool memory, and snapshots during a graph capture.
void check_pool_memory(Checker& c, const Sizes& sizes);
void check_beside_a_capture(Checker& c, const Sizes& sizes);

// group_checks.cc: a group that loses a rank, and takes in a joining rank.
void check_changing_group(Checker& c, const Sizes& sizes);

// nccl_checks.cc: NCCL in a group of one rank.
void check_nccl_group_of_one(Checker& c);

}  // namespace moetrain

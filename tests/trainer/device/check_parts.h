// What the checks of training have in common.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "bench/gpu/state_sink.h"
#include "tests/kernels/checker.h"
#include "tests/trainer/training/training.h"
#include "trainer/device/cuda_device.h"

namespace moetrain {

using bench::gpu::StateSink;
using ckpt::kernels::Check;
using ckpt::kernels::Checker;

// Of each wait: for the device, for a snapshot's bytes, and of ranks for one another. Under
// compute-sanitizer a kernel takes minutes.
constexpr uint32_t kTimeoutMs = 600'000;

// What a check is run with.
struct Sizes {
  TrainConfig small;   // for steps that are repeated
  TrainConfig deeper;  // more layers, grouped queries, gradients that are added up
  uint32_t ranks = 0;
  uint64_t steps = 0;           // on both sides of a snapshot
  uint64_t compared_steps = 0;  // with the host's
  TrainConfig followed;         // bf16 beside fp32
  uint64_t followed_steps = 0;
  StateSink::Options sink;
  // Of ||a - b|| / ||b|| for a tensor, and of a loss. Only the order of sums differs, and how the
  // device rounds functions; after some steps of Adam, which divides a gradient by its own size
  // however small that is, more.
  double tolerance = 1e-5;
  double trained_tolerance = 0;
  double trained_loss_tolerance = 0;
};

std::span<const uint8_t> check_text();
MakeDevice on_gpu(Precision precision);
TrainConfig with(TrainConfig config, Precision precision);
// With parameters and an order of the data that the check's own random numbers draw.
TrainConfig drawn(Checker& c, const TrainConfig& config, Precision precision);

// What the first rank has, with the experts of all; says so if a step was not done, or the losses
// are not the same on all.
std::optional<TrainedRank> first_of(Checker& c, const Training& training);

// Of each tensor, and of each loss, by a part of the expected one's norm.
void expect_close(Checker& c, const State& values, const State& expected, double tolerance);
void expect_close(Checker& c, const std::vector<float>& losses, const std::vector<float>& expected,
                  double tolerance);

// bf16_checks.cc: where rounding moves a token to another expert now and then.
// Two ways to one step: gradients of dense tensors, of experts that have as many tokens both ways,
// and of all experts together. Says how much has moved.
void expect_close_but_for_moved(Checker& c, const ModelConfig& shape, const TrainedRank& value,
                                const TrainedRank& expected);
void check_bf16(Checker& c, const Sizes& sizes);

// resume_checks.cc: what goes on from a snapshot, on as many ranks and on others.
void check_resume(Checker& c, const Sizes& sizes, Precision precision);
void check_other_ranks(Checker& c, const Sizes& sizes, uint32_t from, uint32_t to);

// snapshot_checks.cc: snapshots of memory that no model has, and beside what no model does.
void check_pool_memory(Checker& c, const Sizes& sizes);
void check_beside_a_capture(Checker& c, const Sizes& sizes);

// group_checks.cc: a group that loses a rank, and lets one in.
void check_changing_group(Checker& c, const Sizes& sizes);

// nccl_checks.cc: what a group of one can show of NCCL.
void check_nccl_group_of_one(Checker& c);

}  // namespace moetrain

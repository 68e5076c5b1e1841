// What the checks of training have in common.
#pragma once

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

// What a check is run with.
struct Sizes {
  TrainConfig small;   // for steps that are repeated
  TrainConfig deeper;  // more layers, grouped queries, gradients that are added up
  uint32_t ranks = 0;
  uint64_t steps = 0;           // on both sides of a snapshot
  uint64_t compared_steps = 0;  // with the host's
  uint64_t followed_steps = 0;  // bf16 beside fp32
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

// Of each tensor, and of each loss, by a part of the expected one's norm.
void expect_close(Checker& c, const State& values, const State& expected, double tolerance);
void expect_close(Checker& c, const std::vector<float>& losses, const std::vector<float>& expected,
                  double tolerance);

// resume_checks.cc: what goes on from a snapshot, on as many ranks and on others.
void check_resume(Checker& c, const Sizes& sizes, Precision precision);
void check_other_ranks(Checker& c, const Sizes& sizes, uint32_t from, uint32_t to);

// group_checks.cc: a group that loses a rank, and lets one in.
void check_changing_group(Checker& c, const Sizes& sizes);

}  // namespace moetrain

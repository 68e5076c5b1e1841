// Automatic configuration of the checkpoint interval and expert count, from measured times.
//
// Three bounds interact (MoC-System, ASPLOS 2025):
//   hide       a snapshot's copy takes at most a given part of one step's forward and backward.
//              That gives K_snapshot, the most experts of each layer that a snapshot may copy.
//   sustain    a checkpoint is durable within one checkpoint interval.
//   failures   the interval that loses least time (below). K_persist is the largest K up to
//              K_snapshot that storage sustains at the best interval for that K.
//
// Time is lost to the copies and to work redone after a failure. With C seconds for a
// copy every tau seconds of training, and M seconds between failures, the loss is least at
//   tau = sqrt(2 C M)                                                   first order
//   tau = sqrt(2 C M) (1 + x/3 + x^2/9) - C,  x = sqrt(C / 2M)          if C < 2 M, otherwise M
// (J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
// J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS
// 22(3), 2006). A snapshot that is not durable when a rank fails does not count; that loses
// the time to durable as well, at any interval, so the optimum is the same.
//
// M is estimated from the failures of this run: with n failures in T seconds of training, the rate
// is (n + 1/2) / T, the posterior mean of a Poisson rate (Jeffreys' prior, a
// gamma distribution of shape 1/2). The mean, because the time lost is linear in the rate. A run
// without a failure behaves as if it had had half of one: its interval grows with the square
// root of its age.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moetrain {

// Failures observed so far.
struct FailureRecord {
  uint64_t failures = 0;
  double seconds = 0;  // of training, >= 0
};
// Mean seconds of training between failures, as above; 0 before any time has passed.
double mean_time_between_failures_s(const FailureRecord& record);

// The formulas above. `cost_s` >= 0 and `mtbf_s` >= 0; 0 if one of them is.
double young_interval_s(double cost_s, double mtbf_s);
double daly_interval_s(double cost_s, double mtbf_s);

// Measured costs of the slowest rank, in a run whose checkpoints take K experts of each layer.
struct MeasuredCosts {
  double step_s = 0;              // a step without snapshots: forward, backward, update; > 0
  double stall_s_per_byte = 0;    // training blocked by a snapshot, per byte of all ranks
  double durable_s_per_byte = 0;  // from begin until known to be durable
  double restore_s = 0;           // from a failure until training continues; for reports only
  uint64_t dense_bytes = 0;       // in every checkpoint
  uint64_t expert_bytes = 0;      // of one expert in each layer
  uint32_t experts = 1;           // N, per layer
  FailureRecord failures;

  double bytes(uint32_t k) const {
    return static_cast<double>(dense_bytes) + static_cast<double>(expert_bytes) * k;
  }
  double stall_s(uint32_t k) const { return stall_s_per_byte * bytes(k); }
  double durable_s(uint32_t k) const { return durable_s_per_byte * bytes(k); }
};

struct AutoLimits {
  // Part of a step that a copy may take. If the copy blocks, a step with a snapshot is slower by
  // this part; a copy that a GPU makes during computation may take the whole step (1).
  double copy_part_max = 0.25;
  double interval_max_s = 1800;    // maximum acceptable redone work, however rare failures are
  uint64_t steps_max = 1'000'000;  // the same, if a step takes almost no time
};

// K_snapshot: the most experts whose copy stays hidden; at least 1.
uint32_t largest_hidden_k(const MeasuredCosts& costs, const AutoLimits& limits);
// The shortest interval in steps that storage sustains; at least 1.
uint64_t sustainable_steps(const MeasuredCosts& costs, uint32_t k, const AutoLimits& limits);
// Experts of each layer in a snapshot.
struct SnapshotExperts {
  uint32_t written = 1;
  uint32_t copied = 1;  // >= written: includes those that stay in ckptd's memory
};
// Daly's interval in steps, at least what storage sustains, and at most the limits; storage wins a
// conflict.
uint64_t best_steps(const MeasuredCosts& costs, const SnapshotExperts& k, const AutoLimits& limits);
// Expected fraction of time lost with these checkpoints: copies, redone work, restores. First order
// in 1/M; for reports.
double expected_lost_part(const MeasuredCosts& costs, const SnapshotExperts& k,
                          uint64_t every_steps);

// Requested settings; missing ones are chosen.
struct AutoRequest {
  std::optional<uint64_t> every;  // steps, >= 1
  std::optional<uint32_t> k;      // 1 .. experts
  uint32_t k_min = 1;             // lower bound from dynamic K
  // True: experts are kept in memory beside the written ones. k_snapshot: the number of experts in
  // a snapshot then; nothing: as many as stay hidden.
  bool memory = false;
  std::optional<uint32_t> k_snapshot;
};
struct AutoChoice {
  uint64_t every = 1;        // checkpoint interval in steps
  uint32_t k_persist = 1;    // experts of each layer that are written
  uint32_t k_hidden = 1;     // experts whose copy stays hidden
  uint32_t k_snapshot = 1;   // experts that are copied, >= k_persist
  uint64_t sustainable = 1;  // steps: the shortest sustainable interval for k_persist
  double best_s = 0;         // Daly's interval for it, unbounded
  double mtbf_s = 0;
  double lost_part = 0;
};
AutoChoice choose(const MeasuredCosts& costs, const AutoRequest& request, const AutoLimits& limits);

// Explains a choice in one line: its inputs and what follows from them.
std::string explain(const MeasuredCosts& costs, const AutoChoice& choice);

}  // namespace moetrain

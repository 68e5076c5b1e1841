// Automatic configuration: how often to checkpoint, and how many experts, from measured times.
//
// Three things bound each other (MoC-System, ASPLOS 2025):
//   hide       a snapshot's copy takes at most a stated part of one step's forward and backward.
//              That gives K_snapshot, the most experts of each layer that a snapshot may copy.
//   sustain    a checkpoint is durable in no more time than there is from one to the next.
//   failures   the interval that loses least time (below). K_persist is the largest K up to
//              K_snapshot that storage sustains at the interval which is best for it.
//
// Time is lost to the copies and to what a failure makes the run do again. With C seconds for a
// copy every tau seconds of training, and M seconds from one failure to the next, it is least at
//   tau = sqrt(2 C M)                                                   first order
//   tau = sqrt(2 C M) (1 + x/3 + x^2/9) - C,  x = sqrt(C / 2M)          if C < 2 M, otherwise M
// (J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
// J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS
// 22(3), 2006). A snapshot that is not durable yet when a rank fails does not count; that loses
// the time to durable as well, whatever the interval, so the optimum stays where it is.
//
// M is estimated, from the failures of this run: with n of them in T seconds of training the rate
// is (n + 1/2) / T, the mean of what is believed of a Poisson rate after that (Jeffreys' prior, a
// gamma distribution of shape 1/2). The mean, because the time lost is linear in the rate. A run
// that has seen no failure behaves as if it had seen half of one: its interval goes with the square
// root of its age.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moetrain {

// What was seen of failures so far.
struct FailureRecord {
  uint64_t failures = 0;
  double seconds = 0;  // of training, >= 0
};
// Seconds of training from one failure to the next, as above; 0 before any time has passed.
double mean_time_between_failures_s(const FailureRecord& record);

// The formulas above. `cost_s` >= 0 and `mtbf_s` >= 0; 0 if one of them is.
double young_interval_s(double cost_s, double mtbf_s);
double daly_interval_s(double cost_s, double mtbf_s);

// What was measured, of the slowest rank; of a run whose checkpoints take K experts of each layer.
struct MeasuredCosts {
  double step_s = 0;              // a step without snapshots: forward, backward, update; > 0
  double stall_s_per_byte = 0;    // training blocked by a snapshot, per byte of all ranks
  double durable_s_per_byte = 0;  // from its begin until it is known to be durable
  double restore_s = 0;           // from a failure until training goes on; to tell, not to decide
  uint64_t dense_bytes = 0;       // of every checkpoint
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
  // Of a step, that a copy may take. Where the copy blocks, training is slower by this in a step
  // with a snapshot; a copy that a GPU makes beside the arithmetic may take all of it (1).
  double copy_part_max = 0.25;
  double interval_max_s = 1800;    // work that nobody wants to do again, however rare failures are
  uint64_t steps_max = 1'000'000;  // the same, where a step takes no time to speak of
};

// K_snapshot: the most experts whose copy hides; at least 1.
uint32_t largest_hidden_k(const MeasuredCosts& costs, const AutoLimits& limits);
// The fewest steps from one checkpoint to the next that storage sustains; at least 1.
uint64_t sustainable_steps(const MeasuredCosts& costs, uint32_t k, const AutoLimits& limits);
// Experts of each layer in a snapshot.
struct SnapshotExperts {
  uint32_t written = 1;
  uint32_t copied = 1;  // >= written: those that stay in ckptd's memory, too
};
// Daly's interval in steps, not below what storage sustains, and not above the limits; where these
// contradict, storage wins.
uint64_t best_steps(const MeasuredCosts& costs, const SnapshotExperts& k, const AutoLimits& limits);
// Part of all time that is expected to be lost with these checkpoints: copies, work done again,
// restores. To first order in 1/M; for people.
double expected_lost_part(const MeasuredCosts& costs, const SnapshotExperts& k,
                          uint64_t every_steps);

// What is asked for; what is not is chosen.
struct AutoRequest {
  std::optional<uint64_t> every;  // steps, >= 1
  std::optional<uint32_t> k;      // 1 .. experts
  uint32_t k_min = 1;             // dynamic K has come to this: not less is chosen
  // Are experts kept in memory beside those that are written, and how many experts does a snapshot
  // have then? Nothing: as many as hide.
  bool memory = false;
  std::optional<uint32_t> k_snapshot;
};
struct AutoChoice {
  uint64_t every = 1;        // steps from one checkpoint to the next
  uint32_t k_persist = 1;    // experts of each layer that are written
  uint32_t k_hidden = 1;     // whose copy hides
  uint32_t k_snapshot = 1;   // that are copied, >= k_persist
  uint64_t sustainable = 1;  // steps: the smallest interval for k_persist
  double best_s = 0;         // Daly's interval for it, unbounded
  double mtbf_s = 0;
  double lost_part = 0;
};
AutoChoice choose(const MeasuredCosts& costs, const AutoRequest& request, const AutoLimits& limits);

// The reasons of a choice in one line: the numbers that went in and what follows from them.
std::string explain(const MeasuredCosts& costs, const AutoChoice& choice);

}  // namespace moetrain

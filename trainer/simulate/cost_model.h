// CostModel: costs of the simulated cluster's operations. Every number has a name in a TOML file, a
// unit and a range; bench/results/simulation.md lists the shipped ones with sources.
//
// A step of a group of n ranks that each bring b = samples_per_rank * tokens_per_sample tokens:
//
//   dense       b * dense_us_per_token
//   experts     sum over layers of imbalance_l * b * top_k * expert_us_per_token
//   all-to-all  (1 - all_to_all_overlap) * 4 * sum over layers of
//               ( latency + imbalance_l * b * top_k * hidden * 2 bytes * (n-1)/n / bandwidth )
//   gradients   (1 - all_reduce_overlap) * 2 bytes / bandwidth * ( 2 (m-1)/m * dense_parameters
//               + slots * layers * expert_parameters * 2 (r-1)/r )
//   and step_fixed_us
//
// where imbalance_l is the largest load of a rank over the mean (the slowest rank sets
// the pace of a layer), m is the number of training ranks, and r = n * slots / experts, an expert's
// mean number of replicas. Four all-to-alls are dispatch and combine, forward and backward.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "formats/base/result.h"
#include "trainer/simulate/trace.h"

namespace moetrain::simulate {

struct CostModel {
  // [model]
  double layers = 1;             // with experts
  double experts = 1;            // of a layer
  double top_k = 1;              // experts for each token
  double hidden = 1;             // width of a row sent to an expert
  double dense_parameters = 0;   // replicated on every rank
  double expert_parameters = 1;  // of one expert in one layer
  double tokens_per_sample = 1;
  double samples_per_rank = 1;  // of each step, however many ranks there are

  // [cluster]
  double ranks_per_node = 1;   // they come and go together
  double slots_per_rank = 1;   // experts of each layer on a rank, in systems with replicas
  double static_slots = 1;     // the same of classic expert parallelism: EP size = experts / this
  double group_ranks = 0;      // ranks that share one placement; 0: all
  double replicas_min = 1;     // f
  double bytes_per_parameter;  // of the state: weights, moments

  // [compute]
  double dense_us_per_token = 0;   // all layers, forward and backward, on one rank
  double expert_us_per_token = 0;  // one expert in one layer, forward and backward
  double step_fixed_us = 0;

  // [network]
  double all_to_all_bytes_per_s = 1;  // of a rank
  double all_to_all_latency_us = 0;
  double all_to_all_overlap = 0;      // fraction hidden by compute
  double all_reduce_bytes_per_s = 1;  // of a rank
  double all_reduce_overlap = 0;
  double transfer_bytes_per_s = 1;  // state moved to a node after a change of its placement

  // [checkpoint]
  double copy_bytes_per_s = 1;          // of a rank, from its training memory to host memory
  double copy_hidden = 0;               // fraction of a step that may hide a snapshot's copy
  double peer_bytes_per_s = 1;          // of a node, to another node's memory, in the background
  double remote_write_bytes_per_s = 1;  // of the shared store, for all nodes together
  double remote_read_bytes_per_s = 1;
  // 1: after a restart every rank loads its state from the shared store; 0: the store is read
  // once and ranks pass the state on for free.
  double every_rank_reads = 0;

  // [recovery]
  double timeout_s = 0;      // timeout of a collective: how the baselines detect a lost node
  double restart_s = 0;      // all processes of the job, until they can load a checkpoint
  double regroup_s = 0;      // new communicators in live processes
  double plan_s = 0;         // a placement
  double ours_detect_s = 0;  // in `ours`, these two replace timeout_s and regroup_s
  double ours_regroup_s = 0;
  double join_wait_s = 0;  // time to collect joining nodes before they are admitted

  // [intervals], in steps
  double ds_steps = 1;
  double ds_ft_steps = 1;
  double gemini_steps = 1;
  double moc_steps = 1;
  double lazarus_steps = 1;
  double ours_steps = 1;
  double replan_steps = 1;            // interval at which lazarus and ours check the load
  double experts_per_checkpoint = 1;  // K of moc and ours

  // [load], unless a routing trace is given
  double zipf = 0;         // popularity of the k-th most popular expert is proportional to k^-zipf
  double drift_steps = 1;  // loads stay the same for this many steps,
  double drift = 0;        // then this many exchanges of neighbours in the order, per expert
  double seed = 1;

  double checkpoint_bytes() const {
    return bytes_per_parameter * (dense_parameters + layers * experts * expert_parameters);
  }
  double expert_bytes() const { return bytes_per_parameter * expert_parameters; }
  double dense_bytes() const { return bytes_per_parameter * dense_parameters; }
  double tokens_per_rank() const { return samples_per_rank * tokens_per_sample; }
};

struct Parameter {
  std::string_view section, key;
  double CostModel::*field;
  double low, high;  // allowed range in a file
  bool whole;        // a count
  bool vary;         // varied by the sensitivity analysis: a time, a rate, a share, an interval
};
// All parameters, in the order of the struct.
std::span<const Parameter> parameters();

// Checks relations between the numbers: static_slots divides experts, an expert parallel group is
// whole nodes, a placement group can hold every expert replicas_min times, K is at most experts,
// top_k as well, and a placement is not larger than planners take. kInvalidArgument.
Status validate(const CostModel& model);

// Ranks of one classic expert parallel group.
uint32_t ep_ranks(const CostModel& model);

// A step's time by the formula above. `imbalance`: of each layer, or one value for
// all; `group`: ranks that share a placement, `ranks`: all that train, `slots` per rank.
struct StepShape {
  uint32_t group = 1;
  uint32_t ranks = 1;
  uint32_t slots = 1;
};
Micros step_time(const CostModel& model, const StepShape& shape, std::span<const double> imbalance);

// Converts seconds, rounded to a microsecond; at most kTraceMax, so that sums stay far from 2^63.
Micros micros(double seconds);

}  // namespace moetrain::simulate

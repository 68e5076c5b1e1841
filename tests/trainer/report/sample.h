// A report with every field set, for the tests of the report library.
#pragma once

#include <cmath>

#include "trainer/report/report.h"

namespace moetrain::report {

// A replan that moved experts, and a replan that did not.
inline std::vector<Replan> sample_replans(uint64_t steps) {
  return {{.step = steps / 3,
           .moved = true,
           .max_over_mean_before = 1.75,
           .max_over_mean_after = 1.125,
           .gain_ms = 420,
           .cost_ms = 35,
           .bytes = 6u << 20,
           .plan_ms = 4.5,
           .migrate_ms = 28,
           .layer = 1,
           .loads = {70, 10, 10, 10},
           .ranks_before = {{0, 1}, {2, 3}},
           .ranks_after = {{0}, {0, 1, 2, 3}}},
          {.step = steps * 2 / 3,
           .max_over_mean_before = 1.125,
           .max_over_mean_after = 1.0625,
           .gain_ms = 2,
           .cost_ms = 30,
           .bytes = 5u << 20,
           .plan_ms = 4,
           .loads = {40, 20, 20, 20},
           .ranks_before = {{0}, {0, 1, 2, 3}},
           .ranks_after = {{0, 1}, {0, 2, 3}}}};
}

inline std::vector<RankTime> sample_rank_times(uint64_t steps) {
  return {{.rank = 0,
           .steps = steps,
           .own_ms = 100,
           .waited_ms = 80,
           .slowest = steps / 10,
           .more_ms = 4},
          {.rank = 1,
           .steps = steps,
           .own_ms = 150,
           .waited_ms = 30,
           .slowest = steps - steps / 10,
           .more_ms = 50},
          {.rank = 3, .steps = steps / 30, .own_ms = 99, .waited_ms = 81}};
}

inline Unsaved sample_unsaved(uint64_t steps) {
  return {.since = steps / 3,
          .until = steps / 2,
          .ms = 34'500,
          .cause = "ckptd at /s does not answer",
          .saved = true};
}

inline ExpertExchange sample_exchange(uint64_t steps) {
  return {.steps = steps,
          .token_bytes = 3u << 20,
          .restore_bytes = 5u << 20,
          .reshard_bytes = 4u << 20,
          .exposed_ms = 12.5,
          .hidden_ms = 37.5,
          .plan_waits = 2,
          .plan_wait_ms = 0.75,
          .memory_bytes = 8u << 20,
          .memory_bound = 9u << 20};
}

inline MemberChange sample_change(uint64_t steps) {
  return {.step = steps / 4,
          .joined = {4, 5},
          .left = {1},
          .group = 5,
          .effective_replicas = 2,
          .bytes_moved = 7u << 20,
          .plan_ms = 1.5,
          .migrate_ms = 13.5,
          .memory_bytes = 6u << 20,
          .memory_bound = 70u << 20};
}

inline ckpt::SnapshotTimings sample_timings() {
  return {.plan_ns = 250'000,
          .begin_ns = 500'000,
          .slab_wait_ns = 1'000'000,
          .copy_ns = 4'000'000,
          .seal_ns = 375'000,
          .write_ns = 70'000'000,
          .sync_ns = 10'000'001,
          .journal_ns = 2'500'000};
}

inline Report sample_report(uint64_t steps = 60) {
  Report report{.saved_step = steps, .unsaved = {sample_unsaved(steps)}};
  report.ranks = 4;
  report.steps = steps;
  report.tokens_per_step = 2048;
  for (uint64_t step = 1; step <= steps; ++step) {
    const float share = static_cast<float>(step) / static_cast<float>(steps);
    report.losses.push_back({step, 2.0F + 3.5F * std::exp(-4.0F * share)});
    report.loads.push_back({step, 4096 + step, 1 + static_cast<double>(step % 4) / 4});
  }
  report.step_ms = {.p50 = 180.5, .p99 = 310.25};
  report.checkpoints = {.count = 12,
                        .bytes = 123'456'789,
                        .bytes_kept = 2u << 20,
                        .stall_ms_total = 44.25,
                        .stall_ms_max = 6.125,
                        .durable_ms_p50 = 88.5};
  report.checkpoints.each = {{.step = 10,
                              .bytes = 8u << 20,
                              .bytes_kept = 2u << 20,
                              .rank_bytes_max = 3u << 20,
                              .rank_bytes_mean = 2u << 20,
                              .stall_ms = 6.125,
                              .durable_ms = 88.5,
                              .timings = sample_timings()},
                             {.step = 20,
                              .bytes = 4u << 20,
                              .rank_bytes_max = 1u << 20,
                              .rank_bytes_mean = 1u << 20,
                              .stall_ms = 2,
                              .durable_ms = 40}};
  report.pace = {
      .every = 5, .experts = 2, .experts_per_snapshot = 3, .reason = "storage sustains 5 steps"};
  report.on_loss = {"restart", "as asked for"};
  report.failures.push_back(
      {.step = steps / 2,
       .at_step = steps / 2,
       .ranks = {2},
       .detected_ms = 4.5,
       .resumed_ms = 2130,
       .steps_lost = 3,
       .bytes = {.replica = 1, .memory = 5u << 20, .disk = 3u << 20, .peer = 2, .tier = 3},
       .stale_units = 7,
       .lost_tokens = 1'500,
       .experts_from_seed = 2});
  report.daemon_failures.push_back({.step = steps * 2 / 3, .down_ms = 1180});
  report.replans = sample_replans(steps);
  report.rank_times = sample_rank_times(steps);
  report.exchange = sample_exchange(steps);
  report.changes.push_back(sample_change(steps));
  report.plt = 0.25;
  report.plt_rollback = 0.0625;
  report.lost = {0, 1'000, 500, 0};
  return report;
}

}  // namespace moetrain::report

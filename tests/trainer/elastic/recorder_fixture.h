// A recorder of two ranks, and the events that they would send it.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "trainer/elastic/recorder.h"

namespace moetrain {

constexpr uint64_t kMs = 1'000'000;

inline uint32_t loss_at(uint64_t step) {
  return std::bit_cast<uint32_t>(6.0f / static_cast<float>(step));
}

class RecorderTest : public testing::Test {
 protected:
  RankEvent event(uint32_t rank, uint64_t step, EventBody body) {
    return {.header = {.rank = rank, .time_ns = now_ += kMs, .epoch = epoch_, .step = step},
            .body = std::move(body)};
  }
  void begin_epoch(uint64_t step, bool resumed, uint64_t bytes_each = 0) {
    ++epoch_;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      TrainingEvent training{.resumed = resumed};
      training.restored = {.bytes_memory = bytes_each / 2, .bytes_disk = bytes_each};
      if (resumed && rank == 1) training.restored.stale_units = {4};
      recorder_.add(event(rank, step, training));
    }
  }
  void do_step(uint64_t step, std::vector<uint32_t> ranks = {0, 1}) {
    for (const uint32_t rank : ranks) {
      recorder_.add(event(rank, step,
                          StepEvent{.loss_bits = loss_at(step),
                                    .ms = 10.0 + rank,
                                    .busiest_rows = static_cast<int64_t>(100 * step),
                                    .max_over_mean = 1.5}));
    }
  }
  void saved(uint64_t step, bool durable, std::vector<uint32_t> reporters = {0, 1}) {
    recorder_.add(
        event(0, step,
              TakingEvent{
                  .bytes = 200, .bytes_kept = 30, .rank_bytes_max = 120, .rank_bytes_mean = 100}));
    for (const uint32_t rank : reporters) {
      recorder_.add(event(rank, step,
                          SnapshotEvent{.durable = durable,
                                        .bytes = 80 + 40 * rank,
                                        .stall_ms = 1.0 + rank,
                                        .durable_ms = 7}));
    }
  }
  uint64_t now_ = 0;
  uint64_t epoch_ = 0;
  Recorder recorder_{2, 512};
};

}  // namespace moetrain

// A recorder of two ranks, and the events that they would send it.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "trainer/elastic/recorder.h"

namespace moetrain {

using Kind = RankEvent::Kind;
constexpr uint64_t kMs = 1'000'000;

inline uint32_t loss_at(uint64_t step) {
  return std::bit_cast<uint32_t>(6.0f / static_cast<float>(step));
}

class RecorderTest : public testing::Test {
 protected:
  RankEvent event(Kind kind, uint32_t rank, uint64_t step) {
    return {.kind = kind, .rank = rank, .time_ns = now_ += kMs, .epoch = epoch_, .step = step};
  }
  void begin_epoch(uint64_t step, bool resumed, uint64_t bytes_each = 0) {
    ++epoch_;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      RankEvent training = event(Kind::kTraining, rank, step);
      training.resumed = resumed;
      training.bytes_disk = bytes_each;
      training.bytes_memory = bytes_each / 2;
      if (resumed && rank == 1) training.stale_units = {4};
      recorder_.add(training);
    }
  }
  void do_step(uint64_t step, std::vector<uint32_t> ranks = {0, 1}) {
    for (const uint32_t rank : ranks) {
      RankEvent done = event(Kind::kStep, rank, step);
      done.loss_bits = loss_at(step);
      done.ms = 10 + rank;
      done.busiest_rows = static_cast<int64_t>(100 * step);
      done.max_over_mean = 1.5;
      recorder_.add(done);
    }
  }
  void saved(uint64_t step, bool durable, std::vector<uint32_t> told_by = {0, 1}) {
    RankEvent taking = event(Kind::kTaking, 0, step);
    taking.bytes = 200;
    taking.bytes_kept = 30;
    taking.rank_bytes_max = 120;
    taking.rank_bytes_mean = 100;
    recorder_.add(taking);
    for (const uint32_t rank : told_by) {
      RankEvent snapshot = event(Kind::kSnapshot, rank, step);
      snapshot.durable = durable;
      snapshot.bytes = 80 + 40 * rank;
      snapshot.stall_ms = 1 + rank;
      snapshot.durable_ms = 7;
      recorder_.add(snapshot);
    }
  }
  uint64_t now_ = 0;
  uint64_t epoch_ = 0;
  Recorder recorder_{2, 512};
};

}  // namespace moetrain

#include "trainer/elastic/exchange_totals.h"

#include <gtest/gtest.h>

namespace moetrain {
namespace {

void add(ExchangeTotals& totals, uint64_t epoch, uint32_t rank, uint64_t step,
         const ExpertExchange& experts) {
  totals.add(epoch, {.rank = rank, .step = step}, StepEvent{.experts = experts});
}

TEST(ExchangeTotals, ReportsStepMeansAndRankMaxima) {
  ExchangeTotals totals;
  EXPECT_FALSE(totals.report().has_value());
  // Every rank reports the bytes of all ranks.
  add(totals, 1, 0, 1,
      {.token_bytes = 10,
       .restore_bytes = 20,
       .reshard_bytes = 30,
       .exposed_ms = 2,
       .hidden_ms = 6,
       .plan_waits = 1,
       .plan_wait_ms = 0.5,
       .memory_bytes = 7,
       .memory_bound = 9});
  add(totals, 1, 1, 1,
      {.token_bytes = 10,
       .restore_bytes = 20,
       .reshard_bytes = 30,
       .exposed_ms = 4,
       .hidden_ms = 2,
       .plan_waits = 1,
       .plan_wait_ms = 1.5,
       .memory_bytes = 8,
       .memory_bound = 9});
  for (const uint32_t rank : {0u, 1u}) {
    add(totals, 1, rank, 2, {.token_bytes = 30, .restore_bytes = 40, .exposed_ms = 1});
  }
  const report::ExpertExchange all = *totals.report();
  EXPECT_EQ(all.steps, 2u);
  EXPECT_EQ(all.token_bytes, 20);
  EXPECT_EQ(all.restore_bytes, 30);
  EXPECT_EQ(all.reshard_bytes, 15);
  EXPECT_EQ(all.exposed_ms, 2);
  EXPECT_EQ(all.hidden_ms, 2);
  EXPECT_EQ(all.plan_waits, 1u);
  EXPECT_EQ(all.plan_wait_ms, 1.5);
  EXPECT_EQ(all.memory_bytes, 8u);
  EXPECT_EQ(all.memory_bound, 9u);
}

TEST(ExchangeTotals, BoundIsOfGroupWithMostMemory) {
  ExchangeTotals totals;
  add(totals, 1, 0, 1, {.memory_bytes = 7, .memory_bound = 20});  // four ranks, say
  add(totals, 2, 0, 2, {.memory_bytes = 14, .memory_bound = 15});
  add(totals, 3, 0, 3, {.memory_bytes = 7, .memory_bound = 20});
  EXPECT_EQ(totals.report()->memory_bytes, 14u);
  EXPECT_EQ(totals.report()->memory_bound, 15u);
}

TEST(ExchangeTotals, RepeatedStepCountsOnce) {
  ExchangeTotals totals;
  add(totals, 1, 0, 5, {.token_bytes = 10, .exposed_ms = 100});
  add(totals, 2, 0, 5, {.token_bytes = 12, .exposed_ms = 3});
  add(totals, 1, 1, 5, {.token_bytes = 10, .exposed_ms = 100});
  add(totals, 2, 1, 5, {.token_bytes = 12, .exposed_ms = 5});
  const report::ExpertExchange all = *totals.report();
  EXPECT_EQ(all.steps, 1u);
  EXPECT_EQ(all.token_bytes, 12);
  EXPECT_EQ(all.exposed_ms, 4);
}

}  // namespace
}  // namespace moetrain

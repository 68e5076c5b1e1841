// The schedule of sharded experts: no switch changes a bit, a byte or the bound on memory by more
// than it says, and a rank that is slow or lost never makes another one hang.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/trainer/comm/faulty_comm.h"
#include "tests/trainer/model/ranks.h"
#include "tests/trainer/parallel/sharded_run.h"
#include "trainer/comm/comm_thread.h"

namespace moetrain {
namespace {

constexpr ExpertSchedule kSchedules[] = {
    {.prefetch = 0, .delayed_reshard = false}, {.prefetch = 0, .delayed_reshard = true},
    {.prefetch = 1, .delayed_reshard = false}, {.prefetch = 1, .delayed_reshard = true},
    {.prefetch = 2, .delayed_reshard = false}, {.prefetch = 2, .delayed_reshard = true}};

std::string text_of(const ExpertSchedule& schedule) {
  return fmt::format("prefetch {} {}", schedule.prefetch,
                     schedule.delayed_reshard ? "delayed" : "inline");
}

// Deeper than the prefetch, so that every set of tensors is used again.
TrainConfig deep_config(uint32_t layers = 5) {
  TrainConfig config = odd_config();
  config.model.layers = layers;
  config.micro_batches = 2;
  return config;
}

PlacementOfStep random_of_step(const ModelConfig& shape, uint32_t ranks, uint32_t slots) {
  return [=](uint64_t step) { return random_placement(shape, ranks, slots, 100 * ranks + step); };
}

ShardedRun run_of(const TrainConfig& config, uint32_t ranks, uint64_t steps,
                  const ExpertSchedule& schedule, CommKind kind = CommKind::kLocal) {
  const uint32_t slots = (config.model.experts + ranks - 1) / ranks + 2;
  return {.config = config,
          .ranks = ranks,
          .steps = steps,
          .placement = random_of_step(config.model, ranks, slots),
          .kind = kind,
          .schedule = schedule};
}

TEST(Schedule, NoSwitchChangesABit) {
  const TrainConfig config = deep_config();
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
    ShardedRun run = run_of(config, ranks, 6, kSchedules[0]);
    const ShardedResult expected = train_sharded(run);
    for (const ExpertSchedule& schedule : kSchedules) {
      for (const bool threaded : {true, false}) {
        run.schedule = schedule;
        run.threaded = threaded;
        const ShardedResult got = train_sharded(run);
        const std::string where = fmt::format("{}, ranks {}", text_of(schedule), ranks);
        EXPECT_EQ(got.loss_bits, expected.loss_bits) << where;
        EXPECT_EQ(got.norms, expected.norms) << where;
        EXPECT_EQ(got.state, expected.state) << where;
        EXPECT_EQ(got.traffic, expected.traffic) << where;
      }
    }
  }
}

TEST(Schedule, ProcessesOverGlooComputeTheSame) {
  for (const ExpertSchedule& schedule : {kSchedules[1], kSchedules[2], kSchedules[5]}) {
    const ShardedResult local = train_sharded(run_of(deep_config(), 3, 3, schedule));
    const ShardedResult gloo =
        train_sharded(run_of(deep_config(), 3, 3, schedule, CommKind::kGloo));
    EXPECT_EQ(gloo.loss_bits, local.loss_bits) << text_of(schedule);
    EXPECT_EQ(gloo.state, local.state) << text_of(schedule);
    EXPECT_EQ(gloo.traffic, local.traffic) << text_of(schedule);
  }
}

// The sum over ranks of sharded.md's closed forms, from the slots alone, and every row of a token
// there and back twice.
TEST(Schedule, TotalTrafficMatchesClosedForms) {
  const TrainConfig config = deep_config();
  const ModelConfig& shape = config.model;
  const uint64_t elements = expert_parameter_count(shape);
  const uint32_t ranks = 4;
  const ShardedRun run = run_of(config, ranks, 3, {});
  const ShardedResult got = train_sharded(run);
  for (uint64_t step = 0; step < run.steps; ++step) {
    const ComputePlacement placement = run.placement(step);
    uint64_t pairs = 0;  // distinct (rank, expert)
    for (const LayerSlots& layer : placement.slots) {
      for (const auto& slots : layer) pairs += std::set(slots.begin(), slots.end()).size();
    }
    uint64_t restored = 0;
    uint64_t resharded = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const uint64_t own = elements * (rank + 1) / ranks - elements * rank / ranks;
      uint64_t mine = 0;
      for (const LayerSlots& layer : placement.slots) {
        mine += std::set(layer[rank].begin(), layer[rank].end()).size();
      }
      restored += 2 * mine * (elements - own) * 4;
      resharded += (pairs - mine) * own * 8;
    }
    const StepTraffic& all = got.traffic_of_all[step];
    EXPECT_EQ(all.weights, restored * config.micro_batches);
    EXPECT_EQ(all.gradients, resharded * config.micro_batches);
    StepTraffic sum;
    for (const auto& of_rank : got.traffic) {
      sum.tokens += of_rank[step].tokens;
      sum.weights += of_rank[step].weights;
      sum.gradients += of_rank[step].gradients;
    }
    EXPECT_EQ(sum, all);
    // Each row that leaves its rank crosses four times. At most all of them do.
    const uint64_t row = shape.hidden * 4;
    EXPECT_EQ(all.tokens % (4 * row), 0u);
    EXPECT_GT(all.tokens, 0u);
    EXPECT_LE(all.tokens, config.tokens_per_step() * shape.top_k * shape.layers * 4 * row);
  }
}

// One rank holds every expert, so all rows of the others cross, there and back, twice.
TEST(Schedule, CountsTheRowsThatLeaveTheirRank) {
  TrainConfig config = deep_config(2);
  const ModelConfig& shape = config.model;
  LayerSlots all_on_rank_1(2);
  for (uint32_t expert = 0; expert < shape.experts; ++expert) all_on_rank_1[1].push_back(expert);
  const ComputePlacement placement =
      *make_placement({all_on_rank_1, all_on_rank_1}, shape.experts, 2);
  const ShardedResult got = train_sharded(
      {.config = config, .ranks = 2, .steps = 1, .placement = [&](uint64_t) { return placement; }});
  const uint64_t rows = config.tokens_per_step() / 2 * shape.top_k * shape.layers;
  EXPECT_EQ(got.traffic_of_all[0].tokens, rows * 4 * shape.hidden * 4);
  EXPECT_EQ(got.traffic[0][0].tokens, rows * 2 * shape.hidden * 4) << "what comes back";
}

// Every rank computes C experts in every layer, so weights and gradients take what the bound says.
TEST(Schedule, MemoryMatchesSchedule) {
  const TrainConfig config = deep_config();
  const ModelConfig& shape = config.model;
  const uint64_t elements = expert_parameter_count(shape);
  constexpr uint32_t kRanks = 2;
  constexpr uint32_t kSlots = 4;
  LayerSlots layer = {{0, 1, 2, 3}, {1, 2, 3, 4}};
  const ComputePlacement placement =
      *make_placement(std::vector<LayerSlots>(shape.layers, layer), shape.experts, kRanks);
  for (const ExpertSchedule& schedule : kSchedules) {
    const ShardedResult got = train_sharded({.config = config,
                                             .ranks = kRanks,
                                             .steps = 2,
                                             .placement = [&](uint64_t) { return placement; },
                                             .schedule = schedule});
    const uint64_t owned = 24 * uint64_t{shape.experts} * shape.layers * (elements / kRanks);
    const uint64_t tensors =
        kSlots * elements * (4 * (schedule.prefetch + 1) + 8 * (schedule.delayed_reshard ? 2 : 1));
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(got.memory_bound[rank], owned + tensors + kSlots * elements * 16);
      // Re-shards are the larger exchanges: half of the experts goes, and half comes.
      EXPECT_EQ(got.memory_bytes[rank], owned + tensors + kSlots * elements * 8)
          << text_of(schedule);
    }
  }
}

TEST(Schedule, MemoryStaysWithinTheBoundOfAnyPlacement) {
  for (const uint32_t ranks : {1u, 2u, 4u, 8u}) {
    for (const ExpertSchedule& schedule : kSchedules) {
      const ShardedResult got = train_sharded(run_of(deep_config(), ranks, 8, schedule));
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        EXPECT_LE(got.memory_bytes[rank], got.memory_bound[rank]) << text_of(schedule);
      }
    }
  }
}

// Spans of one step of a rank, in the order in which its own thread did them.
std::vector<ActivitySpan> compute_spans(const ExpertSchedule& schedule, uint32_t ranks) {
  const TrainConfig config = deep_config(4);
  const std::vector<uint8_t> text = sample_text(4000);
  auto comms = make_comms_with_threads(CommKind::kLocal, ranks, 60'000);
  std::vector<ActivitySpan> spans;
  on_all_ranks(comms, [&](Comm& comm) {
    const auto made = RankTraining::make(cpu_device(), comm, config, text, nullptr,
                                         ExpertState::kSharded, schedule);
    ASSERT_TRUE(made.ok()) << made.error().message;
    StepProfile& profile = (*made)->model().profile();
    profile.keep_spans(true);
    ASSERT_TRUE((*made)->steps(1).ok());
    EXPECT_EQ(profile.spans_left_out(), 0u);
    if (comm.rank() != 0) return;
    spans = profile.spans();
    std::erase_if(spans, [](const ActivitySpan& span) { return span.lane != Lane::kCompute; });
  });
  return spans;
}

// Positions of the first span of this kind, layer by layer; -1 where there is none.
std::vector<int64_t> first_of(std::span<const ActivitySpan> spans, Activity activity) {
  std::vector<int64_t> first(4, -1);
  for (size_t i = 0; i < spans.size(); ++i) {
    int64_t& at = first[spans[i].layer];
    if (spans[i].activity == activity && at < 0) at = static_cast<int64_t>(i);
  }
  return first;
}

// Checks the order of the thread's activities, not their times: the experts that compute between
// the start of a restore and its deadline.
TEST(Schedule, RestoresOverlapAsManyLayersAsArePrefetched) {
  for (const ExpertSchedule& schedule : kSchedules) {
    if (!schedule.overlaps()) continue;
    const std::vector<ActivitySpan> spans = compute_spans(schedule, 2);
    const auto tokens = first_of(spans, Activity::kTokens);
    const auto submitted = first_of(spans, Activity::kSubmitRestore);
    const auto waited = first_of(spans, Activity::kWaitRestore);
    const auto computed = first_of(spans, Activity::kExpertsForward);
    for (uint32_t layer = 0; layer < 4; ++layer) {
      const uint32_t from = layer < schedule.prefetch ? 0 : layer - schedule.prefetch;
      const std::string where = fmt::format("{}, layer {}", text_of(schedule), layer);
      EXPECT_LT(tokens[from], submitted[layer]) << where << ": once tokens were exchanged";
      EXPECT_LT(submitted[layer], waited[from]) << where;
      EXPECT_LT(waited[layer], computed[layer]) << where;
      if (layer == 0) continue;
      EXPECT_LT(computed[layer - 1], waited[layer]) << where;
    }
  }
}

TEST(Schedule, ReshardsOverlapTheLayerBeforeIfDelayed) {
  for (const ExpertSchedule& schedule : kSchedules) {
    if (!schedule.overlaps()) continue;
    const std::vector<ActivitySpan> spans = compute_spans(schedule, 2);
    const auto submitted = first_of(spans, Activity::kSubmitReshard);
    const auto waited = first_of(spans, Activity::kWaitReshard);
    const auto computed = first_of(spans, Activity::kExpertsBackward);
    for (uint32_t layer = 1; layer < 4; ++layer) {
      EXPECT_LT(computed[layer], submitted[layer]);
      EXPECT_EQ(computed[layer - 1] < waited[layer], schedule.delayed_reshard)
          << text_of(schedule) << ", layer " << layer;
    }
  }
}

TEST(Schedule, InlineExchangesAreAllExposed) {
  const auto spans = compute_spans(kSchedules[0], 2);
  EXPECT_EQ(first_of(spans, Activity::kSubmitRestore), std::vector<int64_t>(4, -1));
  EXPECT_EQ(first_of(spans, Activity::kWaitReshard), std::vector<int64_t>(4, -1));
  const auto restored = first_of(spans, Activity::kRestore);
  const auto computed = first_of(spans, Activity::kExpertsForward);
  for (uint32_t layer = 0; layer < 4; ++layer) EXPECT_EQ(restored[layer] + 1, computed[layer]);
}

TEST(StepProfile, HiddenTimeExcludesWaits) {
  StepProfile profile;
  profile.keep_spans(true);
  profile.begin_step();
  profile.add({Activity::kTokens, Lane::kCompute, 0, 0, 5});
  profile.add({Activity::kRestore, Lane::kCommunication, 1, 10, 40});
  profile.add({Activity::kExpertsForward, Lane::kCompute, 0, 10, 30});
  profile.add({Activity::kWaitRestore, Lane::kCompute, 1, 30, 40});
  profile.add({Activity::kReshard, Lane::kCompute, 1, 50, 53});
  EXPECT_EQ(profile.communication().exposed_ns, 5 + 10 + 3);
  EXPECT_EQ(profile.communication().hidden_ns, 20);
  EXPECT_EQ(profile.spans().size(), 5u);
  profile.keep_spans(false);
  profile.begin_step();
  profile.mark(Activity::kSubmitRestore, 0);
  EXPECT_TRUE(profile.spans().empty());
  EXPECT_EQ(profile.communication().exposed_ns, 0);
}

// Ranks that are slow at random places of either communicator; one of them may die in any.
struct FaultyRun {
  CommKind kind = CommKind::kLocal;
  uint64_t seed = 0;
  ExpertSchedule schedule = {};
  uint32_t dies = 0;            // rank
  bool dies_in_thread = false;  // in a collective of the second communicator
  uint64_t dies_in = 0;         // number of the collective; 0: no rank dies
};
struct FaultyResult {
  std::vector<Status> ends;
  std::vector<std::vector<float>> losses;
  uint64_t collectives[2] = {0, 0};  // of rank 0: of the first communicator, of the second
};

FaultyResult train_with_faults(const FaultyRun& run) {
  constexpr uint32_t kRanks = 3;
  constexpr uint32_t kNeverMs = 3'600'000;
  const TrainConfig config = deep_config(3);
  const std::vector<uint8_t> text = sample_text(4000);
  const ComputePlacement placement = random_placement(config.model, kRanks, 3, run.seed);
  std::vector<std::unique_ptr<Comm>> lanes[2] = {make_comms(run.kind, kRanks, kNeverMs),
                                                 make_comms(run.kind, kRanks, kNeverMs)};
  std::vector<std::unique_ptr<Comm>> comms;
  const FaultyComm* of_rank_0[2] = {nullptr, nullptr};
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    std::unique_ptr<FaultyComm> faulty[2];
    for (const size_t lane : {0, 1}) {
      const bool dies = run.dies == rank && run.dies_in_thread == (lane == 1);
      faulty[lane] = std::make_unique<FaultyComm>(
          std::move(lanes[lane][rank]),
          FaultyComm::Faults{.seed = run.seed * 100 + 2 * rank + lane,
                             .delay_max = std::chrono::microseconds(300),
                             .dies_in = dies ? run.dies_in : 0});
      if (rank == 0) of_rank_0[lane] = faulty[lane].get();
    }
    comms.push_back(with_comm_thread(std::move(faulty[0]), std::move(faulty[1])));
  }
  FaultyResult result;
  result.ends.resize(kRanks);
  result.losses.resize(kRanks);
  on_all_ranks(comms, [&](Comm& comm) {
    const auto made = RankTraining::make(cpu_device(), comm, config, text, &placement,
                                         ExpertState::kSharded, run.schedule);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const Status ended = (*made)->steps(2);
    result.losses[comm.rank()] = (*made)->losses();
    // A process that has failed closes its connections.
    if (!ended.ok()) comm.abort("left the group");
    result.ends[comm.rank()] = ended;
  });
  for (const size_t lane : {0, 1}) result.collectives[lane] = of_rank_0[lane]->collectives();
  return result;
}

class FaultsTest : public testing::TestWithParam<CommKind> {};

TEST_P(FaultsTest, SlowRanksChangeNoBit) {
  std::vector<float> expected;
  for (const ExpertSchedule& schedule :
       {kSchedules[1], kSchedules[3], kSchedules[4], kSchedules[5]}) {
    const FaultyResult result =
        train_with_faults({.kind = GetParam(), .seed = 7, .schedule = schedule});
    if (expected.empty()) expected = result.losses[0];
    EXPECT_EQ(expected.size(), 2u);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(result.ends[rank].ok()) << result.ends[rank].error().message;
      EXPECT_EQ(result.losses[rank], expected) << "rank " << rank;
    }
  }
}

// Timeouts are an hour: a rank that waits for one fails the test.
TEST_P(FaultsTest, LostRankEndsStepOfAllOthers) {
  const FaultyResult whole = train_with_faults({.kind = GetParam(), .seed = 1});
  ASSERT_GT(whole.collectives[0], 0u);
  ASSERT_GT(whole.collectives[1], 0u);
  std::mt19937_64 random(GetParam() == CommKind::kLocal ? 11 : 12);
  for (uint64_t round = 0; round < 24; ++round) {
    FaultyRun run{.kind = GetParam(), .seed = 1, .schedule = kSchedules[1 + round % 5]};
    run.dies = static_cast<uint32_t>(random() % 3);
    run.dies_in_thread = round % 2 == 1;
    run.dies_in = 1 + random() % whole.collectives[run.dies_in_thread ? 1 : 0];
    const FaultyResult result = train_with_faults(run);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      ASSERT_FALSE(result.ends[rank].ok())
          << "rank " << rank << ", round " << round << ": rank " << run.dies << " dies in "
          << run.dies_in << (run.dies_in_thread ? " beside" : "");
      EXPECT_EQ(result.ends[rank].error().code, ckpt::ErrorCode::kAborted)
          << result.ends[rank].error().message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, FaultsTest, testing::Values(CommKind::kLocal, CommKind::kGloo),
                         [](const auto& kind) { return comm_kind_name(kind.param); });

}  // namespace
}  // namespace moetrain

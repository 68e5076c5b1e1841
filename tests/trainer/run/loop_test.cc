// The training step over threads: its invariants about bits, ranks and numbers that are not finite.
#include "trainer/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/trainer/comm/comm_groups.h"
#include "tests/trainer/training/training.h"
#include "trainer/data.h"
#include "trainer/placement/compute_placement.h"

namespace moetrain {
namespace {

Result<std::unique_ptr<Device>> on_host() { return make_cpu_device(); }

// Trains `steps` steps on `ranks` threads; `prepare` may change the model before.
std::vector<TrainedRank> train_on(uint32_t ranks, const TrainConfig& config, uint64_t steps,
                                  const std::function<void(Model&)>& prepare = {}) {
  const std::vector<uint8_t> text = sample_text(4000);
  auto trained = train({.config = config,
                        .text = text,
                        .ranks = ranks,
                        .steps = steps,
                        .make_device = on_host,
                        .prepare = prepare});
  CKPT_ASSERT_MSG(trained.ok(), trained.error().message);
  return std::move(*trained);
}

std::vector<uint32_t> bits_of(const std::vector<float>& losses) {
  std::vector<uint32_t> bits;
  bits.reserve(losses.size());
  for (const float loss : losses) bits.push_back(std::bit_cast<uint32_t>(loss));
  return bits;
}

TEST(SequenceShareTest, IsEvenAndCoversAll) {
  for (const uint64_t sequences : {1, 4, 7, 16}) {
    for (uint32_t ranks = 1; ranks <= sequences; ++ranks) {
      uint64_t next = 0;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const SequenceShare share = share_of(sequences, ranks, rank);
        EXPECT_EQ(share.first, next);
        EXPECT_GE(share.count, sequences / ranks);
        EXPECT_LE(share.count, sequences / ranks + 1);
        next += share.count;
      }
      EXPECT_EQ(next, sequences);
    }
  }
}

TEST(LoopTest, RepeatsBitwiseOnAllRanks) {
  const auto first = train_on(3, small_config(), 6);
  const auto second = train_on(3, small_config(), 6);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(bits_of(first[rank].losses), bits_of(first[0].losses)) << "rank " << rank;
    EXPECT_EQ(bits_of(second[rank].losses), bits_of(first[0].losses)) << "rank " << rank;
    EXPECT_EQ(second[rank].state, first[rank].state) << "rank " << rank;
    EXPECT_EQ(first[rank].progress, first[0].progress);
  }
  EXPECT_LT(first[0].losses.back(), first[0].losses.front());
}

TEST(LoopTest, NumberOfRanksChangesNoBit) {
  const auto one = train_on(1, small_config(), 8);
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    const auto more = train_on(ranks, small_config(), 8);
    EXPECT_EQ(bits_of(more[0].losses), bits_of(one[0].losses)) << ranks << " ranks";
  }
}

TEST(LoopTest, CountsStepsTokensAndAssignments) {
  const TrainConfig config = small_config();
  const auto results = train_on(2, config, 3);
  const Progress& progress = results[0].progress;
  EXPECT_EQ(progress.step, 3u);
  EXPECT_EQ(progress.applied, 3u);
  EXPECT_EQ(progress.tokens, 3 * config.tokens_per_step());
  const auto layers = config.model.layers;
  const auto assignments = config.tokens_per_step() * config.model.top_k * layers;
  int64_t last = 0;
  int64_t total = 0;
  for (const int64_t n : progress.routed_last) last += n;
  for (const int64_t n : progress.routed_tokens) total += n;
  EXPECT_EQ(last, static_cast<int64_t>(assignments));
  EXPECT_EQ(total, static_cast<int64_t>(3 * assignments));
}

TEST(LoopTest, NonFiniteStepIsSkippedAndCounted) {
  const auto poison = [&](Model& model) {
    Parameter& embedding = model.dense()[0];
    std::ranges::fill(embedding.value.host<float>(), std::numeric_limits<float>::quiet_NaN());
  };
  const auto results = train_on(2, small_config(), 2, poison);
  for (const TrainedRank& result : results) {
    EXPECT_TRUE(std::isnan(result.losses[0]));
    EXPECT_EQ(result.progress.step, 2u);
    EXPECT_EQ(result.progress.applied, 0u);
    EXPECT_EQ(result.progress.skipped, 2u);
    EXPECT_EQ(result.progress.skipped_in_a_row, 2u);
    EXPECT_THAT(result.progress.routed_last, testing::Contains(testing::Gt(0)));
    EXPECT_THAT(result.progress.routed_tokens, testing::Each(0)) << "there is nothing to lose";
    for (const auto& [name, values] : result.state) {
      if (!name.starts_with("m.")) continue;
      EXPECT_THAT(values, testing::Each(0.0f)) << name;
    }
  }
}

TEST(LoopTest, FailedStepLeavesProgressUnchanged) {
  const TrainConfig config = small_config();
  const std::vector<uint8_t> text = sample_text(4000);
  auto comms = make_comms(CommKind::kLocal, 2, 60'000);
  comms[1].reset();
  const auto device = make_cpu_device();
  const auto training = RankTraining::make(*device, *comms[0], config, text);
  ASSERT_TRUE(training.ok()) << training.error().message;
  const auto before = (*training)->state();
  const Status status = (*training)->steps(1);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ckpt::ErrorCode::kAborted);
  EXPECT_EQ((*training)->progress(), Progress{});
  EXPECT_EQ(*(*training)->state(), *before);
}

TEST(LoopTest, EvaluationIsIndependentOfRankCount) {
  const TrainConfig config = small_config();
  const std::vector<uint8_t> text = sample_text(4000);
  std::vector<double> losses;
  for (const uint32_t ranks : {1u, 3u}) {
    std::vector<double> of_ranks(ranks);
    const Status done = on_ranks(ranks, on_host, [&](Comm& comm, Device& device) -> Status {
      CKPT_ASSIGN(const auto training, RankTraining::make(device, comm, config, text));
      CKPT_ASSIGN(of_ranks[comm.rank()], evaluate_text(comm, training->model(), text, 7));
      return {};
    });
    ASSERT_TRUE(done.ok()) << done.error().message;
    for (const double loss : of_ranks) EXPECT_EQ(loss, of_ranks[0]);
    losses.push_back(of_ranks[0]);
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-5 * losses[0]);
  EXPECT_NEAR(losses[0], std::log(256.0), 0.1);  // it has learnt nothing yet
}

TEST(TrainConfigTest, RoundTripsThroughJson) {
  TrainConfig config = small_config();
  config.seed = 0xffff'ffff'ffff'ffff;
  config.schedule.learning_rate = 0.1 + 0.2;
  config.adamw.idle_experts = IdleExperts::kSkip;
  const auto back = parse_train_config(to_json(config), "test");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, config);
  EXPECT_EQ(to_json(*back), to_json(config));
  EXPECT_EQ(difference(config, *back), "");
  TrainConfig other = config;
  other.seed = 8;
  EXPECT_THAT(difference(config, other), testing::HasSubstr("seed"));
  EXPECT_FALSE(other == config);
}

TEST(TrainConfigTest, NamesRunsOfOtherTrainers) {
  for (const char* other : {"null", "[]", "{}", "{\"hf_config\": {}}"}) {
    const auto parsed = parse_train_config(other, "run x");
    ASSERT_FALSE(parsed.ok()) << other;
    EXPECT_THAT(parsed.error().message, testing::HasSubstr("run x: not a run of moetrain"))
        << other;
  }
}

TEST(TrainConfigTest, RefusesInvalidConfig) {
  const std::string good = to_json(small_config());
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string("{\"hf_config\": {}}"), good.substr(1),
        std::string(good).replace(good.find("\"batch\":4"), 9, "\"batch\":\"4\""),
        std::string(good).replace(good.find("\"batch\":4"), 9, "\"batch\":-4"),
        std::string(good).replace(good.find("\"batch\":4"), 9, "\"batch\":4294967296")}) {
    const auto parsed = parse_train_config(bad, "run x");
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_THAT(parsed.error().message, testing::StartsWith("run x"));
  }
}

TEST(TrainConfigTest, NamesWrongFlag) {
  const auto message = [](TrainConfig config, uint32_t ranks) {
    const Status status = validate(config, ranks);
    if (status.ok()) return std::string("ok");
    EXPECT_EQ(ckpt::exit_code_for(status.error().code), 2);
    return status.error().message;
  };
  TrainConfig config = small_config();
  EXPECT_EQ(message(config, 4), "ok");
  EXPECT_THAT(message(config, 0), testing::HasSubstr("--ranks 0"));
  EXPECT_THAT(message(config, 5), testing::HasSubstr("more ranks than the 4 sequences"));
  config.batch = 8;
  EXPECT_EQ(message(config, 5), "ok");  // how many experts there are is the placement's concern
  config.model.router_skew = -1;
  EXPECT_THAT(message(config, 1), testing::HasSubstr("router_skew"));
  config.model.router_skew = 0;
  config.schedule.learning_rate = std::numeric_limits<double>::infinity();
  EXPECT_THAT(message(config, 1), testing::HasSubstr("--lr"));
}

}  // namespace
}  // namespace moetrain

// The training step over threads: what it promises about bits, ranks and bad numbers.
#include "trainer/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/trainer/model/ranks.h"
#include "tests/trainer/parallel/comm_groups.h"
#include "trainer/data.h"
#include "trainer/parallel/expert_placement.h"

namespace moetrain {
namespace {

TrainConfig small_config() {
  TrainConfig config;
  config.model = {.hidden = 16,
                  .layers = 2,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = 8,
                  .intermediate = 24,
                  .experts = 4,
                  .top_k = 2,
                  .seq_len = 16,
                  .rope_theta = 1e4};
  config.micro_batches = 2;
  config.batch = 4;
  config.schedule.warmup_steps = 2;
  return config;
}

std::vector<uint8_t> english_like_text() {
  const std::string words[] = {"the ", "expert ", "routes ", "a ", "token ", "to ", "slab "};
  std::vector<uint8_t> text;
  for (uint32_t i = 0; text.size() < 4000; ++i) {
    const std::string& word = words[(i * 2654435761u >> 7) % 7];
    text.insert(text.end(), word.begin(), word.end());
  }
  return text;
}

struct RankResult {
  std::vector<uint32_t> loss_bits;
  std::vector<float> losses;
  Progress progress;
  std::vector<float> first_parameter;
};

std::unique_ptr<Model> make_model(const TrainConfig& config, uint32_t ranks, uint32_t rank) {
  const auto placement = static_placement(config.model.layers, config.model.experts, ranks);
  auto store = make_replicated_store(cpu_device(), config.model, *placement, rank);
  return std::move(Model::create(cpu_device(), config.model, std::move(store).value())).value();
}

// Trains `steps` steps on `ranks` threads; `prepare` may change the model before.
std::vector<RankResult> train(const TrainConfig& config, uint32_t ranks, uint64_t steps,
                              const std::function<void(Model&)>& prepare = {}) {
  const std::vector<uint8_t> text = english_like_text();
  auto comms = make_comms(CommKind::kLocal, ranks, 60'000);
  std::vector<RankResult> results(ranks);
  on_all_ranks(comms, [&](Comm& comm) {
    RankResult& mine = results[comm.rank()];
    auto model = make_model(config, ranks, comm.rank());
    model->initialise(config.seed);
    if (prepare) prepare(*model);
    Trainer trainer(config, text);
    for (uint64_t s = 0; s < steps; ++s) {
      const auto result = trainer.step(comm, *model, mine.progress);
      ASSERT_TRUE(result.ok()) << result.error().message;
      EXPECT_EQ(result->step, s + 1);
      mine.losses.push_back(result->loss);
      mine.loss_bits.push_back(std::bit_cast<uint32_t>(result->loss));
    }
    mine.first_parameter = *model->dense()[0].value.read<float>();
  });
  return results;
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

TEST(LoopTest, RepeatsToTheLastBitAndAgreesOnAllRanks) {
  const auto first = train(small_config(), 3, 6);
  const auto second = train(small_config(), 3, 6);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(first[rank].loss_bits, first[0].loss_bits) << "rank " << rank;
    EXPECT_EQ(second[rank].loss_bits, first[0].loss_bits) << "rank " << rank;
    EXPECT_EQ(second[rank].first_parameter, first[0].first_parameter) << "rank " << rank;
    EXPECT_EQ(first[rank].progress, first[0].progress);
  }
  EXPECT_LT(first[0].losses.back(), first[0].losses.front());
}

TEST(LoopTest, TheNumberOfRanksChangesNoBit) {
  const auto one = train(small_config(), 1, 8);
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    const auto more = train(small_config(), ranks, 8);
    EXPECT_EQ(more[0].loss_bits, one[0].loss_bits) << ranks << " ranks";
  }
}

TEST(LoopTest, CountsWhatItDid) {
  const TrainConfig config = small_config();
  const auto results = train(config, 2, 3);
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

TEST(LoopTest, AStepThatIsNotFiniteChangesNothingAndIsCounted) {
  std::vector<float> before;
  const auto poison = [&](Model& model) {
    Parameter& embedding = model.dense()[0];
    std::ranges::fill(embedding.value.host<float>(), std::numeric_limits<float>::quiet_NaN());
  };
  const auto results = train(small_config(), 2, 2, poison);
  for (const RankResult& result : results) {
    EXPECT_TRUE(std::isnan(result.losses[0]));
    EXPECT_EQ(result.progress.step, 2u);
    EXPECT_EQ(result.progress.applied, 0u);
    EXPECT_EQ(result.progress.skipped, 2u);
    EXPECT_EQ(result.progress.skipped_in_a_row, 2u);
  }
}

TEST(LoopTest, AFailedStepLeavesProgressWhereItWas) {
  const TrainConfig config = small_config();
  const std::vector<uint8_t> text = english_like_text();
  auto comms = make_comms(CommKind::kLocal, 2, 60'000);
  comms[1].reset();
  auto model = make_model(config, 2, 0);
  model->initialise(1);
  const std::vector<float> before = *model->dense()[0].value.read<float>();
  Trainer trainer(config, text);
  Progress progress;
  const auto result = trainer.step(*comms[0], *model, progress);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ckpt::ErrorCode::kAborted);
  EXPECT_EQ(progress, Progress{});
  EXPECT_EQ(*model->dense()[0].value.read<float>(), before);
}

TEST(LoopTest, EvaluationDoesNotDependOnTheNumberOfRanks) {
  const TrainConfig config = small_config();
  const std::vector<uint8_t> text = english_like_text();
  std::vector<double> losses;
  for (const uint32_t ranks : {1u, 3u}) {
    auto comms = make_comms(CommKind::kLocal, ranks, 60'000);
    std::vector<double> of_ranks(ranks);
    on_all_ranks(comms, [&](Comm& comm) {
      auto model = make_model(config, ranks, comm.rank());
      model->initialise(5);
      const auto loss = evaluate_text(comm, *model, text, 7);
      ASSERT_TRUE(loss.ok()) << loss.error().message;
      of_ranks[comm.rank()] = *loss;
    });
    for (const double loss : of_ranks) EXPECT_EQ(loss, of_ranks[0]);
    losses.push_back(of_ranks[0]);
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-5 * losses[0]);
  EXPECT_NEAR(losses[0], std::log(256.0), 0.1);  // it has learnt nothing yet
}

TEST(TrainConfigTest, SurvivesItsJson) {
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

TEST(TrainConfigTest, RefusesWhatIsNoConfig) {
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

TEST(TrainConfigTest, NamesTheFlagThatIsWrong) {
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

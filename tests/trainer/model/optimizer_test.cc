#include "trainer/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "tests/trainer/model/ranks.h"
#include "trainer/parallel/gradients.h"
#include "trainer/parallel/make_expert_store.h"

namespace moetrain {
namespace {

const ModelConfig kOptimizerConfig{.vocab = 16,
                                   .hidden = 8,
                                   .layers = 2,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .head_dim = 4,
                                   .intermediate = 6,
                                   .experts = 5,
                                   .top_k = 2,
                                   .seq_len = 4};

std::unique_ptr<Model> make_model(uint32_t rank, uint32_t ranks) {
  auto placement = static_placement(kOptimizerConfig.layers, kOptimizerConfig.experts, ranks);
  auto store = make_expert_store(cpu_device(), kOptimizerConfig, *placement,
                                 Ownership::replicated(*placement), rank);
  auto model = Model::create(cpu_device(), kOptimizerConfig, std::move(*store));
  CKPT_ASSERT(model.ok());
  (*model)->initialise(11);
  return std::move(*model);
}

TEST(Schedule, WarmsUpThenFallsAlongHalfACosine) {
  const ScheduleOptions options{
      .learning_rate = 2, .final_ratio = 0.1, .warmup_steps = 4, .total_steps = 24};
  EXPECT_DOUBLE_EQ(learning_rate(options, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(options, 3), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 4), 2.0);
  EXPECT_NEAR(learning_rate(options, 14), 0.2 + 1.8 / 2, 1e-12);
  EXPECT_NEAR(learning_rate(options, 24), 0.2, 1e-12);
  EXPECT_NEAR(learning_rate(options, 1'000'000), 0.2, 1e-12);
  for (uint64_t step = 4; step < 24; ++step) {
    EXPECT_GT(learning_rate(options, step), learning_rate(options, step + 1));
  }
}

TEST(Schedule, DegenerateOptionsStayFinite) {
  EXPECT_DOUBLE_EQ(learning_rate({.learning_rate = 1, .warmup_steps = 0, .total_steps = 0}, 0),
                   0.1);
  EXPECT_DOUBLE_EQ(learning_rate({.learning_rate = 1, .warmup_steps = 5, .total_steps = 2}, 4),
                   1.0);
}

TEST(Clipping, ScalesDownOnly) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_NEAR(clip_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);  // no clipping
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
}

// Fills gradients so that the sum over ranks does not depend on how many ranks there are.
void fill_gradients(Model& model, uint32_t ranks) {
  for (Parameter& parameter : model.dense()) {
    const std::span<double> sum = parameter.grad_sum.host<double>();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<double>(i % 7) / ranks;
  }
  for (OwnedRange& expert : model.experts().owned()) {
    std::ranges::fill(expert.sum().host<double>(), static_cast<double>(expert.expert));
  }
}

double norm_with(uint32_t ranks) {
  std::mutex mutex;
  std::vector<double> norms;
  run_ranks(ranks, [&](Comm& comm) {
    auto model = make_model(comm.rank(), ranks);
    fill_gradients(*model, ranks);
    ASSERT_TRUE(reduce_gradients(comm, *model, 512).ok());
    const auto summary = summarise_gradients(comm, *model);
    ASSERT_TRUE(summary.ok());
    EXPECT_TRUE(summary->finite);
    std::lock_guard lock(mutex);
    norms.push_back(summary->norm);
  });
  EXPECT_EQ(norms.size(), ranks);
  for (const double norm : norms) EXPECT_EQ(norm, norms.front());  // the same bits everywhere
  return norms.empty() ? 0 : norms.front();
}

TEST(GradientNorm, CountsEveryExpertOnceWhateverTheRanks) {
  double squares = 0;
  for (const ParameterSpec& spec : dense_parameters(kOptimizerConfig)) {
    for (uint64_t i = 0; i < spec.elements(); ++i) squares += static_cast<double>(i % 7 * (i % 7));
  }
  for (uint32_t expert = 0; expert < kOptimizerConfig.experts; ++expert) {
    squares +=
        static_cast<double>(kOptimizerConfig.layers * expert_parameter_count(kOptimizerConfig)) *
        expert * expert;
  }
  for (const uint32_t ranks : {1u, 2u, 3u, 5u}) {
    EXPECT_NEAR(norm_with(ranks), std::sqrt(squares), 1e-6 * std::sqrt(squares)) << ranks;
  }
}

// A NaN in an expert that one rank alone holds, or in one rank's share of a dense gradient, must
// make every rank skip.
TEST(GradientNorm, EveryRankSeesNonFiniteGradient) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       -std::numeric_limits<float>::infinity()};
  for (const bool in_expert : {false, true}) {
    for (const float value : bad) {
      std::atomic<int> skipped = 0;
      run_ranks(3, [&](Comm& comm) {
        auto model = make_model(comm.rank(), 3);
        model->begin_step();
        if (comm.rank() == 1) {
          if (in_expert) {
            model->experts().owned()[0].sum().host<double>()[2] = static_cast<double>(value);
          } else {
            model->dense()[3].grad_sum.host<double>()[2] = static_cast<double>(value);
          }
        }
        ASSERT_TRUE(reduce_gradients(comm, *model).ok());
        const auto summary = summarise_gradients(comm, *model);
        ASSERT_TRUE(summary.ok());
        if (!summary->finite) ++skipped;
      });
      EXPECT_EQ(skipped, 3) << "in an expert: " << in_expert << ", value " << value;
    }
  }
}

TEST(AdamWStepTest, NormsDoNotDecay) {
  auto model = make_model(0, 1);
  model->begin_step();
  const std::vector<float> norm = *model->dense()[5].value.read<float>();
  const float matrix = model->dense()[0].value.host<float>()[0];
  ASSERT_TRUE(model->dense()[5].spec.is_norm);
  adamw_step(*model, {.weight_decay = 0.5}, {.learning_rate = 0.1});
  EXPECT_EQ(*model->dense()[5].value.read<float>(), norm);
  EXPECT_FLOAT_EQ(model->dense()[0].value.host<float>()[0], 0.95f * matrix);
}

// An expert restored from an older version continues with its own bias correction.
TEST(AdamWStepTest, ExpertsCountTheirOwnSteps) {
  const size_t experts = size_t{kOptimizerConfig.layers} * kOptimizerConfig.experts;
  const auto after = [&](uint64_t step, std::vector<int64_t> expert_steps) {
    auto model = make_model(0, 1);
    model->begin_step();
    for (const ParameterPart& part : model->parts()) {
      std::ranges::fill(part.state->m.host<float>(), 0.5f);
      std::ranges::fill(part.state->v.host<float>(), 0.25f);
    }
    adamw_step(*model, {}, {.learning_rate = 0.1, .step = step, .expert_steps = expert_steps});
    return model;
  };
  std::vector<int64_t> steps(experts, 9);
  steps[2] = 4;
  const auto own = after(9, steps);
  const auto nine = after(9, {});
  const auto four = after(4, {});
  for (size_t i = 0; i < experts; ++i) {
    const auto value_of = [i](const auto& model) {
      return *model->experts().owned()[i].value.template read<float>();
    };
    EXPECT_EQ(value_of(own) == value_of(nine), i != 2) << i;
    EXPECT_EQ(value_of(own) == value_of(four), i == 2) << i;
  }
  EXPECT_EQ(*own->dense()[0].value.read<float>(), *nine->dense()[0].value.read<float>());
}

TEST(AdamWStepTest, IdleExpertsAreKeptOnlyIfAsked) {
  for (const IdleExperts idle : {IdleExperts::kUpdate, IdleExperts::kSkip}) {
    auto model = make_model(0, 1);
    model->begin_step();
    std::vector<int64_t> routed(size_t{kOptimizerConfig.layers} * kOptimizerConfig.experts, 1);
    routed[kOptimizerConfig.experts + 3] = 0;  // layer 1 expert 3
    for (const ParameterPart& part : model->parts()) {
      std::ranges::fill(part.state->m.host<float>(), 0.5f);
    }
    std::vector<std::vector<float>> before;
    for (const OwnedRange& expert : model->experts().owned()) {
      before.push_back(*expert.value.read<float>());
      before.push_back(*expert.m.read<float>());
    }
    adamw_step(*model, {.idle_experts = idle},
               {.learning_rate = 0.1, .step = 4, .routed_tokens = routed});
    for (size_t i = 0; i < before.size() / 2; ++i) {
      const OwnedRange& after = model->experts().owned()[i];
      const bool kept = *after.value.read<float>() == before[2 * i] &&
                        *after.m.read<float>() == before[2 * i + 1];
      const bool is_idle = after.layer == 1 && after.expert == 3;
      EXPECT_EQ(kept, is_idle && idle == IdleExperts::kSkip) << after.layer << "." << after.expert;
    }
  }
}

// A snapshot that still reads some state is asked before it changes, and not before other state.
TEST(AdamW, AnnouncesEachStateBeforeWrite) {
  auto model = make_model(0, 1);
  fill_gradients(*model, 1);
  for (Parameter& parameter : model->dense()) {
    std::ranges::fill(parameter.grad.host<float>(), 1.0f);
  }
  std::vector<const WeightState*> all;
  for (const Parameter& parameter : model->dense()) all.push_back(&parameter);
  for (const OwnedRange& range : model->experts().owned()) all.push_back(&range);
  std::map<const WeightState*, std::vector<float>> before;
  for (const WeightState* state : all) before[state] = *state->value.read<float>();
  std::vector<const WeightState*> updated;
  adamw_step(*model, {}, {.learning_rate = 0.1, .before_write = [&](const WeightState& state) {
                            EXPECT_EQ(*state.value.read<float>(), before[&state]);
                            EXPECT_EQ(state.m.host<float>()[0], 0.0f);
                            if (!updated.empty()) {
                              EXPECT_NE(*updated.back()->value.read<float>(),
                                        before[updated.back()]);
                            }
                            updated.push_back(&state);
                          }});
  EXPECT_EQ(updated, all);
}

}  // namespace
}  // namespace moetrain

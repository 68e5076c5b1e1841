// Properties of the model besides its numbers, which tests/golden checks.
#include "trainer/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "tests/trainer/model/ranks.h"
#include "trainer/model/philox.h"
#include "trainer/optimizer.h"
#include "trainer/parallel/gradients.h"
#include "trainer/parallel/make_expert_store.h"

namespace moetrain {
namespace {

using testing::HasSubstr;

const ModelConfig kConfig{.vocab = 32,
                          .hidden = 16,
                          .layers = 2,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 6,
                          .intermediate = 12,
                          .experts = 6,
                          .top_k = 2,
                          .seq_len = 8,
                          .init_range = 0.2};
constexpr uint32_t kSequences = 5;  // per micro-batch
constexpr uint32_t kMicroBatches = 2;

std::unique_ptr<Model> make_model(const Comm& comm, uint64_t seed = 3) {
  auto placement = static_placement(kConfig.layers, kConfig.experts, comm.size());
  auto store = make_expert_store(cpu_device(), kConfig, *placement,
                                 Ownership::replicated(*placement), comm.rank());
  auto model = Model::create(cpu_device(), kConfig, std::move(*store));
  CKPT_ASSERT(model.ok());
  (*model)->initialise(seed);
  return std::move(*model);
}

struct Share {
  std::vector<int32_t> tokens, targets;
  operator BatchShare() const { return {tokens, targets}; }
};

// Sequence i of a micro-batch is the same on every rank. Every 5th target is ignored.
Share share_of(const Comm& comm, uint64_t micro_batch, uint32_t sequences = kSequences) {
  Share share;
  const uint32_t end = sequences * (comm.rank() + 1) / comm.size();
  for (uint32_t i = sequences * comm.rank() / comm.size(); i < end; ++i) {
    for (uint32_t t = 0; t < kConfig.seq_len; ++t) {
      const auto bits = philox(99, micro_batch * 1000 + i, t);
      share.tokens.push_back(static_cast<int32_t>(bits[0] % kConfig.vocab));
      share.targets.push_back(t % 5 == 4 ? kIgnoredTarget
                                         : static_cast<int32_t>(bits[1] % kConfig.vocab));
    }
  }
  return share;
}

// Does one optimizer step; returns its loss.
double train_step(Comm& comm, Model& model, uint64_t step) {
  const double targets = kSequences * 7.0 * kMicroBatches;
  const LossScale scale{1.0 / targets, kConfig.aux_coef / kMicroBatches};
  double loss = 0;
  model.begin_step();
  for (uint64_t i = 0; i < kMicroBatches; ++i) {
    const auto part = model.forward_backward(comm, share_of(comm, step * kMicroBatches + i), scale);
    CKPT_ASSERT_MSG(part.ok(), part.error().message);
    loss += scale.cross_entropy * part->cross_entropy_sum + scale.auxiliary * part->auxiliary;
  }
  CKPT_ASSERT(reduce_gradients(comm, model).ok());
  const auto summary = summarise_gradients(comm, model);
  CKPT_ASSERT(summary.ok() && summary->finite);
  adamw_step(
      model, {},
      {.learning_rate = 1e-2, .gradient_factor = clip_factor(summary->norm, 1), .step = step});
  return loss;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> parameters;
};

Trained train(uint32_t ranks, uint64_t steps) {
  Trained trained;
  std::mutex mutex;
  run_ranks(ranks, [&](Comm& comm) {
    auto model = make_model(comm);
    std::vector<double> losses;
    for (uint64_t step = 0; step < steps; ++step) losses.push_back(train_step(comm, *model, step));
    std::lock_guard lock(mutex);
    if (trained.losses.empty()) trained.losses = losses;
    EXPECT_EQ(losses, trained.losses);  // the same bits on every rank
    for (const ParameterPart& part : model->parts()) {
      const std::vector<float> values = *part.read(&WeightState::value);
      const auto [at, fresh] = trained.parameters.try_emplace(part.spec.name, values);
      EXPECT_EQ(at->second, values) << part.spec.name;
    }
  });
  return trained;
}

TEST(Model, RunsAreBitIdentical) {
  for (const uint32_t ranks : {1u, 3u}) {
    const Trained first = train(ranks, 5);
    const Trained second = train(ranks, 5);
    EXPECT_EQ(first.losses, second.losses);
    EXPECT_EQ(first.parameters, second.parameters);
  }
}

TEST(Model, AnyNumberOfRanksLearnsTheSameBits) {
  const Trained one = train(1, 40);
  EXPECT_LT(one.losses.back(), one.losses.front());
  EXPECT_EQ(one.parameters.size(), 3 + 7 * 2 + 3 * 2 * 6u);
  for (const uint32_t ranks : {2u, 3u, 5u}) {
    const Trained many = train(ranks, 40);
    ASSERT_EQ(many.losses.size(), one.losses.size());
    for (size_t step = 0; step < one.losses.size(); ++step) {
      // Compared as float, as reported: in double the sum over ranks may round differently.
      EXPECT_EQ(static_cast<float>(many.losses[step]), static_cast<float>(one.losses[step]))
          << ranks << " ranks, step " << step;
    }
    EXPECT_EQ(many.parameters, one.parameters) << ranks << " ranks";
  }
}

TEST(Model, CountsEveryAssignmentOfTheStep) {
  for (const uint32_t ranks : {1u, 3u}) {
    run_ranks(ranks, [&](Comm& comm) {
      auto model = make_model(comm);
      model->begin_step();
      ASSERT_TRUE(model->forward_backward(comm, share_of(comm, 0), {1, 1}).ok());
      ASSERT_TRUE(model->forward_backward(comm, share_of(comm, 1), {1, 1}).ok());
      const auto counts = gather_routing_counts(comm, *model);
      ASSERT_TRUE(counts.ok());
      ASSERT_EQ(counts->size(), size_t{ranks} * kConfig.layers * kConfig.experts);
      int64_t total = 0;
      for (const int64_t count : *counts) total += count;
      EXPECT_EQ(total, 2 * kSequences * kConfig.seq_len * kConfig.top_k * kConfig.layers);
      model->begin_step();
      EXPECT_THAT(model->routing_counts(), testing::Each(0));
    });
  }
}

TEST(Model, EvaluationLeavesGradientsAndCountsAlone) {
  auto comms = make_local_comms(1);
  auto model = make_model(*comms[0]);
  model->begin_step();
  const Share share = share_of(*comms[0], 0);
  const auto trained = model->forward_backward(*comms[0], share, {0.1, 0.1});
  const std::vector<double> gradient = *model->dense()[0].grad_sum.read<double>();
  const std::vector<int64_t> counts(model->routing_counts().begin(), model->routing_counts().end());
  std::vector<float> logits(share.tokens.size() * kConfig.vocab,
                            std::numeric_limits<float>::quiet_NaN());
  const auto evaluated = model->evaluate(*comms[0], share, logits);
  ASSERT_TRUE(trained.ok() && evaluated.ok());
  EXPECT_EQ(evaluated->cross_entropy_sum, trained->cross_entropy_sum);
  EXPECT_EQ(evaluated->auxiliary, trained->auxiliary);
  EXPECT_EQ(evaluated->targets, trained->targets);
  EXPECT_EQ(*model->dense()[0].grad_sum.read<double>(), gradient);
  EXPECT_TRUE(std::equal(counts.begin(), counts.end(), model->routing_counts().begin()));
  EXPECT_THAT(logits, testing::Each(testing::Truly([](float x) { return std::isfinite(x); })));
}

TEST(Model, ARankWithoutSequencesTakesPart) {
  std::mutex mutex;
  std::vector<double> losses;
  run_ranks(3, [&](Comm& comm) {
    auto model = make_model(comm);
    model->begin_step();
    const auto loss = model->forward_backward(comm, share_of(comm, 0, 2), {1, 1});
    ASSERT_TRUE(loss.ok()) << loss.error().message;
    std::lock_guard lock(mutex);
    losses.push_back(loss->cross_entropy_sum);
  });
  run_ranks(1, [&](Comm& comm) {
    auto model = make_model(comm);
    model->begin_step();
    const auto loss = model->forward_backward(comm, share_of(comm, 0, 2), {1, 1});
    ASSERT_TRUE(loss.ok()) << loss.error().message;
    losses.push_back(loss->cross_entropy_sum);
  });
  ASSERT_EQ(losses.size(), 4u);
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NEAR(losses[0], losses[3], 1e-6 * losses[3]);
}

TEST(Model, BadInputIsRefusedBeforeAnyoneWaits) {
  auto comms = make_local_comms(1);
  auto model = make_model(*comms[0]);
  const Share good = share_of(*comms[0], 0);
  const auto message_of = [&](const Share& share) {
    const auto result = model->forward_backward(*comms[0], share, {1, 1});
    if (result.ok()) return std::string("accepted");
    EXPECT_EQ(result.error().code, ckpt::ErrorCode::kInvalidArgument);
    return result.error().message;
  };
  Share bad = good;
  bad.tokens[13] = 32;
  EXPECT_THAT(message_of(bad), HasSubstr("token 32 at position 13"));
  bad.tokens[13] = -1;
  EXPECT_THAT(message_of(bad), HasSubstr("token -1 at position 13"));
  bad = good;
  bad.targets[2] = -99;
  EXPECT_THAT(message_of(bad), HasSubstr("target -99 at position 2"));
  bad = good;
  bad.tokens.pop_back();
  EXPECT_THAT(message_of(bad), HasSubstr("whole sequences of 8"));
  bad.targets.pop_back();
  EXPECT_THAT(message_of(bad), HasSubstr("39 tokens and 39 targets"));
  std::vector<float> room(3);
  EXPECT_FALSE(model->evaluate(*comms[0], good, room).ok());
  EXPECT_EQ(message_of(good), "accepted");
}

TEST(Model, RefusesGroupOfOtherSize) {
  auto model = make_model(*make_local_comms(1)[0]);
  run_ranks(2, [&](Comm& comm) {
    if (comm.rank() != 0) return;
    const auto result = model->evaluate(comm, share_of(comm, 0));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ckpt::ErrorCode::kFailedPrecondition);
    EXPECT_THAT(result.error().message, HasSubstr("placed on 1 ranks, the group has 2"));
  });
}

TEST(Model, AStoreOfAnotherShapeIsRefused) {
  auto placement = static_placement(kConfig.layers, kConfig.experts, 2);
  EXPECT_FALSE(
      make_expert_store(cpu_device(), kConfig, *placement, Ownership::replicated(*placement), 2)
          .ok());
  ModelConfig other = kConfig;
  other.layers = 3;
  EXPECT_FALSE(
      make_expert_store(cpu_device(), other, *placement, Ownership::replicated(*placement), 0)
          .ok());
  auto store =
      make_expert_store(cpu_device(), kConfig, *placement, Ownership::replicated(*placement), 0);
  ASSERT_TRUE(store.ok());
  EXPECT_FALSE(Model::create(cpu_device(), other, std::move(*store)).ok());
}

// A diverged model must neither crash nor deadlock, and every rank must see the same loss.
TEST(Model, NanWeightsGiveANotFiniteLossEverywhere) {
  std::atomic<int> skipped = 0;
  run_ranks(3, [&](Comm& comm) {
    auto model = make_model(comm);
    if (comm.rank() == 2) {
      for (OwnedRange& expert : model->experts().owned().first(2)) {
        expert.value.host<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    model->begin_step();
    const auto loss = model->forward_backward(comm, share_of(comm, 0), {1, 1});
    ASSERT_TRUE(loss.ok());
    ASSERT_TRUE(reduce_gradients(comm, *model).ok());
    const auto summary = summarise_gradients(comm, *model);
    ASSERT_TRUE(summary.ok());
    if (!std::isfinite(loss->cross_entropy_sum) && !summary->finite) ++skipped;
  });
  EXPECT_EQ(skipped, 3);
}

// A peer that leaves must end the step with an error, not a hang.
TEST(Model, AnAbortedGroupEndsTheStep) {
  std::atomic<int> aborted = 0;
  run_ranks(2, [&](Comm& comm) {
    auto model = make_model(comm);
    model->begin_step();
    if (comm.rank() == 1) {
      comm.abort("rank 1 leaves");
      return;
    }
    const auto loss = model->forward_backward(comm, share_of(comm, 0), {1, 1});
    if (!loss.ok() && loss.error().code == ckpt::ErrorCode::kAborted) ++aborted;
  });
  EXPECT_EQ(aborted, 1);
}

// Restored state replaces the buffers of the owned experts. The next step must compute with the new
// buffers.
TEST(Model, ComputesWithRestoredExperts) {
  auto comms = make_local_comms(1);
  auto trained = make_model(*comms[0], 3);
  train_step(*comms[0], *trained, 0);
  auto restored = make_model(*comms[0], 4);
  const auto from = trained->parts();
  const auto to = restored->parts();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    for (Tensor WeightState::*const buffer :
         {&WeightState::value, &WeightState::m, &WeightState::v}) {
      Tensor fresh;
      fresh.copy_from(from[i].state->*buffer);
      to[i].state->*buffer = std::move(fresh);
    }
  }
  restored->parameters_changed();
  EXPECT_EQ(train_step(*comms[0], *trained, 1), train_step(*comms[0], *restored, 1));
  EXPECT_EQ(train_step(*comms[0], *trained, 2), train_step(*comms[0], *restored, 2));
}

}  // namespace
}  // namespace moetrain

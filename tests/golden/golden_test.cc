// Parity with Hugging Face: the files of make_golden.py, replayed by 1, 2 and 3 ranks.
//
// Compared per tensor by ||a - b|| / ||b||. Single elements mean nothing after Adam, which divides
// a gradient by its own size however small that is.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <thread>

#include "tests/golden/golden_file.h"
#include "trainer/comm/comm.h"
#include "trainer/model/model.h"
#include "trainer/parallel/gradients.h"
#include "trainer/parallel/make_expert_store.h"

namespace moetrain {
namespace {

constexpr double kTolerance = 1e-5;

// Loads value from double; the golden values are fp32, so nothing is lost.
void load(const ParameterPart& part, const GoldenCase& golden) {
  const std::vector<double>& values = golden.at("initial/" + part.spec.name);
  ASSERT_EQ(values.size(), part.elements.size()) << part.spec.name;
  part.write(&WeightState::value, std::vector<float>(values.begin(), values.end()));
  part.state->value_changed();
}

// Sequences of a micro-batch dealt to ranks in order, as evenly as possible: 3 for 2 ranks is 1, 2.
struct Range {
  uint32_t begin, end;
};
Range share_of(uint32_t sequences, uint32_t rank, uint32_t ranks) {
  return {sequences * rank / ranks, sequences * (rank + 1) / ranks};
}

double relative_error(std::span<const float> actual, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  // An expert that got no token has no gradient at all: then nothing but zero is right.
  if (size == 0) return std::sqrt(error);
  return std::sqrt(error / size);
}

// One rank's part of the replay. Threads of one process, so failures are gathered under a lock:
// they name case, ranks and tensor.
class Replay {
 public:
  Replay(const GoldenCase& golden, Comm& comm, std::mutex& mutex)
      : golden_(golden), comm_(comm), mutex_(mutex) {}

  void run() {
    auto placement = static_placement(golden_.config.layers, golden_.config.experts, comm_.size());
    ASSERT_TRUE(placement.ok()) << placement.error().message;
    auto store = make_expert_store(*device_, golden_.config, *placement,
                                   Ownership::replicated(*placement), comm_.rank());
    ASSERT_TRUE(store.ok()) << store.error().message;
    auto model = Model::create(*device_, golden_.config, std::move(*store));
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(*model);
    for (const ParameterPart& part : model_->parts()) load(part, golden_);
    compare_logits();
    for (uint32_t step = 0; step < golden_.steps; ++step) train_step(step);
    for (const ParameterPart& part : model_->parts()) {
      compare(*part.read(&WeightState::value), "final/" + part.spec.name);
    }
  }

 private:
  // This rank's tokens (or targets) of a micro-batch.
  std::vector<int32_t> share(const std::string& name, uint32_t step, uint32_t micro_batch) const {
    const Range range = share_of(golden_.sequences, comm_.rank(), comm_.size());
    const size_t seq_len = golden_.config.seq_len;
    const size_t first =
        (size_t{step} * golden_.micro_batches + micro_batch) * golden_.sequences + range.begin;
    const auto begin = golden_.at(name).begin() + static_cast<std::ptrdiff_t>(first * seq_len);
    return {begin, begin + static_cast<std::ptrdiff_t>((range.end - range.begin) * seq_len)};
  }

  void compare(std::span<const float> actual, const std::string& name) {
    const std::vector<double>& expected = golden_.at(name);
    std::lock_guard lock(mutex_);
    ASSERT_EQ(actual.size(), expected.size()) << name;
    EXPECT_LE(relative_error(actual, expected), kTolerance) << name;
  }

  void compare_number(double actual, const std::string& name, uint32_t step) {
    const double expected = golden_.at(name)[step];
    std::lock_guard lock(mutex_);
    EXPECT_NEAR(actual, expected, kTolerance * std::abs(expected)) << name << " step " << step;
  }

  void compare_logits() {
    const std::vector<int32_t> tokens = share("tokens", 0, 0);
    const std::vector<int32_t> targets = share("targets", 0, 0);
    std::vector<float> logits(tokens.size() * golden_.config.vocab);
    ASSERT_TRUE(model_->evaluate(comm_, {tokens, targets}, logits).ok());
    const Range range = share_of(golden_.sequences, comm_.rank(), comm_.size());
    const size_t per_sequence = size_t{golden_.config.seq_len} * golden_.config.vocab;
    const auto begin =
        golden_.at("logits").begin() + static_cast<std::ptrdiff_t>(range.begin * per_sequence);
    const std::vector<double> expected(begin, begin + static_cast<std::ptrdiff_t>(logits.size()));
    std::lock_guard lock(mutex_);
    EXPECT_LE(relative_error(logits, expected), kTolerance) << "logits";
  }

  int64_t targets_of_step(uint32_t step) const {
    const std::vector<double>& targets = golden_.at("targets");
    const size_t per_step = targets.size() / golden_.steps;
    const auto begin = targets.begin() + static_cast<std::ptrdiff_t>(step * per_step);
    return std::count_if(begin, begin + static_cast<std::ptrdiff_t>(per_step),
                         [](double target) { return target >= 0; });
  }

  void train_step(uint32_t step) {
    const LossScale scale{1.0 / static_cast<double>(targets_of_step(step)),
                          golden_.config.aux_coef / golden_.micro_batches};
    double loss = 0, auxiliary = 0;
    model_->begin_step();
    for (uint32_t i = 0; i < golden_.micro_batches; ++i) {
      const std::vector<int32_t> tokens = share("tokens", step, i);
      const std::vector<int32_t> targets = share("targets", step, i);
      auto part = model_->forward_backward(comm_, {tokens, targets}, scale);
      ASSERT_TRUE(part.ok()) << part.error().message;
      loss += scale.cross_entropy * part->cross_entropy_sum + scale.auxiliary * part->auxiliary;
      auxiliary += part->auxiliary / golden_.micro_batches;
    }
    // A small bucket, so that several are filled.
    ASSERT_TRUE(reduce_gradients(comm_, *model_, 4096).ok());
    const auto summary = summarise_gradients(comm_, *model_);
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    EXPECT_TRUE(summary->finite);
    compare_number(loss, "losses", step);
    compare_number(auxiliary, "auxiliary", step);
    compare_number(summary->norm, "norms", step);
    if (step == 0) {
      for (const ParameterPart& part : model_->parts()) {
        compare(*part.read(&WeightState::grad), "grad/" + part.spec.name);
      }
    }
    adamw_step(*model_, golden_.optimizer,
               {.learning_rate = golden_.learning_rate,
                .gradient_factor = clip_factor(summary->norm, golden_.optimizer.clip_norm),
                .step = step});
  }

  const GoldenCase& golden_;
  Comm& comm_;
  std::mutex& mutex_;
  const std::unique_ptr<Device> device_ = make_cpu_device();
  std::unique_ptr<Model> model_;
};

struct GoldenRun {
  const char* name;
  uint32_t ranks;
};

class GoldenTest : public testing::TestWithParam<GoldenRun> {};

TEST_P(GoldenTest, AgreesWithHuggingFace) {
  const std::string path = std::string(GOLDEN_DIR) + "/" + GetParam().name + ".safetensors";
  const auto golden = read_golden(path);
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  // Everything in the file is compared: each parameter exists in it three times.
  size_t parameters = dense_parameters(golden->config).size();
  parameters += size_t{3} * golden->config.layers * golden->config.experts;
  EXPECT_EQ(golden->tensors.size(), 3 * parameters + 6);

  auto comms = make_local_comms(GetParam().ranks);
  std::mutex mutex;
  std::vector<std::jthread> threads;
  for (auto& comm : comms) {
    threads.emplace_back([&golden, &comm, &mutex] { Replay(*golden, *comm, mutex).run(); });
  }
}

std::vector<GoldenRun> golden_runs() {
  std::vector<GoldenRun> runs;
  for (const char* name : {"top1", "top2", "grouped_queries", "idle_expert", "clipping"}) {
    for (const uint32_t ranks : {1u, 2u, 3u}) runs.push_back({name, ranks});
  }
  return runs;
}

std::string run_name(const testing::TestParamInfo<GoldenRun>& run) {
  return std::string(run.param.name) + "_" + std::to_string(run.param.ranks) + "_ranks";
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest, testing::ValuesIn(golden_runs()), run_name);

}  // namespace
}  // namespace moetrain

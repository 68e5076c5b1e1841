// The model, its gradients and its optimizer on a GPU, held against the same code on the host.
#include <cmath>
#include <map>
#include <mutex>

#include "tests/trainer/device/cuda_fixture.h"
#include "tests/trainer/model/ranks.h"
#include "trainer/loop.h"
#include "trainer/parallel/replica_check.h"

namespace moetrain {
namespace {

// Of ||a - b|| / ||b|| for a tensor, and of losses. Only the order of sums differs.
constexpr double kTolerance = 1e-5;
// After Adam, which divides a gradient by its own size however small that is.
constexpr double kTrainedTolerance = 1e-4;

// Small, since an emulated thread costs as much as thousands of a real one.
TrainConfig small_config(Precision precision = Precision::kFp32) {
  TrainConfig config;
  config.model = {.vocab = 32,
                  .hidden = 16,
                  .layers = 1,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = 8,
                  .intermediate = 24,
                  .experts = 4,
                  .top_k = 2,
                  .seq_len = 8,
                  .rope_theta = 1e4,
                  .init_range = 0.2};
  config.micro_batches = 1;
  config.batch = 3;
  config.schedule.learning_rate = 4e-3;
  config.schedule.warmup_steps = 2;
  config.precision = precision;
  return config;
}

// Two layers, grouped queries, and gradients that are added up.
TrainConfig deeper_config() {
  TrainConfig config = small_config();
  config.model.layers = 2;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.micro_batches = 2;
  return config;
}

// Learnable: each byte says which one follows.
const std::vector<uint8_t>& text() {
  static const std::vector<uint8_t> text = [] {
    std::vector<uint8_t> bytes;
    for (uint32_t i = 0; i < 3000; ++i) bytes.push_back(static_cast<uint8_t>(i * 7 % 31));
    return bytes;
  }();
  return text;
}

using State = std::map<std::string, std::vector<float>>;  // parameters and moments, by name

struct Trained {
  std::vector<float> losses;
  State gradients;  // of the last step
  State state;
  Progress progress;
};

enum class Where { kHost, kGpu };

std::unique_ptr<Device> device_of(Where where, const TrainConfig& config) {
  if (where == Where::kHost) return make_cpu_device();
  auto device = make_cuda_device({.precision = config.precision});
  CKPT_ASSERT_MSG(device.ok(), device.error().message);
  return std::move(*device);
}

void load(Model& model, const State& state) {
  for (Parameter* parameter : model.parameters()) {
    const std::string& name = parameter->spec.name;
    parameter->value.write(std::span<const float>(state.at(name)));
    parameter->m.write(std::span<const float>(state.at("m." + name)));
    parameter->v.write(std::span<const float>(state.at("v." + name)));
  }
  model.parameters_changed();
}

void save(Model& model, Trained& trained) {
  for (Parameter* parameter : model.parameters()) {
    const std::string& name = parameter->spec.name;
    trained.gradients[name] = *parameter->grad.read<float>();
    trained.state[name] = *parameter->value.read<float>();
    trained.state["m." + name] = *parameter->m.read<float>();
    trained.state["v." + name] = *parameter->v.read<float>();
  }
}

// `steps` steps by the threads of a placement, from the beginning or from where `from` was.
Trained train(Where where, const TrainConfig& config, const ExpertPlacement& placement,
              uint64_t steps, const Trained* from = nullptr) {
  Trained trained;
  std::mutex mutex;
  run_ranks(placement.ranks, [&](Comm& comm) {
    const auto device = device_of(where, config);
    auto store = make_replicated_store(*device, config.model, placement, comm.rank());
    auto model = Model::create(*device, config.model, std::move(*store));
    ASSERT_TRUE(model.ok()) << model.error().message;
    Progress progress;
    if (from == nullptr) {
      (*model)->initialise(config.seed);
    } else {
      load(**model, from->state);
      progress = from->progress;
    }
    Trainer trainer(config, text());
    std::vector<float> losses;
    for (uint64_t i = 0; i < steps; ++i) {
      const auto result = trainer.step(comm, **model, progress);
      ASSERT_TRUE(result.ok()) << result.error().message;
      EXPECT_TRUE(result->applied);
      losses.push_back(result->loss);
    }
    const Status same = check_replicas(comm, **model);
    EXPECT_TRUE(same.ok()) << same.error().message;
    const std::lock_guard lock(mutex);
    if (trained.losses.empty()) trained.losses = losses;
    EXPECT_EQ(losses, trained.losses) << "rank " << comm.rank();
    save(**model, trained);
    trained.progress = progress;
  });
  return trained;
}

Trained train(Where where, const TrainConfig& config, uint32_t ranks, uint64_t steps,
              const Trained* from = nullptr) {
  return train(where, config, *static_placement(config.model.layers, config.model.experts, ranks),
               steps, from);
}

void expect_close(const State& actual, const State& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected) {
    double error = 0;
    double size = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += std::pow(static_cast<double>(actual.at(name)[i]) - values[i], 2);
      size += std::pow(static_cast<double>(values[i]), 2);
    }
    EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(size)) << name;
  }
}

void expect_close(const std::vector<float>& actual, const std::vector<float>& expected,
                  double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], tolerance * std::abs(expected[i])) << "step " << i + 1;
  }
}

class CudaModelTest : public CudaTest {};

TEST_F(CudaModelTest, GradientsAreThoseOfTheHost) {
  const Trained host = train(Where::kHost, deeper_config(), 1, 1);
  const Trained gpu = train(Where::kGpu, deeper_config(), 1, 1);
  expect_close(gpu.losses, host.losses, kTolerance);
  expect_close(gpu.gradients, host.gradients, kTolerance);
  EXPECT_EQ(gpu.progress, host.progress) << "other experts were chosen";
}

TEST_F(CudaModelTest, StepsAreThoseOfTheHost) {
  const Trained host = train(Where::kHost, small_config(), 1, 4);
  const Trained gpu = train(Where::kGpu, small_config(), 1, 4);
  expect_close(gpu.losses, host.losses, kTolerance);
  expect_close(gpu.state, host.state, kTrainedTolerance);
}

TEST_F(CudaModelTest, RanksOnOneGpuComputeWhatOneDoes) {
  const Trained one = train(Where::kGpu, small_config(), 1, 3);
  const Trained three = train(Where::kGpu, small_config(), 3, 3);
  expect_close(three.losses, one.losses, kTolerance);
  expect_close(three.state, one.state, kTrainedTolerance);
}

// Every rank holds every expert, in slots of another order, one of them twice.
TEST_F(CudaModelTest, ReplicasComputeWhatOneOfEachDoes) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const TrainConfig config = small_config(precision);
    LayerSlots slots(2);
    for (uint32_t expert = 0; expert < config.model.experts; ++expert) {
      slots[0].push_back(expert);
      slots[1].insert(slots[1].begin(), expert);
    }
    slots[1].push_back(0);
    const auto placement = make_placement(std::vector<LayerSlots>(config.model.layers, slots),
                                          config.model.experts, 2);
    ASSERT_TRUE(placement.ok());
    const Trained one = train(Where::kGpu, config, 1, 2);
    const Trained replicated = train(Where::kGpu, config, *placement, 2);
    const double tolerance = precision == Precision::kFp32 ? kTolerance : 1e-2;
    expect_close(replicated.losses, one.losses, tolerance);
    expect_close(replicated.gradients, one.gradients, precision == Precision::kFp32 ? 1e-3 : 0.1);
  }
}

TEST_F(CudaModelTest, RunsAreBitIdentical) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const Trained first = train(Where::kGpu, small_config(precision), 2, 2);
    const Trained second = train(Where::kGpu, small_config(precision), 2, 2);
    EXPECT_EQ(first.losses, second.losses);
    EXPECT_EQ(first.state, second.state);
  }
}

// What is restored is fp32; what products read of it must follow.
TEST_F(CudaModelTest, ARunThatIsResumedGoesOnBitByBit) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const TrainConfig config = small_config(precision);
    const Trained whole = train(Where::kGpu, config, 2, 4);
    const Trained half = train(Where::kGpu, config, 2, 2);
    const Trained rest = train(Where::kGpu, config, 2, 2, &half);
    EXPECT_EQ(rest.losses, std::vector<float>(whole.losses.begin() + 2, whole.losses.end()));
    EXPECT_EQ(rest.state, whole.state);
    EXPECT_EQ(rest.progress, whole.progress);
  }
}

TEST_F(CudaModelTest, Bf16FollowsFp32) {
  const Trained fp32 = train(Where::kGpu, small_config(), 1, 12);
  const Trained bf16 = train(Where::kGpu, small_config(Precision::kBf16), 1, 12);
  expect_close(bf16.losses, fp32.losses, 1e-2);
  EXPECT_NE(bf16.losses, fp32.losses) << "was computed in fp32";
  EXPECT_LT(fp32.losses.back(), fp32.losses.front() - 0.1f) << "has learned nothing";
}

}  // namespace
}  // namespace moetrain

#include "tests/trainer/training/training.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "trainer/comm/comm_thread.h"
#include "trainer/parallel/make_expert_store.h"
#include "trainer/parallel/replica_check.h"
#include "trainer/placement/compute_placement.h"

namespace moetrain {

namespace {

// Timeout of a collective: under compute-sanitizer the kernels of other ranks take minutes.
constexpr uint32_t kTimeoutMs = 600'000;

Status read_into(State& state, const std::string& name, const ParameterPart& part,
                 Tensor WeightState::*tensor) {
  CKPT_ASSIGN(const std::vector<float> values, part.read(tensor));
  std::vector<float>& all = state[name];
  all.resize(part.spec.elements(), std::numeric_limits<float>::quiet_NaN());
  std::ranges::copy(values, all.begin() + static_cast<ptrdiff_t>(part.elements.begin));
  return {};
}

}  // namespace

size_t merge(State& to, const State& from) {
  size_t others = 0;
  for (const auto& [name, values] : from) {
    std::vector<float>& all = to.try_emplace(name, values).first->second;
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(all[i])) all[i] = values[i];
      if (!std::isnan(values[i]) && all[i] != values[i]) ++others;
    }
  }
  return others;
}

TrainConfig small_config(uint32_t experts) {
  TrainConfig config;
  config.model = {.hidden = 16,
                  .layers = 2,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = 8,
                  .intermediate = 24,
                  .experts = experts,
                  .top_k = 2,
                  .seq_len = 16,
                  .rope_theta = 1e4};
  config.micro_batches = 2;
  config.batch = 4;
  config.schedule.warmup_steps = 2;
  return config;
}

std::vector<uint8_t> sample_text(size_t bytes) {
  constexpr size_t kWords = 200;
  std::mt19937 random(20250101);
  const auto below = [&](size_t bound) { return random() % bound; };
  std::vector<std::string> words;
  for (size_t i = 0; i < kWords; ++i) {
    std::string& word = words.emplace_back();
    for (size_t length = 2 + below(6); word.size() < length;) {
      word += static_cast<char>('a' + below(26));
    }
    word += ' ';
  }
  std::vector<uint8_t> text;
  size_t last = 0;
  while (text.size() < bytes) {
    // Each word is followed by one of four words, occasionally by any word.
    const size_t next = below(8) == 0 ? below(kWords) : last * 7 + 13 * below(4);
    last = next % kWords;
    text.insert(text.end(), words[last].begin(), words[last].end());
  }
  text.resize(bytes);
  return text;
}

Result<std::unique_ptr<RankTraining>> RankTraining::make(
    Device& device, Comm& comm, const TrainConfig& config, std::span<const uint8_t> text,
    const ComputePlacement* placement, ExpertState experts, const ExpertSchedule& schedule) {
  std::unique_ptr<RankTraining> training(new RankTraining(comm, config, text));
  const ModelConfig& shape = config.model;
  ComputePlacement blocks;
  if (placement == nullptr) {
    CKPT_ASSIGN(blocks, static_placement(shape.layers, shape.experts, comm.size()));
    placement = &blocks;
  }
  CKPT_ASSIGN(auto store, make_expert_store(device, shape, *placement,
                                            make_ownership(experts, *placement), comm.rank()));
  CKPT_ASSIGN(training->model_, Model::create(device, shape, std::move(store), schedule));
  training->model_->initialise(config.seed);
  return training;
}

Status RankTraining::steps(uint64_t count, const BeforeWrite& before_write) {
  for (uint64_t i = 0; i < count; ++i) {
    CKPT_ASSIGN(const StepResult result,
                trainer_.step(comm_, *model_, progress_, {}, before_write));
    losses_.push_back(result.loss);
    norms_.push_back(result.gradient_norm);
    traffic_.push_back(result.traffic);
  }
  return device().synchronize();
}

Result<State> RankTraining::state() {
  State state;
  for (const ParameterPart& part : model_->parts()) {
    const std::string& name = part.spec.name;
    CKPT_TRY(read_into(state, name, part, &WeightState::value));
    CKPT_TRY(read_into(state, "m." + name, part, &WeightState::m));
    CKPT_TRY(read_into(state, "v." + name, part, &WeightState::v));
  }
  return state;
}

Result<State> RankTraining::gradients() {
  State gradients;
  for (const ParameterPart& part : model_->parts()) {
    CKPT_TRY(read_into(gradients, part.spec.name, part, &WeightState::grad));
  }
  return gradients;
}

Status on_ranks(uint32_t ranks, const MakeDevice& make_device,
                const std::function<Status(Comm&, Device&)>& body, bool threaded) {
  auto comms = make_local_comms(ranks, kTimeoutMs);
  if (threaded) {
    auto seconds = make_local_comms(ranks, kTimeoutMs);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      comms[rank] = with_comm_thread(std::move(comms[rank]), std::move(seconds[rank]));
    }
  }
  std::vector<std::optional<ckpt::Error>> errors(ranks);
  {
    std::vector<std::jthread> threads;
    threads.reserve(ranks);
    for (auto& comm : comms) {
      threads.emplace_back([&] {
        const auto on_rank = [&]() -> Status {
          CKPT_ASSIGN(const std::unique_ptr<Device> device, make_device());
          return body(*comm, *device);
        };
        const uint32_t rank = comm->rank();
        const Status status = on_rank();
        if (status.ok()) return;
        errors[rank] = status.error();
        comm->abort(status.error().message);
      });
    }
  }
  // Report a rank's own error before the errors that it caused on other ranks.
  const auto is_echo = [](const auto& error) {
    return !error || error->code == ckpt::ErrorCode::kAborted;
  };
  for (const bool echo : {false, true}) {
    for (const auto& error : errors) {
      if (error && is_echo(error) == echo) return *error;
    }
  }
  return {};
}

Result<std::vector<TrainedRank>> train(const Training& training) {
  std::vector<TrainedRank> trained(training.ranks);
  const auto on_rank = [&](Comm& comm, Device& device) -> Status {
    CKPT_ASSIGN(const auto rank, RankTraining::make(device, comm, training.config, training.text,
                                                    training.placement, training.experts));
    if (training.prepare) training.prepare(rank->model());
    CKPT_TRY(rank->steps(training.steps));
    CKPT_TRY(check_replicas(comm, rank->model()));
    TrainedRank& mine = trained[comm.rank()];
    mine.losses = rank->losses();
    mine.progress = rank->progress();
    CKPT_ASSIGN(mine.state, rank->state());
    CKPT_ASSIGN(mine.gradients, rank->gradients());
    return {};
  };
  CKPT_TRY(on_ranks(training.ranks, training.make_device, on_rank, training.threaded));
  return trained;
}

}  // namespace moetrain

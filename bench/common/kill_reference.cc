#include "bench/common/kill_reference.h"

#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/data.h"
#include "trainer/loop.h"
#include "trainer/model/expert_store.h"
#include "trainer/model/presets.h"
#include "trainer/parallel/make_expert_store.h"
#include "trainer/partial/experts.h"
#include "trainer/placement/compute_placement.h"

namespace bench {

using ckpt::Result;
using ckpt::Status;
using moetrain::OwnedRange;
using moetrain::Tensor;

namespace {

// Some experts as they were after a step.
struct Kept {
  std::map<uint32_t, std::vector<std::vector<std::byte>>> tensors;  // by expert of the grid
  std::vector<int64_t> updates;                                     // of all experts
  std::vector<int64_t> routed;
};

std::array<Tensor*, 3> state_of(OwnedRange& expert) {
  return {&expert.value, &expert.m, &expert.v};
}

// One rank with all experts.
class Training {
 public:
  Training(const StepWorkload& workload, moetrain::Corpus corpus)
      : config_(train_config(workload)),
        grid_{workload.layers, workload.experts},
        corpus_(std::move(corpus)),
        trainer_(config_, corpus_.train()),
        comms_(moetrain::make_local_comms(1)) {}

  Status prepare() {
    device_ = moetrain::make_cpu_device();
    CKPT_ASSIGN(const auto placement, moetrain::static_placement(grid_.layers, grid_.experts, 1));
    CKPT_ASSIGN(auto store,
                moetrain::make_expert_store(*device_, config_.model, placement,
                                            moetrain::Ownership::replicated(placement), 0));
    CKPT_ASSIGN(model_, moetrain::Model::create(*device_, config_.model, std::move(store)));
    model_->initialise(config_.seed);
    return {};
  }

  Result<ReferenceRun> run(uint64_t steps, const std::optional<RollBack>& roll_back) {
    ReferenceRun result;
    Kept kept;
    for (uint64_t step = 1; step <= steps; ++step) {
      CKPT_ASSIGN(const moetrain::StepResult done,
                  trainer_.step(*comms_.front(), *model_, progress_));
      result.loss_bits[done.step] = std::bit_cast<uint32_t>(done.loss);
      if (!roll_back) continue;
      if (step == roll_back->version) CKPT_TRY(keep(roll_back->experts, kept));
      if (step == roll_back->at) result.lost_tokens = put_back(kept);
    }
    return result;
  }

 private:
  Status keep(const std::set<uint32_t>& experts, Kept& kept) {
    kept.updates = progress_.expert_updates;
    kept.routed = progress_.routed_tokens;
    for (OwnedRange& expert : model_->experts().owned()) {
      const auto at = static_cast<uint32_t>(grid_.at(expert.layer, expert.expert));
      if (!experts.contains(at)) continue;
      for (const Tensor* tensor : state_of(expert)) {
        std::vector<std::byte> bytes(tensor->bytes());
        CKPT_TRY(tensor->read_bytes(bytes));
        kept.tensors[at].push_back(std::move(bytes));
      }
    }
    return {};
  }

  int64_t put_back(const Kept& kept) {
    int64_t lost_tokens = 0;
    for (OwnedRange& expert : model_->experts().owned()) {
      const auto at = static_cast<uint32_t>(grid_.at(expert.layer, expert.expert));
      const auto found = kept.tensors.find(at);
      if (found == kept.tensors.end()) continue;
      const auto tensors = state_of(expert);
      for (size_t i = 0; i < tensors.size(); ++i) tensors[i]->write_bytes(found->second[i]);
      progress_.expert_updates[at] = kept.updates[at];
      lost_tokens += progress_.routed_tokens[at] - kept.routed[at];
    }
    model_->parameters_changed();
    return lost_tokens;
  }

  const moetrain::TrainConfig config_;
  const moetrain::ExpertGrid grid_;
  const moetrain::Corpus corpus_;
  moetrain::Trainer trainer_;
  std::vector<std::unique_ptr<moetrain::Comm>> comms_;
  std::unique_ptr<moetrain::Device> device_;
  std::unique_ptr<moetrain::Model> model_;
  moetrain::Progress progress_;
};

}  // namespace

moetrain::TrainConfig train_config(const StepWorkload& workload) {
  moetrain::TrainConfig config;
  config.model = *moetrain::preset("tiny");
  config.model.layers = workload.layers;
  config.model.experts = workload.experts;
  config.model.intermediate = workload.intermediate;
  config.model.seq_len = workload.seq_len;
  config.micro_batches = 1;
  config.batch = workload.batch;
  return config;
}

Result<ReferenceRun> train_reference(const StepWorkload& workload,
                                     const std::optional<RollBack>& roll_back) {
  CKPT_ASSIGN(moetrain::Corpus corpus, moetrain::Corpus::load({workload.data}));
  Training training(workload, std::move(corpus));
  CKPT_TRY(training.prepare());
  return training.run(workload.window.last, roll_back);
}

}  // namespace bench

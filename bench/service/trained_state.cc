#include "bench/service/trained_state.h"

#include <algorithm>
#include <memory>

#include "bench/common/kill_reference.h"
#include "kernels/bf16.h"
#include "trainer/comm/comm.h"
#include "trainer/data.h"
#include "trainer/loop.h"
#include "trainer/model/expert_store.h"
#include "trainer/model/model.h"
#include "trainer/parallel/make_expert_store.h"
#include "trainer/placement/compute_placement.h"

namespace bench {

using ckpt::Result;
using ckpt::Status;
using moetrain::ParameterPart;
using moetrain::Tensor;
using moetrain::WeightState;

namespace {

Status append_part(const ParameterPart& part, Tensor WeightState::*tensor,
                   std::vector<std::byte>& to) {
  CKPT_ASSIGN(const std::vector<float> values, part.read(tensor));
  const auto bytes = std::as_bytes(std::span(values));
  to.insert(to.end(), bytes.begin(), bytes.end());
  return {};
}

Result<TrainedState> state_of(moetrain::Model& model) {
  std::vector<ParameterPart> parts = model.parts();
  // Experts are included twice, as when the published ratios of codecs were measured.
  for (moetrain::OwnedRange& range : model.experts().owned()) {
    for (ParameterPart& part : parts_of(range, model.config())) parts.push_back(std::move(part));
  }
  TrainedState state;
  for (const ParameterPart& part : parts) {
    CKPT_TRY(append_part(part, &WeightState::value, state.weights));
    CKPT_TRY(append_part(part, &WeightState::m, state.first_moments));
    CKPT_TRY(append_part(part, &WeightState::v, state.second_moments));
  }
  return state;
}

}  // namespace

Result<std::map<uint64_t, TrainedState>> train_states(const std::string& data,
                                                      const std::set<uint64_t>& at) {
  const moetrain::TrainConfig config =
      train_config({.data = data, .layers = 2, .experts = 16, .intermediate = 256, .batch = 16});
  std::vector<std::string> paths = {data};
  if (data.empty()) {
    CKPT_ASSIGN(paths, moetrain::default_data_paths());
  }
  CKPT_ASSIGN(const moetrain::Corpus corpus, moetrain::Corpus::load(paths));
  CKPT_TRY(corpus.check_fits(config.model.seq_len));
  moetrain::Trainer trainer(config, corpus.train());
  const auto comms = moetrain::make_local_comms(1);
  const auto device = moetrain::make_cpu_device();
  CKPT_ASSIGN(const auto placement,
              moetrain::static_placement(config.model.layers, config.model.experts, 1));
  CKPT_ASSIGN(auto store,
              moetrain::make_expert_store(*device, config.model, placement,
                                          moetrain::Ownership::replicated(placement), 0));
  CKPT_ASSIGN(const auto model, moetrain::Model::create(*device, config.model, std::move(store)));
  model->initialise(config.seed);
  moetrain::Progress progress;
  std::map<uint64_t, TrainedState> states;
  for (uint64_t step = 1; step <= *at.rbegin(); ++step) {
    CKPT_TRY(trainer.step(*comms.front(), *model, progress));
    if (!at.contains(step)) continue;
    CKPT_ASSIGN(states[step], state_of(*model));
  }
  return states;
}

std::vector<std::byte> as_bf16(ckpt::ByteView floats) {
  std::vector<std::byte> rounded(floats.size() / 2);
  for (size_t i = 0; i < floats.size() / sizeof(float); ++i) {
    const auto value = ckpt::base::load<float>(floats.data() + i * sizeof(float));
    ckpt::base::store(rounded.data() + i * sizeof(uint16_t), ckpt::kernels::to_bf16(value).bits);
  }
  return rounded;
}

}  // namespace bench

// Writes a freshly initialised model the way `ckptctl export` lays it out, and its logits the way
// `moetrain eval --logits --json` describes them: check_export.py can then be tried, and
// config.json and tensor names be checked against Hugging Face, without a daemon and without a
// training run.
//
//   golden_sample_export DIR [PRESET]  ->  DIR/{config.json,model.safetensors,eval.json,logits.f32}
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/safetensors.h"
#include "trainer/model/model.h"
#include "trainer/model/philox.h"
#include "trainer/model/presets.h"
#include "trainer/parallel/make_expert_store.h"

namespace moetrain {
namespace {

Status write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file) return {};
  return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: cannot be written", path);
}

Status write_weights(Model& model, const std::string& path) {
  std::vector<ckpt::safetensors::Tensor> tensors;
  std::string data;
  for (const ParameterPart& part : model.parts()) {
    tensors.push_back({part.spec.name, ckpt::DType::kF32, part.spec.shape, 0, 0});
    data += ckpt::as_text(part.bytes_in(part.state->value));
  }
  CKPT_ASSIGN(const auto header, ckpt::safetensors::make_header(tensors, {{"format", "pt"}}));
  return write_file(path, std::string(ckpt::as_text(header)) + data);
}

Status write_sample(const std::string& folder, const ModelConfig& config) {
  CKPT_ASSIGN(const auto placement, static_placement(config.layers, config.experts, 1));
  const std::unique_ptr<Device> device = make_cpu_device();
  CKPT_ASSIGN(auto store,
              make_expert_store(*device, config, placement, Ownership::replicated(placement), 0));
  CKPT_ASSIGN(const auto model, Model::create(*device, config, std::move(store)));
  model->initialise(/*seed=*/1);
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < config.seq_len; ++i) {
    tokens.push_back(static_cast<int32_t>(philox(/*key=*/2, i)[0] % config.vocab));
  }
  std::vector<float> logits(tokens.size() * config.vocab);
  const auto comms = make_local_comms(1);
  CKPT_TRY(model->evaluate(*comms[0], {tokens, tokens}, logits));

  std::filesystem::create_directories(folder);
  CKPT_TRY(write_file(folder + "/config.json", to_hugging_face_json(config)));
  CKPT_TRY(write_weights(*model, folder + "/model.safetensors"));
  CKPT_TRY(write_file(folder + "/logits.f32", ckpt::as_text(std::as_bytes(std::span(logits)))));
  const nlohmann::ordered_json answer = {{"logits",
                                          {{"file", "logits.f32"},
                                           {"dtype", "F32"},
                                           {"shape", {tokens.size(), config.vocab}},
                                           {"tokens", tokens}}}};
  return write_file(folder + "/eval.json", answer.dump() + "\n");
}

}  // namespace
}  // namespace moetrain

int main(int argc, char** argv) {
  const auto config = moetrain::preset(argc > 2 ? argv[2] : "tiny");
  if (argc < 2 || !config) {
    fmt::print(stderr, "usage: {} DIR [PRESET]\n", argv[0]);
    return 2;
  }
  const ckpt::Status status = moetrain::write_sample(argv[1], *config);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().message);
  return ckpt::exit_code_for(status.error().code);
}

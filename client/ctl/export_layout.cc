#include "client/ctl/export_layout.h"

#include <set>

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::TensorSpec;

struct Chosen {
  ckpt::UnitId unit = 0;
  const TensorSpec* tensor = nullptr;
  uint64_t bytes = 0;
};

Result<std::vector<Chosen>> choose(const Schema& schema, const ExportOptions& options) {
  std::vector<Chosen> chosen;
  std::set<std::string_view> names;
  for (const ViewUnit& unit : schema.units) {
    if (unit.name == "trainer") continue;
    for (const TensorSpec& tensor : unit.tensors) {
      if (tensor.name.starts_with("optimizer.") && !options.include_optimizer) continue;
      if (!names.insert(tensor.name).second) {
        return make_error(ErrorCode::kFailedPrecondition,
                          "unit {} tensor {}: another unit has a tensor of that name", unit.name,
                          tensor.name);
      }
      CKPT_ASSIGN(const uint64_t bytes, ckpt::tensor_bytes(tensor));
      chosen.push_back({unit.id, &tensor, bytes});
    }
  }
  if (chosen.empty()) {
    return make_error(ErrorCode::kFailedPrecondition, "the run's units have no tensors to export");
  }
  return chosen;
}

// Files of at most shard_bytes, each with at least one tensor.
std::vector<std::vector<Chosen>> into_shards(const std::vector<Chosen>& chosen,
                                             uint64_t shard_bytes) {
  std::vector<std::vector<Chosen>> shards(1);
  uint64_t used = 0;
  for (const Chosen& tensor : chosen) {
    const bool full = shard_bytes > 0 && used + tensor.bytes > shard_bytes;
    if (full && !shards.back().empty()) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(tensor);
    used += tensor.bytes;
  }
  return shards;
}

Result<ExportFile> make_file(std::string name, const std::vector<Chosen>& chosen) {
  ExportFile file;
  file.name = std::move(name);
  std::vector<ckpt::safetensors::Tensor> tensors;
  tensors.reserve(chosen.size());
  for (const Chosen& one : chosen) {
    tensors.push_back({one.tensor->name, one.tensor->dtype, one.tensor->shape, 0, 0});
  }
  // Without this transformers refuses the file.
  CKPT_ASSIGN(file.header, ckpt::safetensors::make_header(tensors, {{"format", "pt"}}));
  file.bytes = file.header.size();
  for (const Chosen& one : chosen) {
    file.pieces.push_back({one.unit, one.tensor->offset, one.bytes, file.bytes, 0});
    file.bytes += one.bytes;
  }
  return file;
}

}  // namespace

Result<ExportLayout> make_export_layout(const Schema& schema, const ExportOptions& options) {
  CKPT_ASSIGN(const std::vector<Chosen> chosen, choose(schema, options));
  const auto shards = into_shards(chosen, options.shard_bytes);
  ExportLayout layout;
  layout.tensors = chosen.size();
  for (const Chosen& tensor : chosen) layout.data_bytes += tensor.bytes;
  Json weight_map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = shards.size() == 1
                           ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const Chosen& tensor : shards[i]) weight_map[tensor.tensor->name] = name;
    CKPT_ASSIGN(ExportFile file, make_file(std::move(name), shards[i]));
    layout.files.push_back(std::move(file));
  }
  if (shards.size() > 1) {
    layout.index = {{"metadata", {{"total_size", layout.data_bytes}}},
                    {"weight_map", std::move(weight_map)}};
  }
  return layout;
}

}  // namespace ckptctl

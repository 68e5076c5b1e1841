#include "client/ctl/export_layout.h"

#include <set>

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::TensorSpec;

struct Chosen {
  ckpt::UnitId unit = 0;
  TensorSpec tensor;
  uint64_t bytes = 0;
};

// The unit's tensors that are wanted; none: it is left out.
Result<std::vector<TensorSpec>> wanted_of(const ViewUnit& unit, const ExportOptions& options) {
  if (options.resumable) return all_bytes_of(unit);
  std::vector<TensorSpec> wanted;
  if (unit.name == "trainer") return wanted;
  for (const TensorSpec& tensor : unit.tensors) {
    if (tensor.name.starts_with("optimizer.") && !options.include_optimizer) continue;
    wanted.push_back(tensor);
  }
  return wanted;
}

// As it is exported: whole, or the wanted tensors one after another.
Result<ViewUnit> exported_unit(const ViewUnit& unit, const std::vector<TensorSpec>& wanted) {
  uint64_t covered = 0;
  for (const TensorSpec& tensor : wanted) {
    CKPT_ASSIGN(const uint64_t bytes, ckpt::tensor_bytes(tensor));
    covered += bytes;
  }
  if (covered == unit.bytes) return unit;
  ViewUnit cut = unit;
  cut.tensors = wanted;
  cut.bytes = 0;
  for (TensorSpec& tensor : cut.tensors) {
    CKPT_ASSIGN(const uint64_t bytes, ckpt::tensor_bytes(tensor));
    tensor.offset = cut.bytes;
    cut.bytes += bytes;
  }
  return cut;
}

Result<std::vector<Chosen>> choose(const Schema& schema, const ExportOptions& options,
                                   std::vector<ViewUnit>& exported) {
  std::vector<Chosen> chosen;
  std::set<std::string> names;
  for (const ViewUnit& unit : schema.units) {
    CKPT_ASSIGN(const std::vector<TensorSpec> wanted, wanted_of(unit, options));
    for (const TensorSpec& tensor : wanted) {
      if (!names.insert(tensor.name).second) {
        return make_error(ErrorCode::kFailedPrecondition,
                          "unit {} tensor {}: another unit has a tensor of that name", unit.name,
                          tensor.name);
      }
      CKPT_ASSIGN(const uint64_t bytes, ckpt::tensor_bytes(tensor));
      chosen.push_back({unit.id, tensor, bytes});
    }
    CKPT_ASSIGN(ViewUnit left, exported_unit(unit, wanted));
    if (wanted.empty() || left.bytes == 0) continue;
    left.id = static_cast<ckpt::UnitId>(exported.size());
    exported.push_back(std::move(left));
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
    tensors.push_back({one.tensor.name, one.tensor.dtype, one.tensor.shape, 0, 0});
  }
  // Without this transformers refuses the file.
  CKPT_ASSIGN(file.header, ckpt::safetensors::make_header(tensors, {{"format", "pt"}}));
  file.bytes = file.header.size();
  for (const Chosen& one : chosen) {
    file.pieces.push_back({one.unit, one.tensor.offset, one.bytes, file.bytes, 0});
    file.bytes += one.bytes;
  }
  return file;
}

}  // namespace

Result<std::vector<TensorSpec>> all_bytes_of(const ViewUnit& unit) {
  std::vector<TensorSpec> tensors;
  uint64_t at = 0;
  const auto cover = [&](uint64_t end) {
    if (end <= at) return;
    tensors.push_back(
        {fmt::format("ckptd.rest.{}.{}", unit.name, at), ckpt::DType::kU8, {end - at}, at});
  };
  for (const TensorSpec& tensor : unit.tensors) {
    cover(tensor.offset);
    tensors.push_back(tensor);
    CKPT_ASSIGN(const uint64_t bytes, ckpt::tensor_bytes(tensor));
    at = tensor.offset + bytes;
  }
  cover(unit.bytes);
  return tensors;
}

Result<ExportLayout> make_export_layout(const Schema& schema, const ExportOptions& options) {
  ExportLayout layout;
  CKPT_ASSIGN(const std::vector<Chosen> chosen, choose(schema, options, layout.exported));
  const auto shards = into_shards(chosen, options.shard_bytes);
  layout.tensors = chosen.size();
  for (const Chosen& tensor : chosen) layout.data_bytes += tensor.bytes;
  Json weight_map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = shards.size() == 1
                           ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const Chosen& tensor : shards[i]) weight_map[tensor.tensor.name] = name;
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

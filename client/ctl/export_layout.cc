#include "client/ctl/export_layout.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "client/ctl/logical_tensors.h"
#include "client/ctl/manifest.h"
#include "formats/base/printable.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::TensorSpec;

// `optim.` is the prefix of the Python package.
bool is_optimizer(const TensorSpec& tensor) {
  return tensor.name.starts_with("optimizer.") || tensor.name.starts_with("optim.");
}

// The unit's wanted tensors; empty: the unit is not exported.
Result<std::vector<TensorSpec>> wanted_of(const ViewUnit& unit, const ExportOptions& options) {
  if (options.resumable) return all_bytes_of(unit);
  std::vector<TensorSpec> wanted;
  if (unit.name == kTrainerUnit) return wanted;
  for (const TensorSpec& tensor : unit.tensors) {
    if (is_optimizer(tensor) && !options.include_optimizer) continue;
    if (unit.name == kFilesUnit && !kept_file(tensor).empty()) continue;
    wanted.push_back(tensor);
  }
  return wanted;
}

// The unit in the export: whole, or only the wanted tensors, packed.
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

Result<std::vector<UnitTensor>> choose(const Schema& schema, const ExportOptions& options,
                                       std::vector<ViewUnit>& exported) {
  std::vector<UnitTensor> chosen;
  for (const ViewUnit& unit : schema.units) {
    CKPT_ASSIGN(const std::vector<TensorSpec> wanted, wanted_of(unit, options));
    for (const TensorSpec& tensor : wanted) chosen.push_back({&unit, tensor});
    CKPT_ASSIGN(ViewUnit left, exported_unit(unit, wanted));
    if (wanted.empty() || left.bytes == 0) continue;
    left.id = static_cast<ckpt::UnitId>(exported.size());
    exported.push_back(std::move(left));
  }
  return chosen;
}

// ---- generated files ---------------------------------------------------------------------------

using Shard = std::vector<const LogicalTensor*>;

// Distributes tensors over files of at most shard_bytes, each with at least one tensor.
std::vector<Shard> into_shards(const std::vector<LogicalTensor>& tensors, uint64_t shard_bytes) {
  std::vector<Shard> shards(1);
  uint64_t used = 0;
  for (const LogicalTensor& tensor : tensors) {
    const bool full = shard_bytes > 0 && used + tensor.bytes > shard_bytes;
    if (full && !shards.back().empty()) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(&tensor);
    used += tensor.bytes;
  }
  return shards;
}

void add_pieces(const LogicalTensor& tensor, uint64_t destination, ExportFile& file) {
  for (WantedBytes piece : tensor.pieces) {
    if (piece.length == 0) continue;
    piece.destination += destination;
    file.pieces.push_back(piece);
  }
}

using HeaderMetadata = std::map<std::string, std::string>;

// Metadata of the imported files' headers; transformers needs the key "format".
HeaderMetadata header_metadata(const OriginalFiles& originals) {
  HeaderMetadata metadata;
  for (const OriginalFiles::File& file : originals.files) {
    const HeaderMetadata& own = file.tensors.header.metadata;
    metadata.insert(own.begin(), own.end());
  }
  metadata.emplace("format", "pt");
  return metadata;
}

Result<ExportFile> make_file(std::string name, const Shard& shard, const HeaderMetadata& metadata) {
  ExportFile file;
  file.name = std::move(name);
  std::vector<ckpt::safetensors::Tensor> tensors;
  tensors.reserve(shard.size());
  for (const LogicalTensor* one : shard) {
    tensors.push_back({one->name, one->dtype, one->shape, 0, 0});
  }
  CKPT_ASSIGN(file.header, ckpt::safetensors::make_header(tensors, metadata));
  file.bytes = file.header.size();
  for (const LogicalTensor* one : shard) {
    add_pieces(*one, file.bytes, file);
    file.bytes += one->bytes;
  }
  return file;
}

Status add_new_files(const std::vector<LogicalTensor>& tensors, uint64_t shard_bytes,
                     const HeaderMetadata& metadata, ExportLayout& layout) {
  const auto shards = into_shards(tensors, shard_bytes);
  nlohmann::json weight_map = nlohmann::json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = shards.size() == 1
                           ? kModelName
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    if (shards.size() > 1) {
      for (const LogicalTensor* tensor : shards[i]) weight_map[tensor->name] = name;
    }
    CKPT_ASSIGN(ExportFile file, make_file(std::move(name), shards[i], metadata));
    layout.files.push_back(std::move(file));
  }
  if (shards.size() > 1) {
    layout.index = {{"metadata", {{"total_size", layout.data_bytes}}},
                    {"weight_map", std::move(weight_map)}};
  }
  return ckpt::ok_status();
}

// ---- files as imported --------------------------------------------------------------------------

// Lays out the tensors as in the original headers. Returns the reason if that is impossible.
std::string add_original_files(const std::vector<LogicalTensor>& tensors,
                               const OriginalFiles& originals, ExportLayout& layout) {
  std::unordered_map<std::string_view, const LogicalTensor*> by_name;
  for (const LogicalTensor& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  size_t used = 0;
  std::vector<ExportFile> files;
  for (const OriginalFiles::File& original : originals.files) {
    const ckpt::safetensors::Header& header = original.tensors.header;
    ExportFile file{original.tensors.name, original.header, {}, 0};
    file.bytes = header.data_offset + header.data_bytes;
    for (const auto& tensor : header.tensors) {
      const auto found = by_name.find(tensor.name);
      const bool same = found != by_name.end() && found->second->dtype == tensor.dtype &&
                        found->second->shape == tensor.shape;
      if (!same) {
        return fmt::format("tensor {} is not in the run as {} had it",
                           ckpt::base::printable(tensor.name), file.name);
      }
      add_pieces(*found->second, header.data_offset + tensor.begin, file);
      ++used;
    }
    files.push_back(std::move(file));
  }
  if (used != tensors.size()) return "the run has tensors that the imported files did not have";
  layout.files = std::move(files);
  layout.as_imported = true;
  return "";
}

// An option that the original layout cannot satisfy, as a sentence; empty: none.
std::string layout_conflict(const Schema& schema, const ExportOptions& options) {
  if (options.resumable) return "--resumable writes every byte of every unit";
  if (options.shard_bytes > 0) return "--shard-bytes cuts the files anew";
  for (const ViewUnit& unit : schema.units) {
    const bool optimizer = std::ranges::any_of(unit.tensors, is_optimizer);
    if (optimizer && !options.include_optimizer) {
      return "tensors of the optimizer are left out without --include-optimizer";
    }
  }
  return "";
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

Result<ExportLayout> make_export_layout(const Schema& schema, const ExportOptions& options,
                                        const OriginalFiles& originals) {
  ExportLayout layout;
  CKPT_ASSIGN(const auto chosen, choose(schema, options, layout.exported));
  CKPT_ASSIGN(const std::vector<LogicalTensor> tensors, join_tensors(chosen, originals));
  if (tensors.empty() && originals.empty()) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "its units have no tensors to export; --resumable exports all their bytes");
  }
  layout.tensors = tensors.size();
  for (const LogicalTensor& tensor : tensors) layout.data_bytes += tensor.bytes;
  if (!originals.empty()) {
    layout.differs = layout_conflict(schema, options);
    if (layout.differs.empty()) layout.differs = add_original_files(tensors, originals, layout);
  }
  if (!layout.as_imported) {
    CKPT_TRY(add_new_files(tensors, options.shard_bytes, header_metadata(originals), layout));
  }
  for (const OriginalFiles::Text& text : originals.texts) {
    if (layout.as_imported || text.name == kConfigName) layout.texts.push_back(text);
  }
  return layout;
}

}  // namespace ckptctl

#include "client/ctl/import_layout.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "client/ctl/expert_names.h"
#include "client/ctl/export_layout.h"
#include "client/ctl/original_files.h"
#include "client/ctl/unit_names.h"
#include "formats/base/checked.h"
#include "formats/base/printable.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::TensorSpec;
using ckpt::base::printable;

// More experts than any model has. A stacked tensor with more rows is left whole.
constexpr uint64_t kStackedExpertsMax = 4096;
// Slices of one import, so that a small file cannot ask for the memory of billions. Models have
// some ten thousands; what is beyond is left whole.
constexpr uint64_t kSlicesMax = 1 << 20;

// A tensor of the files.
struct Found {
  const ckpt::safetensors::Tensor* tensor = nullptr;
  size_t file = 0;
  bool used = false;
  std::set<uint64_t> slices_used;  // along the first dimension

  uint64_t bytes() const { return tensor->end - tensor->begin; }
};
using FoundByName = std::unordered_map<std::string_view, Found>;

Result<FoundByName> find_all(const std::vector<TensorFile>& files) {
  FoundByName found;
  for (size_t i = 0; i < files.size(); ++i) {
    for (const auto& tensor : files[i].header.tensors) {
      const auto [there, added] = found.emplace(tensor.name, Found{&tensor, i, false, {}});
      if (added) continue;
      return make_error(ErrorCode::kFailedPrecondition, "{}: tensor {} is in another file, too: {}",
                        files[i].name, printable(tensor.name), files[there->second.file].name);
    }
  }
  return found;
}

// A stretch of a tensor that becomes a tensor of a unit: all of it, or a slice.
struct Stretch {
  TensorSpec spec;  // its offset is set when it is added
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

Stretch whole(const ckpt::safetensors::Tensor& tensor) {
  return {{tensor.name, tensor.dtype, tensor.shape, 0}, tensor.begin, tensor.end - tensor.begin};
}

// Slice `index` of the first dimension; nothing if the slices have no bytes of their own.
std::optional<Stretch> slice(const ckpt::safetensors::Tensor& tensor, uint64_t index) {
  if (tensor.shape.empty() || index >= tensor.shape[0]) return std::nullopt;
  Stretch part;
  part.spec.name = slice_name(tensor.name, index);
  part.spec.dtype = tensor.dtype;
  part.spec.shape.assign(tensor.shape.begin() + 1, tensor.shape.end());
  const auto bytes = ckpt::tensor_bytes(part.spec);
  if (!bytes.ok() || *bytes == 0) return std::nullopt;
  part.bytes = *bytes;
  part.begin = tensor.begin + index * part.bytes;
  return part;
}

class Layouter {
 public:
  Layouter(const std::vector<TensorFile>& files, FoundByName found)
      : files_(files), found_(std::move(found)) {}

  Status add_known(const ViewUnit& unit) {
    CKPT_ASSIGN(ckpt::UnitSpec spec, to_spec(unit));
    CKPT_ASSIGN(const std::vector<TensorSpec> wanted, all_bytes_of(unit));
    const auto id = static_cast<ckpt::UnitId>(layout_.units.size());
    layout_.units.push_back(std::move(spec));
    for (const TensorSpec& tensor : wanted) CKPT_TRY(add_wanted(unit, id, tensor));
    return {};
  }

  // Tensors that no unit has taken.
  Status add_others() {
    count_experts();
    for (const TensorFile& file : files_) {
      for (const auto& tensor : file.header.tensors) {
        Found& found = found_.at(tensor.name);
        if (!found.used) CKPT_TRY(add_other(file, found));
      }
    }
    return {};
  }

  Result<ImportLayout> take() {
    std::set<std::string_view> names;
    for (const ckpt::UnitSpec& unit : layout_.units) {
      if (!names.insert(unit.name).second) {
        return make_error(ErrorCode::kFailedPrecondition, "unit {}: twice", unit.name);
      }
      const Status possible = ckpt::validate(unit);
      if (possible.ok()) continue;
      // A unit from outside has at least one tensor.
      const std::string tensor = unit.tensors.empty() ? "" : unit.tensors.front().name;
      const auto found = found_.find(tensor);
      return make_error(ErrorCode::kFailedPrecondition, "{}: tensor {} cannot be kept: {}",
                        found == found_.end() ? "" : files_[found->second.file].name,
                        printable(tensor), possible.error().message);
    }
    if (files_.empty()) {
      return make_error(ErrorCode::kFailedPrecondition, "the files have no bytes to import");
    }
    std::ranges::stable_sort(layout_.pieces, {}, &WantedBytes::unit);
    return std::move(layout_);
  }

 private:
  Status add_wanted(const ViewUnit& unit, ckpt::UnitId id, const TensorSpec& tensor) {
    const auto about = [&](std::string_view how) {
      return make_error(ErrorCode::kFailedPrecondition, "unit {} tensor {}: {}", unit.name,
                        printable(tensor.name), how);
    };
    auto found = found_.find(tensor.name);
    std::optional<Stretch> there;
    if (found != found_.end()) {
      there = whole(*found->second.tensor);
      if (found->second.used || !found->second.slices_used.empty()) {
        return about("two units have it");
      }
      found->second.used = true;
    } else if (const auto part = parse_slice_name(tensor.name)) {
      found = found_.find(part->tensor);
      if (found != found_.end()) there = slice(*found->second.tensor, part->index);
      if (there && (found->second.used || !found->second.slices_used.insert(part->index).second)) {
        return about("two units have it");
      }
    }
    if (!there) return about(fmt::format("{} lists it, but no file has it", kManifestName));
    if (there->spec.dtype != tensor.dtype || there->spec.shape != tensor.shape) {
      return about(fmt::format("{} says {} of {} bytes, {} has {} of {} bytes", kManifestName,
                               ckpt::dtype_name(tensor.dtype), ckpt::tensor_bytes(tensor).value(),
                               files_[found->second.file].name, ckpt::dtype_name(there->spec.dtype),
                               there->bytes));
    }
    const auto& shape = found->second.tensor->shape;
    if (!shape.empty() && found->second.slices_used.size() == shape[0]) found->second.used = true;
    if (found->second.used) ++layout_.tensors;
    add_bytes(found->second, id, tensor.offset, *there);
    return {};
  }

  // Experts of each layer's list, by its stacked weights.
  void count_experts() {
    for (const auto& [name, found] : found_) {
      if (const auto part = parse_slice_name(name)) named_as_slices_.insert(part->tensor);
      const auto expert = found.used ? std::nullopt : expert_tensor(name);
      if (!expert || !expert->counts_experts || found.tensor->shape.empty()) continue;
      const uint64_t rows = found.tensor->shape[0];
      const auto [there, added] = experts_.emplace(expert->experts, rows);
      if (!added && there->second != rows) there->second = 0;  // they disagree: nothing is split
    }
  }

  Status add_other(const TensorFile& file, Found& found) {
    const ckpt::safetensors::Tensor& tensor = *found.tensor;
    if (!found.slices_used.empty()) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "{}: tensor {}: {} lists only {} of its {} slices", file.name,
                        printable(tensor.name), kManifestName, found.slices_used.size(),
                        tensor.shape[0]);
    }
    found.used = true;
    ++layout_.tensors;
    if (found.bytes() == 0) {
      layout_.empty_tensors.push_back(whole(tensor).spec);
      return {};
    }
    const auto expert = expert_tensor(tensor.name);
    if (expert && expert->expert) {
      append(expert_unit(*expert, *expert->expert), found, whole(tensor));
    } else if (expert && splits(*expert, tensor)) {
      slices_ += tensor.shape[0];
      for (uint64_t i = 0; i < tensor.shape[0]; ++i) {
        append(expert_unit(*expert, static_cast<uint32_t>(i)), found, *slice(tensor, i));
      }
    } else {
      layout_.units.push_back({.name = unit_name_of(tensor.name)});
      append(layout_.units.size() - 1, found, whole(tensor));
    }
    return {};
  }
  bool splits(const ExpertTensor& expert, const ckpt::safetensors::Tensor& tensor) const {
    const auto rows = experts_.find(expert.experts);
    return rows != experts_.end() && !tensor.shape.empty() && tensor.shape[0] == rows->second &&
           rows->second <= kStackedExpertsMax && slices_ + rows->second <= kSlicesMax &&
           slice(tensor, 0).has_value() && !named_as_slices_.contains(tensor.name);
  }

  // The unit of an expert; a new one with its first tensor.
  size_t expert_unit(const ExpertTensor& tensor, uint32_t expert) {
    std::string name = unit_name_of(fmt::format("{}.{}", tensor.experts, expert));
    const auto [unit, added] = expert_units_.emplace(name, layout_.units.size());
    if (added) {
      layout_.units.push_back({.name = std::move(name),
                               .layer = tensor.layer,
                               .expert = expert,
                               .part = ckpt::UnitPart::kWeights});
    }
    return unit->second;
  }
  void append(size_t unit, const Found& found, Stretch stretch) {
    ckpt::UnitSpec& spec = layout_.units[unit];
    stretch.spec.offset = spec.bytes;
    add_bytes(found, static_cast<ckpt::UnitId>(unit), spec.bytes, stretch);
    spec.bytes += stretch.bytes;
    spec.tensors.push_back(std::move(stretch.spec));
  }
  void add_bytes(const Found& found, ckpt::UnitId unit, uint64_t offset, const Stretch& stretch) {
    if (stretch.bytes == 0) return;
    layout_.data_bytes += stretch.bytes;
    const uint64_t at = files_[found.file].header.data_offset + stretch.begin;
    layout_.pieces.push_back({unit, offset, stretch.bytes, at, found.file});
  }

  const std::vector<TensorFile>& files_;
  FoundByName found_;
  std::unordered_map<std::string_view, uint64_t> experts_;  // rows, by list of experts
  std::unordered_map<std::string, size_t> expert_units_;    // index, by name
  uint64_t slices_ = 0;
  std::set<std::string_view> named_as_slices_;  // by tensors of the files
  ImportLayout layout_;
};

}  // namespace

Result<ImportLayout> make_import_layout(const std::vector<TensorFile>& files,
                                        const std::optional<Manifest>& manifest) {
  CKPT_ASSIGN(FoundByName found, find_all(files));
  Layouter layouter(files, std::move(found));
  if (manifest) {
    for (const ViewUnit& unit : manifest->units) CKPT_TRY(layouter.add_known(unit));
  }
  CKPT_TRY(layouter.add_others());
  return layouter.take();
}

Status add_files_unit(const std::vector<KeptBytes>& kept, ImportLayout& layout) {
  ckpt::UnitSpec unit{.name = std::string(kFilesUnit)};
  const auto id = static_cast<ckpt::UnitId>(layout.units.size());
  for (const KeptBytes& one : kept) {
    if (one.bytes == 0) continue;
    unit.tensors.push_back({kept_tensor(one.file), ckpt::DType::kU8, {one.bytes}, unit.bytes});
    layout.pieces.push_back({id, unit.bytes, one.bytes, 0, one.tag});
    unit.bytes += one.bytes;
  }
  for (ckpt::TensorSpec tensor : layout.empty_tensors) {
    tensor.offset = unit.bytes;
    unit.tensors.push_back(std::move(tensor));
  }
  if (unit.bytes > kFilesUnitBytesMax) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "the headers of the files have {} bytes, at most {} can be kept", unit.bytes,
                      kFilesUnitBytesMax);
  }
  const auto same_name = [](const ckpt::UnitSpec& other) { return other.name == kFilesUnit; };
  if (std::ranges::any_of(layout.units, same_name)) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "tensor {}: a tensor of this name cannot be kept", kFilesUnit);
  }
  if (const Status possible = ckpt::validate(unit); !possible.ok()) {
    return make_error(ErrorCode::kFailedPrecondition, "{}", possible.error().message);
  }
  layout.units.push_back(std::move(unit));
  return {};
}

}  // namespace ckptctl

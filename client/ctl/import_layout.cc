#include "client/ctl/import_layout.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "client/ctl/expert_names.h"
#include "client/ctl/export_layout.h"
#include "client/ctl/original_files.h"
#include "client/ctl/unit_names.h"
#include "formats/base/checked.h"
#include "formats/base/counted.h"
#include "formats/base/printable.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::TensorSpec;
using ckpt::base::printable;

// More experts than any model has. A stacked tensor with more rows is not split.
constexpr uint64_t kStackedExpertsMax = 4096;
// Limit of slices in one import, so that a small file cannot request the memory of billions. Models
// have some ten thousands; further tensors are not split.
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
      return make_error(ErrorCode::kFailedPrecondition, "{}: tensor {} is also in another file: {}",
                        files[i].name, printable(tensor.name), files[there->second.file].name);
    }
  }
  return found;
}

// A range of a tensor that becomes a tensor of a unit: the whole tensor, or a slice.
struct Stretch {
  TensorSpec spec;  // append() sets its offset
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

Stretch whole(const ckpt::safetensors::Tensor& tensor) {
  return {{tensor.name, tensor.dtype, tensor.shape, 0}, tensor.begin, tensor.end - tensor.begin};
}

// Slice `index` of the first dimension; nothing if slices have no bytes or no such index exists.
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
    if (!owners_.emplace(spec.name, nullptr).second) {
      return make_error(ErrorCode::kFailedPrecondition, "{}: unit {} is listed twice",
                        kManifestName, spec.name);
    }
    const auto id = static_cast<ckpt::UnitId>(layout_.units.size());
    layout_.units.push_back(std::move(spec));
    for (const TensorSpec& tensor : wanted) CKPT_TRY(add_wanted(unit, id, tensor));
    return {};
  }

  // Adds the tensors that no unit has taken.
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

  ImportLayout take() {
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

  // Counts the experts of each layer's list, by its stacked weights.
  void count_experts() {
    for (const auto& [name, found] : found_) {
      if (const auto part = parse_slice_name(name)) named_as_slices_.insert(part->tensor);
      const auto expert = found.used ? std::nullopt : expert_tensor(name);
      if (!expert || !expert->counts_experts || found.tensor->shape.empty()) continue;
      const uint64_t rows = found.tensor->shape[0];
      const auto [there, added] = experts_.emplace(expert->experts, rows);
      if (!added && there->second != rows) there->second = 0;  // counts differ: do not split
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
    if (found.bytes() == 0) return add_empty(found);
    const auto expert = expert_tensor(tensor.name);
    if (expert && expert->expert) {
      return append_to_expert(*expert, *expert->expert, found, whole(tensor));
    }
    if (expert && splits(*expert, tensor)) {
      slices_ += tensor.shape[0];
      for (uint64_t i = 0; i < tensor.shape[0]; ++i) {
        CKPT_TRY(append_to_expert(*expert, static_cast<uint32_t>(i), found, *slice(tensor, i)));
      }
      return {};
    }
    CKPT_ASSIGN(const size_t unit, add_unit({.name = unit_name_of(tensor.name)}, found));
    return append(unit, found, whole(tensor));
  }
  Status add_empty(const Found& found) {
    TensorSpec spec = whole(*found.tensor).spec;
    const Status possible = ckpt::validate({.name = "u", .bytes = 1, .tensors = {spec}});
    if (!possible.ok()) return cannot_keep(found, possible.error().message);
    layout_.empty_tensors.push_back(std::move(spec));
    ++layout_.empty_by_file[files_[found.file].name];
    return {};
  }
  bool splits(const ExpertTensor& expert, const ckpt::safetensors::Tensor& tensor) const {
    const auto rows = experts_.find(expert.experts);
    return rows != experts_.end() && !tensor.shape.empty() && tensor.shape[0] == rows->second &&
           rows->second <= kStackedExpertsMax && slices_ + rows->second <= kSlicesMax &&
           slice(tensor, 0).has_value() && !named_as_slices_.contains(tensor.name);
  }

  ckpt::Error cannot_keep(const Found& found, std::string_view why) const {
    return make_error(ErrorCode::kFailedPrecondition, "{}: tensor {} cannot be kept: {}",
                      files_[found.file].name, printable(found.tensor->name), why);
  }

  // Adds a unit for this tensor. Returns the unit's index.
  Result<size_t> add_unit(ckpt::UnitSpec spec, const Found& found) {
    const auto [there, added] = owners_.emplace(spec.name, found.tensor);
    if (added) {
      layout_.units.push_back(std::move(spec));
      return layout_.units.size() - 1;
    }
    const std::string& file = files_[found.file].name;
    const std::string tensor = printable(found.tensor->name);
    if (there->second == nullptr) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "{}: tensor {} would become unit {}, which {} lists for other tensors",
                        file, tensor, spec.name, kManifestName);
    }
    return make_error(ErrorCode::kFailedPrecondition,
                      "{}: tensors {} and {} would both become unit {}", file,
                      printable(there->second->name), tensor, spec.name);
  }
  // Appends to the unit of the expert, which its first tensor creates.
  Status append_to_expert(const ExpertTensor& tensor, uint32_t expert, const Found& found,
                          Stretch stretch) {
    std::string name = unit_name_of(fmt::format("{}.{}", tensor.experts, expert));
    auto unit = expert_units_.find(name);
    if (unit == expert_units_.end()) {
      CKPT_ASSIGN(const size_t index, add_unit({.name = name,
                                                .layer = tensor.layer,
                                                .expert = expert,
                                                .part = ckpt::UnitPart::kWeights},
                                               found));
      unit = expert_units_.emplace(std::move(name), index).first;
    }
    return append(unit->second, found, std::move(stretch));
  }
  // Validates each tensor here, where its file is known.
  Status append(size_t unit, const Found& found, Stretch stretch) {
    ckpt::UnitSpec& spec = layout_.units[unit];
    ckpt::UnitSpec alone{.name = spec.name, .bytes = stretch.bytes, .tensors = {stretch.spec}};
    Status possible = ckpt::validate(alone);
    if (!possible.ok()) return cannot_keep(found, possible.error().message);
    if (spec.tensors.size() == ckpt::kTensorsPerUnitMax) {
      return cannot_keep(found, fmt::format("unit {} would have more than {} tensors", spec.name,
                                            ckpt::kTensorsPerUnitMax));
    }
    if (spec.bytes > ckpt::kUnitBytesMax - stretch.bytes) {
      return cannot_keep(found, fmt::format("unit {} would have more than {} bytes", spec.name,
                                            ckpt::kUnitBytesMax));
    }
    stretch.spec.offset = spec.bytes;
    add_bytes(found, static_cast<ckpt::UnitId>(unit), spec.bytes, stretch);
    spec.bytes += stretch.bytes;
    spec.tensors.push_back(std::move(stretch.spec));
    return {};
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
  // The first tensor of each unit, by the unit's name; null: the unit is from ckptd.json.
  std::unordered_map<std::string, const ckpt::safetensors::Tensor*> owners_;
  uint64_t slices_ = 0;
  std::set<std::string_view> named_as_slices_;  // slice names used by tensors of the files
  ImportLayout layout_;
};

// The unit of the files lists tensors without bytes, besides one tensor for each file.
Status check_empty_tensors(const ImportLayout& layout, size_t files) {
  const size_t tensors = layout.empty_tensors.size();
  if (tensors + files <= ckpt::kTensorsPerUnitMax) return {};
  if (tensors == 0) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "the folder has {} files of tensors and text; a run remembers at most {}",
                      files, ckpt::kTensorsPerUnitMax);
  }
  const auto most = std::ranges::max_element(layout.empty_by_file, {},
                                             [](const auto& of_file) { return of_file.second; });
  return make_error(ErrorCode::kFailedPrecondition,
                    "{}: {} tensors in it have no bytes, {} in the whole folder; a run can keep {} "
                    "of them beside its {}",
                    printable(most->first), most->second, tensors,
                    ckpt::kTensorsPerUnitMax - std::min(files, ckpt::kTensorsPerUnitMax),
                    ckpt::base::counted(files, "file"));
}

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
  const auto cannot_keep = [](std::string_view file, std::string_view why) {
    return make_error(ErrorCode::kFailedPrecondition, "{}: it cannot be kept: {}", printable(file),
                      why);
  };
  ckpt::UnitSpec unit{.name = std::string(kFilesUnit)};
  const auto id = static_cast<ckpt::UnitId>(layout.units.size());
  for (const KeptBytes& one : kept) {
    if (one.bytes == 0) continue;
    if (one.bytes > kFilesUnitBytesMax - unit.bytes) {
      return cannot_keep(one.file, fmt::format("the headers of the files have more than {} bytes",
                                               kFilesUnitBytesMax));
    }
    TensorSpec tensor{kept_tensor(one.file), ckpt::DType::kU8, {one.bytes}, 0};
    const Status possible =
        ckpt::validate({.name = unit.name, .bytes = one.bytes, .tensors = {tensor}});
    if (!possible.ok()) return cannot_keep(one.file, possible.error().message);
    tensor.offset = unit.bytes;
    unit.tensors.push_back(std::move(tensor));
    layout.pieces.push_back({id, unit.bytes, one.bytes, 0, one.tag});
    unit.bytes += one.bytes;
  }
  CKPT_TRY(check_empty_tensors(layout, unit.tensors.size()));
  for (TensorSpec tensor : layout.empty_tensors) {
    tensor.offset = unit.bytes;
    unit.tensors.push_back(std::move(tensor));
  }
  const auto same_name = [](const ckpt::UnitSpec& other) { return other.name == kFilesUnit; };
  if (std::ranges::any_of(layout.units, same_name)) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "{}: unit {} is listed, but the run is not one that can be resumed",
                      kManifestName, kFilesUnit);
  }
  if (const Status possible = ckpt::validate(unit); !possible.ok()) {
    return make_error(ErrorCode::kFailedPrecondition, "{}", possible.error().message);
  }
  layout.units.push_back(std::move(unit));
  return {};
}

}  // namespace ckptctl

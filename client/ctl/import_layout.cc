#include "client/ctl/import_layout.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "client/ctl/expert_names.h"
#include "client/ctl/export_layout.h"
#include "client/ctl/file_tensors.h"
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

class Layouter {
 public:
  Layouter(const std::vector<TensorFile>& files, FileTensors found)
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
        FileTensor& found = found_.at(tensor.name);
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
    const auto listed = find_part(found_, tensor.name);
    if (!listed) return about(fmt::format("{} lists it, but no file has it", kManifestName));
    FileTensor& found = *listed->of;
    const FilePart& there = listed->part;
    if (there.spec.dtype != tensor.dtype || there.spec.shape != tensor.shape) {
      return about(fmt::format("{} says {} of {} bytes, {} has {} of {} bytes", kManifestName,
                               ckpt::dtype_name(tensor.dtype), ckpt::tensor_bytes(tensor).value(),
                               files_[found.file].name, ckpt::dtype_name(there.spec.dtype),
                               there.bytes));
    }
    if (!take_part(*listed)) return about("two units have it");
    if (found.used) ++layout_.tensors;
    add_bytes(found, id, tensor.offset, there);
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

  Status add_other(const TensorFile& file, FileTensor& found) {
    const ckpt::safetensors::Tensor& tensor = *found.tensor;
    if (const std::string rest = not_taken(found); !rest.empty()) {
      return make_error(ErrorCode::kFailedPrecondition, "{}: tensor {}: {}", file.name,
                        printable(tensor.name), rest);
    }
    found.used = true;
    ++layout_.tensors;
    if (found.bytes() == 0) return add_empty(found);
    const auto expert = expert_tensor(tensor.name);
    if (expert && expert->expert) {
      return append_to_expert(*expert, *expert->expert, found, whole_part(tensor));
    }
    if (expert && splits(*expert, tensor)) {
      slices_ += tensor.shape[0];
      for (uint64_t i = 0; i < tensor.shape[0]; ++i) {
        CKPT_TRY(
            append_to_expert(*expert, static_cast<uint32_t>(i), found, *slice_part(tensor, i)));
      }
      return {};
    }
    CKPT_ASSIGN(const size_t unit, add_unit({.name = unit_name_of(tensor.name)}, found));
    return append(unit, found, whole_part(tensor));
  }
  Status add_empty(const FileTensor& found) {
    TensorSpec spec = whole_part(*found.tensor).spec;
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
           tensor.end > tensor.begin && slice_part(tensor, 0).has_value() &&
           !named_as_slices_.contains(tensor.name);
  }

  ckpt::Error cannot_keep(const FileTensor& found, std::string_view why) const {
    return make_error(ErrorCode::kFailedPrecondition, "{}: tensor {} cannot be kept: {}",
                      files_[found.file].name, printable(found.tensor->name), why);
  }

  // Adds a unit for this tensor. Returns the unit's index.
  Result<size_t> add_unit(ckpt::UnitSpec spec, const FileTensor& found) {
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
  Status append_to_expert(const ExpertTensor& tensor, uint32_t expert, const FileTensor& found,
                          FilePart part) {
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
    return append(unit->second, found, std::move(part));
  }
  // Validates each tensor here, where its file is known.
  Status append(size_t unit, const FileTensor& found, FilePart part) {
    ckpt::UnitSpec& spec = layout_.units[unit];
    ckpt::UnitSpec alone{.name = spec.name, .bytes = part.bytes, .tensors = {part.spec}};
    Status possible = ckpt::validate(alone);
    if (!possible.ok()) return cannot_keep(found, possible.error().message);
    if (spec.tensors.size() == ckpt::kTensorsPerUnitMax) {
      return cannot_keep(found, fmt::format("unit {} would have more than {} tensors", spec.name,
                                            ckpt::kTensorsPerUnitMax));
    }
    if (spec.bytes > ckpt::kUnitBytesMax - part.bytes) {
      return cannot_keep(found, fmt::format("unit {} would have more than {} bytes", spec.name,
                                            ckpt::kUnitBytesMax));
    }
    part.spec.offset = spec.bytes;
    add_bytes(found, static_cast<ckpt::UnitId>(unit), spec.bytes, part);
    spec.bytes += part.bytes;
    spec.tensors.push_back(std::move(part.spec));
    return {};
  }
  void add_bytes(const FileTensor& found, ckpt::UnitId unit, uint64_t offset,
                 const FilePart& part) {
    if (part.bytes == 0) return;
    layout_.data_bytes += part.bytes;
    const uint64_t at = files_[found.file].header.data_offset + part.begin;
    layout_.pieces.push_back({unit, offset, part.bytes, at, found.file, part.run, part.step});
  }

  const std::vector<TensorFile>& files_;
  FileTensors found_;
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
  CKPT_ASSIGN(FileTensors found, find_tensors(files));
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

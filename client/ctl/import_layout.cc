#include "client/ctl/import_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "client/ctl/export_layout.h"
#include "formats/base/printable.h"
#include "formats/json_text.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::TensorSpec;
using ckpt::base::printable;

// Where a tensor lies.
struct Found {
  const ckpt::safetensors::Tensor* tensor = nullptr;
  size_t file = 0;
  bool used = false;
};
using FoundByName = std::map<std::string_view, Found>;

Result<FoundByName> find_all(const std::vector<TensorFile>& files) {
  FoundByName found;
  for (size_t i = 0; i < files.size(); ++i) {
    for (const auto& tensor : files[i].header.tensors) {
      if (found.emplace(tensor.name, Found{&tensor, i}).second) continue;
      return make_error(ErrorCode::kInvalidArgument, "{}: tensor {} is in another file, too",
                        files[i].name, printable(tensor.name));
    }
  }
  return found;
}

class Layouter {
 public:
  Layouter(const std::vector<TensorFile>& files, FoundByName found)
      : files_(files), found_(std::move(found)) {}

  Status add_known(const ViewUnit& unit) {
    CKPT_ASSIGN(ckpt::UnitSpec spec, to_spec(unit));
    CKPT_ASSIGN(const std::vector<TensorSpec> wanted, all_bytes_of(unit));
    for (const TensorSpec& tensor : wanted) {
      const auto found = found_.find(tensor.name);
      if (found == found_.end()) {
        return make_error(ErrorCode::kInvalidArgument,
                          "unit {} tensor {}: {} lists it, but no file has it", unit.name,
                          printable(tensor.name), kManifestName);
      }
      const ckpt::safetensors::Tensor& there = *found->second.tensor;
      if (there.dtype != tensor.dtype || there.shape != tensor.shape) {
        return make_error(ErrorCode::kInvalidArgument,
                          "unit {} tensor {}: {} says {} of {} bytes, {} has {} of {} bytes",
                          unit.name, printable(tensor.name), kManifestName,
                          ckpt::dtype_name(tensor.dtype), ckpt::tensor_bytes(tensor).value(),
                          files_[found->second.file].name, ckpt::dtype_name(there.dtype),
                          there.end - there.begin);
      }
      if (found->second.used) {
        return make_error(ErrorCode::kInvalidArgument, "unit {} tensor {}: two units have it",
                          unit.name, printable(tensor.name));
      }
      add_piece(found->second, tensor.offset);
    }
    layout_.units.push_back(std::move(spec));
    return {};
  }

  // Those that no unit has taken.
  Status add_others() {
    for (const TensorFile& file : files_) {
      for (const auto& tensor : file.header.tensors) {
        Found& found = found_.at(tensor.name);
        if (found.used) continue;
        CKPT_TRY(add_single(file, tensor, found));
      }
    }
    return {};
  }

  Result<ImportLayout> take() {
    std::set<std::string_view> names;
    for (const ckpt::UnitSpec& unit : layout_.units) {
      if (!names.insert(unit.name).second) {
        return make_error(ErrorCode::kInvalidArgument, "unit {}: twice", unit.name);
      }
    }
    if (layout_.data_bytes == 0) {
      return make_error(ErrorCode::kInvalidArgument, "the files have no bytes to import");
    }
    return std::move(layout_);
  }

 private:
  Status add_single(const TensorFile& file, const ckpt::safetensors::Tensor& tensor, Found& found) {
    const uint64_t bytes = tensor.end - tensor.begin;
    ckpt::UnitSpec unit;
    unit.name = tensor.name;
    unit.bytes = bytes;
    unit.tensors = {{tensor.name, tensor.dtype, tensor.shape, 0}};
    const Status possible = ckpt::validate(unit);
    if (!possible.ok()) {
      return make_error(ErrorCode::kInvalidArgument, "{}: tensor {} cannot be a unit: {}",
                        file.name, printable(tensor.name), possible.error().message);
    }
    add_piece(found, 0);
    layout_.units.push_back(std::move(unit));
    return {};
  }
  void add_piece(Found& found, uint64_t offset) {
    const auto unit = static_cast<ckpt::UnitId>(layout_.units.size());
    const ckpt::safetensors::Tensor& tensor = *found.tensor;
    const uint64_t bytes = tensor.end - tensor.begin;
    found.used = true;
    ++layout_.tensors;
    layout_.data_bytes += bytes;
    const uint64_t at = files_[found.file].header.data_offset + tensor.begin;
    layout_.pieces.push_back({unit, offset, bytes, at, found.file});
  }

  const std::vector<TensorFile>& files_;
  FoundByName found_;
  ImportLayout layout_;
};

// Not Json, whose objects are lists: looking for a name would take as long as there are names.
using Index = nlohmann::json;

Result<Index> index_map(std::string_view text) {
  if (const Status json = ckpt::check_json(text); !json.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {}", kIndexName, json.error().message);
  }
  const Index index = Index::parse(text, nullptr, /*allow_exceptions=*/false);
  const Index map = index.is_object() ? index.value("weight_map", Index()) : Index();
  const auto is_text = [](const Index& file) { return file.is_string(); };
  const bool texts = map.is_object() && std::all_of(map.begin(), map.end(), is_text);
  if (texts && !map.empty()) return map;
  return make_error(ErrorCode::kInvalidArgument, "{}: no weight_map of tensors and files",
                    kIndexName);
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

Result<std::vector<std::string>> files_of_index(std::string_view text) {
  CKPT_ASSIGN(const Index map, index_map(text));
  std::set<std::string> names;
  for (const Index& file : map) {
    const auto name = file.get<std::string>();
    const bool plain = !name.empty() && name != "." && name != ".." &&
                       name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
    if (!plain) {
      return make_error(ErrorCode::kInvalidArgument, "{}: {} is no name of a file beside it",
                        kIndexName, printable(name));
    }
    names.insert(name);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Status check_index(std::string_view text, const std::vector<TensorFile>& files) {
  CKPT_ASSIGN(const Index map, index_map(text));
  size_t tensors = 0;
  for (const TensorFile& file : files) {
    tensors += file.header.tensors.size();
    for (const auto& tensor : file.header.tensors) {
      const auto place = map.find(tensor.name);
      if (place != map.end() && *place == file.name) continue;
      return make_error(ErrorCode::kInvalidArgument, "{}: tensor {} of {} is not listed there",
                        kIndexName, printable(tensor.name), file.name);
    }
  }
  if (tensors == map.size()) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: lists {} tensors, its files have {}",
                    kIndexName, map.size(), tensors);
}

}  // namespace ckptctl

#include "client/ctl/weight_index.h"

#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "client/ctl/manifest.h"
#include "formats/base/printable.h"
#include "formats/json_text.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using ckpt::base::printable;

ckpt::Error index_error(std::string_view how) {
  return make_error(ErrorCode::kFailedPrecondition, "{}: {}", kIndexName, how);
}

}  // namespace

bool is_weight_file(std::string_view name) {
  if (!name.ends_with(".safetensors") || name.find('\0') != std::string_view::npos) return false;
  while (true) {
    const size_t slash = name.find('/');
    const std::string_view component = name.substr(0, slash);
    if (component.empty() || component == "." || component == "..") return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

Result<WeightIndex> WeightIndex::parse(std::string_view text) {
  if (const Status json = ckpt::check_json(text); !json.ok()) {
    return index_error(json.error().message);
  }
  // Not Json, whose objects are lists: each lookup of a name would be linear.
  const auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto map = document.is_object() ? document.find("weight_map") : document.end();
  if (map == document.end() || !map->is_object() || map->empty()) {
    return index_error("no weight_map of tensors and files");
  }
  WeightIndex index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return index_error("no weight_map of tensors and files");
    const auto& name = file.get_ref<const std::string&>();
    if (!is_weight_file(name)) {
      return index_error(fmt::format(
          "tensor {}: {} is not a relative path to a .safetensors file inside this folder",
          printable(tensor), printable(name)));
    }
    index.map_.emplace_hint(index.map_.end(), tensor, name);
  }
  return index;
}

std::vector<std::string> WeightIndex::files() const {
  std::set<std::string> names;
  for (const auto& [tensor, file] : map_) names.insert(file);
  return {names.begin(), names.end()};
}

Result<std::vector<std::string>> WeightIndex::check(const std::vector<TensorFile>& files) const {
  std::unordered_map<std::string_view, const std::string*> places;
  std::vector<std::string> left_out;
  for (const TensorFile& file : files) {
    for (const auto& tensor : file.header.tensors) {
      places.emplace(tensor.name, &file.name);
      if (!map_.contains(tensor.name)) left_out.push_back(tensor.name);
    }
  }
  for (const auto& [tensor, file] : map_) {
    const auto place = places.find(tensor);
    if (place != places.end() && *place->second == file) continue;
    const std::string where = place == places.end()
                                  ? "no file has it"
                                  : fmt::format("it is in {}", printable(*place->second));
    return index_error(fmt::format("tensor {} is said to be in {}, but {}", printable(tensor),
                                   printable(file), where));
  }
  return left_out;
}

}  // namespace ckptctl

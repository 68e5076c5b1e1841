#include "client/ctl/weight_index.h"

#include <algorithm>
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

// Not Json, whose objects are lists: looking for a name would take as long as there are names.
using Index = nlohmann::json;

Result<Index> index_map(std::string_view text) {
  if (const Status json = ckpt::check_json(text); !json.ok()) {
    return make_error(ErrorCode::kFailedPrecondition, "{}: {}", kIndexName, json.error().message);
  }
  const Index index = Index::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  const auto is_text = [](const Index& file) { return file.is_string(); };
  const bool found = index.is_object() && map != index.end() && map->is_object();
  if (found && !map->empty() && std::all_of(map->begin(), map->end(), is_text)) return *map;
  return make_error(ErrorCode::kFailedPrecondition, "{}: no weight_map of tensors and files",
                    kIndexName);
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

Result<std::vector<std::string>> files_of_index(std::string_view text) {
  CKPT_ASSIGN(const Index map, index_map(text));
  std::set<std::string> names;
  for (const auto& [tensor, file] : map.items()) {
    const auto& name = file.get_ref<const std::string&>();
    if (!is_weight_file(name)) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "{}: tensor {}: {} is no name of a file of tensors in this folder",
                        kIndexName, printable(tensor), printable(name));
    }
    names.insert(name);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Result<std::vector<std::string>> tensors_of_index(std::string_view text) {
  CKPT_ASSIGN(const Index map, index_map(text));
  std::vector<std::string> names;
  for (const auto& [tensor, file] : map.items()) names.push_back(tensor);
  return names;
}

Result<std::vector<std::string>> check_index(std::string_view text,
                                             const std::vector<TensorFile>& files) {
  CKPT_ASSIGN(const Index map, index_map(text));
  std::unordered_map<std::string_view, const std::string*> places;
  std::vector<std::string> left_out;
  for (const TensorFile& file : files) {
    for (const auto& tensor : file.header.tensors) {
      places.emplace(tensor.name, &file.name);
      if (!map.contains(tensor.name)) left_out.push_back(tensor.name);
    }
  }
  for (const auto& [tensor, file] : map.items()) {
    const auto place = places.find(tensor);
    if (place != places.end() && *place->second == file.get_ref<const std::string&>()) continue;
    const std::string where = place == places.end()
                                  ? "no file has it"
                                  : fmt::format("it is in {}", printable(*place->second));
    return make_error(ErrorCode::kFailedPrecondition, "{}: tensor {} is said to be in {}, but {}",
                      kIndexName, printable(tensor), printable(file.get_ref<const std::string&>()),
                      where);
  }
  return left_out;
}

}  // namespace ckptctl

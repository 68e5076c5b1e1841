// Small exports for tests: files with one tensor of a byte, written but not yet published.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/ctl/export_folder.h"
#include "client/ctl/model_folder.h"

namespace ckptctl {

inline std::string file_of_tensor(const std::string& tensor) {
  const auto header = ckpt::safetensors::make_header({{tensor, ckpt::DType::kU8, {1}, 0, 0}}, {});
  return std::string(ckpt::as_text(*header)) + "x";
}

// The text of an index: the tensors and the file of each.
inline std::string index_of(const std::map<std::string, std::string>& weight_map) {
  return nlohmann::json{{"weight_map", weight_map}}.dump();
}

struct MadeExport {
  ExportFolder folder;
  std::vector<NewFile> written;
  Manifest manifest;

  Result<std::vector<std::string>> publish() { return folder.publish(written, manifest); }
};

// Writes files (name, text) for an export into the folder `path`, up to publish().
inline Result<MadeExport> make_export(const std::string& path,
                                      const std::map<std::string, std::string>& files,
                                      Manifest manifest) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const auto& [name, text] : files) names.push_back(name);
  CKPT_ASSIGN(ExportFolder folder, ExportFolder::open(path, names, manifest.resumable));
  MadeExport made{.folder = std::move(folder), .written = {}, .manifest = std::move(manifest)};
  made.manifest.files.emplace();
  for (const auto& [name, text] : files) {
    CKPT_ASSIGN(NewFile file, made.folder.create(name, text.size()));
    CKPT_TRY(file.write(0, ckpt::as_bytes(text)));
    made.written.push_back(std::move(file));
    const size_t head = is_weight_file(name) ? text.size() - 1 : text.size();
    made.manifest.files->push_back(
        describe_file(name, text.size(), ckpt::as_bytes(text).first(head)));
  }
  return made;
}

}  // namespace ckptctl

// Small exports for tests: files with one tensor of a byte, written but not yet published.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/ctl/export_folder.h"
#include "client/ctl/exported_file.h"
#include "client/ctl/model_folder.h"
#include "formats/base/crc32c.h"

namespace ckptctl {

inline std::string file_of_tensor(const std::string& tensor) {
  const auto header = ckpt::safetensors::make_header({{tensor, ckpt::DType::kU8, {1}, 0, 0}}, {});
  return std::string(ckpt::as_text(*header)) + "x";
}

// The text of an index: the tensors and the file of each.
inline std::string index_of(const std::map<std::string, std::string>& weight_map) {
  return nlohmann::json{{"weight_map", weight_map}}.dump();
}

// An export's description of a file of file_of_tensor(), or of a text.
inline ExportedFile description_of(const std::string& name, const std::string& text) {
  const auto bytes = ckpt::as_bytes(text);
  const size_t head = is_weight_file(name) ? text.size() - 1 : text.size();
  return describe_file(name, text.size(), bytes.first(head), ckpt::base::crc32c(bytes));
}

// The text of a ckptd.json as a version wrote it that knew no checksums of whole files.
inline std::string without_checksums(const std::string& manifest) {
  nlohmann::json document = nlohmann::json::parse(manifest);
  for (nlohmann::json& file : document.at("files")) file.erase("crc32c");
  return document.dump();
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
    made.manifest.files->push_back(description_of(name, text));
  }
  return made;
}

}  // namespace ckptctl

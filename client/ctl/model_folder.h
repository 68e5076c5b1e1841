// ModelFolder: a folder of safetensors files, as written by other tools, with checked headers.
//
//   model.safetensors, or model.safetensors.index.json and the files that it lists, or, without an
//   index, one other .safetensors file or a whole set NAME-00001-of-00003.safetensors ...
//   config.json and ckptd.json, if they are there
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/ctl/import_layout.h"
#include "client/ctl/input_file.h"
#include "client/ctl/progress.h"

namespace ckptctl {

struct ModelFolder {
  std::vector<InputFile> inputs;  // the files of tensors, then config.json and the index
  std::vector<TensorFile> files;  // headers of the first inputs
  // CRC32C of each of these, as the export wrote it; nothing: ckptd.json does not tell.
  std::vector<std::optional<uint32_t>> checksums;
  std::vector<KeptBytes> kept;  // bytes besides the tensors' that an export needs
  std::optional<Manifest> manifest;
  std::string metadata;               // of the run: that of ckptd.json, or {"hf_config": ...}
  std::vector<std::string> left_out;  // other entries of the folder: tokenizers and the like
  std::vector<std::string> notes;     // warnings about odd inputs that are kept unchanged
};

// Reads only headers and texts. Errors name the file, and the tensor if there is one. kCorrupt: the
// size or the header is not what the export wrote.
Result<ModelFolder> read_model_folder(const std::string& path);

// Reads all bytes of the files whose checksum is known. kCorrupt, with the file's name, if they are
// not what the export wrote. Texts may differ: config.json and the index are for people to edit.
Status check_contents(const ModelFolder& folder, Progress& progress);

}  // namespace ckptctl

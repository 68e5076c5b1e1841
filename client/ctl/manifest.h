// Names of a model folder's files, and ckptd.json: a run's state beside its tensors, so that an
// exported folder can be imported as the same run.
//
//   {"format": 1, "step": 1200, "resumable": true, "metadata": "{...}",
//    "units": [{"id", "unit", "bytes", "layer", "expert", "part",
//               "tensors": [{"name", "dtype", "shape", "offset"}]}],
//    "files": [{"name", "bytes", "head_bytes", "head_crc32c", "crc32c"}],
//    "unfinished": true, "replaced": [like "files"]}
//
// `tensors` are those of the units: also slices and blocks, which the files have as one tensor
// (logical_tensors.h). The metadata is the trainer's text, unchanged. `files` are the files that
// the export wrote. head_crc32c covers a file's first head_bytes: the header of a file of tensors,
// or all of a text; crc32c covers the whole file.
//
// `unfinished` and `replaced` exist while an export replaces other files, and after such an export
// was interrupted. Folders of older versions have none of the three members `files`, `unfinished`
// and `replaced`, or files without `crc32c`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/ctl/view.h"

namespace ckptctl {

inline constexpr const char* kModelName = "model.safetensors";
inline constexpr const char* kIndexName = "model.safetensors.index.json";
inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kManifestName = "ckptd.json";

// A file of an export, identified by its size, its beginning and all of its bytes.
struct ExportedFile {
  std::string name;
  uint64_t bytes = 0;
  uint64_t head_bytes = 0;
  uint32_t head_crc32c = 0;
  std::optional<uint32_t> crc32c = std::nullopt;  // nothing: written by an older version
  bool operator==(const ExportedFile&) const = default;
};

struct Manifest {
  uint64_t step = 0;
  bool resumable = false;  // every byte of every unit is in the folder
  std::string metadata;    // JSON, or empty
  std::vector<ViewUnit> units;
  std::optional<std::vector<ExportedFile>> files;  // nothing: written by an older version
  bool unfinished = false;
  std::vector<ExportedFile> replaced;
};

Json manifest_json(const Manifest& manifest);
// Parses an untrusted file. Checks units as the daemon would.
Result<Manifest> parse_manifest(std::string_view text);

// The unit in the daemon's form; an error names the problem.
Result<ckpt::UnitSpec> to_spec(const ViewUnit& unit);

}  // namespace ckptctl

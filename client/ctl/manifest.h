// The names of a model folder's files, and ckptd.json: what a run has beside its tensors, so that a
// folder that was exported can be imported as the run it was.
//
//   {"format": 1, "step": 1200, "resumable": true, "metadata": "{...}",
//    "units": [{"id", "unit", "bytes", "layer", "expert", "part",
//               "tensors": [{"name", "dtype", "shape", "offset"}]}],
//    "files": [{"name", "bytes", "head_bytes", "head_crc32c"}],
//    "unfinished": true, "replaced": [like "files"]}
//
// The metadata is the text that a trainer gave: nothing in it changes on the way. `files` are those
// that the export wrote; the CRC32C is of a file's first head_bytes: of a file of tensors its
// header, of a text all of it. `unfinished` and `replaced` are there while an export puts its files
// in the place of others, and after one that was interrupted then. Folders of older versions have
// none of the three.
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

// A file of an export, told from others by its size and its beginning.
struct ExportedFile {
  std::string name;
  uint64_t bytes = 0;
  uint64_t head_bytes = 0;
  uint32_t head_crc32c = 0;
  bool operator==(const ExportedFile&) const = default;
};

struct Manifest {
  uint64_t step = 0;
  bool resumable = false;  // every byte of every unit is in the folder
  std::string metadata;    // JSON, or empty
  std::vector<ViewUnit> units;
  std::optional<std::vector<ExportedFile>> files;  // nothing: of an older version
  bool unfinished = false;
  std::vector<ExportedFile> replaced;
};

Json manifest_json(const Manifest& manifest);
// Of a file that may hold anything. Units are checked as the daemon would.
Result<Manifest> parse_manifest(std::string_view text);

// A unit as the daemon has it; an error names what is wrong with it.
Result<ckpt::UnitSpec> to_spec(const ViewUnit& unit);

}  // namespace ckptctl

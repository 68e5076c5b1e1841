// ImportLayout: how the tensors of a model folder become the units of a run. Pure.
//
// With ckptd.json they become the units that they were exported from. Without, or where it does not
// know them, each is a unit of its own, of its name. Units are in the order of ckptd.json, the rest
// in the order of the files, so that an export of what was imported gives the same files again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/ctl/manifest.h"
#include "formats/safetensors.h"

namespace ckptctl {

// One file of tensors, its header read and checked.
struct TensorFile {
  std::string name;
  ckpt::safetensors::Header header;
};

struct ImportLayout {
  // Bytes of a unit, and where they lie: `destination` in the file, `tag` which file. In the order
  // in which they are to be written: ascending in each unit, and covering it.
  std::vector<WantedBytes> pieces;
  std::vector<ckpt::UnitSpec> units;
  uint64_t tensors = 0;
  uint64_t data_bytes = 0;
};

// Fails, and names the tensor, if ckptd.json says other things of it than the files, or a unit
// lacks one; if two files have a tensor of the same name; if a tensor cannot be a unit.
Result<ImportLayout> make_import_layout(const std::vector<TensorFile>& files,
                                        const std::optional<Manifest>& manifest);

// The names of the files that an index lists, in order; every tensor of theirs is to be where the
// index says. A name with a folder in it is refused: the index must not reach out of its folder.
Result<std::vector<std::string>> files_of_index(std::string_view text);
Status check_index(std::string_view text, const std::vector<TensorFile>& files);

}  // namespace ckptctl

// ImportLayout: how the tensors of a model folder become the units of a run. Pure.
//
// With ckptd.json, tensors return to the units that they were exported from: also slices and
// blocks, which the files have as one tensor (file_tensors.h). Otherwise, or if ckptd.json does not
// list them, the tensors of an expert become one unit (expert_names.h), with the expert's slices of
// stacked tensors; every other tensor is a unit of its own. Units are in the order of ckptd.json,
// all others in the order of the files.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/ctl/manifest.h"
#include "client/ctl/weight_index.h"
#include "formats/safetensors.h"

namespace ckptctl {

struct ImportLayout {
  // Bytes of units, with their source: `tag` is the file, `destination` the offset in the file.
  // Unit by unit, ascending in each unit and covering it.
  std::vector<WantedBytes> pieces;
  std::vector<ckpt::UnitSpec> units;
  // Tensors without bytes that ckptd.json does not know.
  std::vector<ckpt::TensorSpec> empty_tensors;
  std::map<std::string, size_t> empty_by_file;  // how many of them each file has
  uint64_t tensors = 0;
  uint64_t data_bytes = 0;
};

// The first `bytes` of a file, kept unchanged.
struct KeptBytes {
  std::string file;
  uint64_t bytes = 0;
  size_t tag = 0;
};

// Fails, and names the file and the tensor, if ckptd.json contradicts the files or a unit lacks a
// tensor; if two files have a tensor of the same name; or if a tensor cannot be kept.
Result<ImportLayout> make_import_layout(const std::vector<TensorFile>& files,
                                        const std::optional<Manifest>& manifest);

// Adds the unit of original_files.h, with these bytes of the files. Fails if these files and the
// tensors without bytes exceed kTensorsPerUnitMax together.
Status add_files_unit(const std::vector<KeptBytes>& kept, ImportLayout& layout);

}  // namespace ckptctl

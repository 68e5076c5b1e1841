// ExportLayout: which tensors of a run go where in a Hugging Face folder. Pure.
//
//   model.safetensors                         or, in shards,
//   model-00001-of-00003.safetensors ...      with model.safetensors.index.json
//   config.json                               the imported one, else the run metadata's "hf_config"
//   ckptd.json                                the step, the metadata, the units of the tensors, and
//                                             the files: what `import` and the next export need
//
// A run that was imported gets the files that it was imported from, identical except for the
// values, unless an option asks for other files.
#pragma once

#include <string>
#include <vector>

#include "client/ctl/original_files.h"
#include "client/ctl/view.h"
#include "formats/safetensors.h"

namespace ckptctl {

struct ExportOptions {
  bool include_optimizer = false;  // tensors "optimizer.*" and "optim.*"
  // Every byte of every unit, so that a run imported from the folder can be resumed: the
  // optimizer's tensors, the units `trainer` and `ckptd.files`, and bytes that no tensor of a unit
  // covers, as U8.
  bool resumable = false;
  uint64_t shard_bytes = 0;  // 0: as imported, else one file
};

struct ExportFile {
  std::string name;
  std::vector<std::byte> header;    // of safetensors; the data follows
  std::vector<WantedBytes> pieces;  // ascending by destination; fill the file after the header
  uint64_t bytes = 0;               // of the whole file
};

struct ExportLayout {
  std::vector<ExportFile> files;
  uint64_t tensors = 0;
  uint64_t data_bytes = 0;
  nlohmann::json index;  // of new shards; null if there is one file, or the index is in `texts`
  std::vector<OriginalFiles::Text> texts;  // written unchanged
  bool as_imported = false;
  // Why the files are not those of the run's first import; empty: they are, or there was no import.
  std::string differs;
  // The exported part of each unit: of a unit that is not exported whole, its exported tensors,
  // without gaps.
  std::vector<ViewUnit> exported;
};

// The bytes of a unit as tensors: its own tensors, and one U8 tensor "ckptd.rest.UNIT.OFFSET" for
// each range that none of them covers. Ascending.
Result<std::vector<ckpt::TensorSpec>> all_bytes_of(const ViewUnit& unit);

// Tensors in the order of the units. The unit `trainer` contains no model: only `resumable`
// includes it. Fails if two units have a tensor of the same name, or nothing is left to export.
Result<ExportLayout> make_export_layout(const Schema& schema, const ExportOptions& options,
                                        const OriginalFiles& originals = {});

}  // namespace ckptctl

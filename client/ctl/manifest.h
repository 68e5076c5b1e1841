// The names of a model folder's files, and ckptd.json: what a run has beside its tensors, so that a
// folder that was exported can be imported as the run it was.
//
//   {"format": 1, "step": 1200, "resumable": true, "metadata": "{...}",
//    "units": [{"id", "unit", "bytes", "layer", "expert", "part",
//               "tensors": [{"name", "dtype", "shape", "offset"}]}]}
//
// The metadata is the text that a trainer gave: nothing in it changes on the way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/ctl/view.h"

namespace ckptctl {

inline constexpr const char* kModelName = "model.safetensors";
inline constexpr const char* kIndexName = "model.safetensors.index.json";
inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kManifestName = "ckptd.json";

struct Manifest {
  uint64_t step = 0;
  bool resumable = false;  // every byte of every unit is in the folder
  std::string metadata;    // JSON, or empty
  std::vector<ViewUnit> units;
};

Json manifest_json(const Manifest& manifest);
// Of a file that may hold anything. Units are checked as the daemon would.
Result<Manifest> parse_manifest(std::string_view text);

// A unit as the daemon has it; an error names what is wrong with it.
Result<ckpt::UnitSpec> to_spec(const ViewUnit& unit);

}  // namespace ckptctl

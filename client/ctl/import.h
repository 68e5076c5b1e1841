// import: turns a Hugging Face folder into the first commit of a new run, in constant memory.
#pragma once

#include <optional>
#include <string>

#include "client/ctl/import_layout.h"
#include "client/ctl/progress.h"

namespace ckptctl {

struct ImportRequest {
  std::string folder;
  std::string run;               // must have no commits
  std::optional<uint64_t> step;  // default: the step in ckptd.json, else 0
};

// {run, lineage, step, folder, files, tensors, units, experts, bytes, resumable, left_out, notes,
// alarms}. Before anything is written, every file's header is checked, and all bytes of the files
// whose CRC32C is in ckptd.json. A later failure leaves the run without a commit: import again, or
// remove the run.
//
// units: number of the model's units; unless the run is resumable, the unit of original_files.h is
// added. resumable: the folder has all bytes of the exported run. left_out: entries of the folder
// that are not kept. notes: warnings about inputs that were accepted.
Result<Json> import_folder(Link& link, const ImportRequest& request, Progress& progress);

}  // namespace ckptctl

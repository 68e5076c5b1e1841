// import: a Hugging Face folder becomes the first commit of a new run, streamed in constant memory.
#pragma once

#include <optional>
#include <string>

#include "client/ctl/import_layout.h"
#include "client/ctl/progress.h"

namespace ckptctl {

struct ImportRequest {
  std::string folder;
  std::string run;               // must have no commits
  std::optional<uint64_t> step;  // else that of ckptd.json, else 0
};

// {run, lineage, step, folder, files, tensors, units, experts, bytes, resumable, left_out, notes,
// alarms}. Every file's header is checked before anything is written; a failure later leaves the
// run without a commit, to be imported again or removed. units: those of the model; beside them
// there is the unit of original_files.h, unless the run is resumable. resumable: nothing that the
// exported run had is missing. left_out: entries of the folder that are not kept. notes: warnings
// about inputs that were accepted.
Result<Json> import_folder(Link& link, const ImportRequest& request, Progress& progress);

}  // namespace ckptctl

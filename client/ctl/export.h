// export: a view as a Hugging Face folder, streamed in constant memory.
#pragma once

#include <string>

#include "client/ctl/export_layout.h"
#include "client/ctl/progress.h"

namespace ckptctl {

struct ExportRequest {
  std::string target;  // RUN@STEP
  std::string out;     // folder; created if it is not there
  bool exact = false;  // fail if the view cannot be read; no older view instead
  ExportOptions options;
};

// {run, lineage, step, out, files, tensors, bytes, stale_units, blobs, config, as_imported,
// differs, removed, fallbacks}. Blobs of the commit are only counted. Refuses a view that is not
// complete and names the missing units. If a view has damaged bytes, the newest older readable view
// is exported instead: `step` is the exported step, and `fallbacks` lists {view, reason} of each
// skipped view. The files appear when all of them are complete. as_imported: the files equal those
// of the run's first import; differs: why they do not. removed: files of an earlier export that
// this one does not have.
Result<Json> export_view(Link& link, const ExportRequest& request, Progress& progress);

}  // namespace ckptctl

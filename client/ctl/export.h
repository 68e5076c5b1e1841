// export: a view as a Hugging Face folder, streamed in constant memory.
#pragma once

#include <string>

#include "client/ctl/export_layout.h"
#include "client/ctl/progress.h"

namespace ckptctl {

struct ExportRequest {
  std::string target;  // RUN@STEP
  std::string out;     // folder; created if it is not there
  bool exact = false;  // a view that cannot be read is an error, instead of an older one
  ExportOptions options;
};

// {run, lineage, step, out, files, tensors, bytes, stale_units, blobs, config, as_imported,
// differs, removed, fallbacks}. Blobs of the commit are only counted. Refuses a view that is not
// complete and names what is missing. A view with damaged bytes gives way, as a whole, to the
// newest older one that can be read: `step` is what was written, and `fallbacks` lists {view,
// reason} of each that was passed over. The files appear when all of them are whole. as_imported:
// they are the files of the run's first import; differs: why they are not, if so. removed: files of
// an earlier export that this one does not have.
Result<Json> export_view(Link& link, const ExportRequest& request, Progress& progress);

}  // namespace ckptctl

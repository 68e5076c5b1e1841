// verify: reads every live extent of the chosen commits and checks it against the journal. A verify
// of a whole store checks the journal first; its damage is reported with its path as the unit and
// without a run.
//
// For each extent: the header, byte for byte as the journal implies it; the CRC of the whole padded
// payload; the CRC of every fragment, which identifies the damaged unit. commit_check.h says what
// is reported for a commit. Bytes that the system refuses to read, and a catalog that can neither
// be read nor repaired, are listed apart, as unchecked.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ckptd/restore/commit_check.h"
#include "ckptd/restore/journal_check.h"
#include "ckptd/restore/verify_targets.h"

namespace ckptd {

struct VerifyReport {
  uint64_t checked_bytes = 0;  // headers and padded payloads read
  uint64_t commits = 0;
  std::vector<VerifyError> errors;     // damage, at most limits::kVerifyErrorsMax
  uint64_t errors_left_out = 0;        // beyond that
  std::vector<VerifyError> unchecked;  // could not be checked; same limit
  uint64_t unchecked_left_out = 0;
};

// Reads in pieces with bounded memory, a few in flight, so that other work of the loop runs in
// between. Loop thread. close() stops early and waits for its reads; the destructor asserts that
// the job finished or was closed.
class VerifyJob {
 public:
  // With `point`: checks the commits that the view at this point of the only run consists of.
  VerifyJob(const RestoreContext& context, std::vector<ckpt::RunId> runs,
            const std::optional<ViewPoint>& point, std::function<void(VerifyReport)> on_done,
            std::optional<JournalSource> journal = {});
  ~VerifyJob();
  void start();
  // on_done does not run afterwards. on_closed runs from the loop, never inside this call.
  void close(std::function<void()> on_closed);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd

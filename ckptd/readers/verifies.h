// Verifies: verifies that clients requested. Each reads in pieces between other work, and answers
// at the end. Loop thread. A verify ends by itself, with its session, or in close_all(); its last
// reads may take longer (closing_jobs.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ckptd/history/history.h"
#include "ckptd/loop/turn.h"
#include "ckptd/query/query.h"
#include "ckptd/readers/closing_jobs.h"
#include "ckptd/readers/reader_holds.h"
#include "ckptd/readers/reader_numbers.h"
#include "ckptd/restore/verify.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

// A verify has ended. `whole_runs` are names of runs that it read completely; the empty name is the
// journal. `began_ns` is the wall clock at its start.
using OnVerified = std::function<void(
    const VerifyReport& report, const std::vector<std::string>& whole_runs, uint64_t began_ns)>;

class Verifies {
 public:
  struct Needs {
    History& history;
    Turn& turn;
    const Replies& replies;
    ReaderNumbers& numbers;
    ClosingJobs& closing;
    ReaderHolds& holds;
    std::function<RestoreContext()> context;
    std::function<void()> on_reader_gone;
    OnVerified on_verified;
  };
  struct Counters {
    uint64_t errors = 0;
  };
  explicit Verifies(Needs needs) : needs_(std::move(needs)) {}
  Verifies(const Verifies&) = delete;
  Verifies& operator=(const Verifies&) = delete;

  // `context` is of the session, for this call only.
  void start(const Session& session, const ckpt::fb::QueryT& message, const QueryContext& context);
  void session_lost(ckpt::SessionId session);
  void close_all();
  const Counters& counters() const { return counters_; }

 private:
  struct Verify {
    ckpt::SessionId session = 0;
    uint64_t request = 0;
    ReaderNumbers::Reading reading;
    HoldId hold = 0;  // of the view being read; 0: whole runs
    std::vector<std::string> whole_runs;
    uint64_t began_ns = 0;
    std::unique_ptr<VerifyJob> job;
  };
  void done(uint64_t id, const VerifyReport& report);

  const Needs needs_;
  std::map<uint64_t, Verify> verifies_;
  uint64_t next_ = 1;
  Counters counters_;
};

}  // namespace ckptd

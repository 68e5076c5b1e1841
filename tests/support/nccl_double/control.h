// Controls of the double of NCCL for tests.
#pragma once

#include <nccl.h>

#include <atomic>

namespace nccl_double {

// The ncclResult_t whose number is in NCCL_DOUBLE_ERROR: for programs that a test starts.
ncclResult_t error_of_the_environment();

struct Control {
  std::atomic<int> version{NCCL_VERSION(2, 20, 5)};
  // Results of calls, which then do nothing; ncclSuccess: calls work.
  std::atomic<ncclResult_t> id_error{ncclSuccess};
  std::atomic<ncclResult_t> call_error{
      error_of_the_environment()};  // of calls that begin something
  // Result of a call in progress, reported by ncclCommGetAsyncError().
  std::atomic<ncclResult_t> async_error{ncclSuccess};
  std::atomic<int> async_error_of{-1};  // of this rank alone; -1: of all ranks
  // Number of queries for which a begun call stays in progress. It is queued only after them.
  std::atomic<int> asks{0};
  std::atomic<bool> stalls{false};  // calls stay in progress for ever
  // A call that is still in progress returns success, as non-blocking calls of NCCL may.
  std::atomic<bool> claims_success{false};
  // Aborts block until this is false again; wake them by notify_all().
  std::atomic<bool> aborts_wait{false};

  // Counters: living communicators; the others count from the start or the last reset().
  std::atomic<int> communicators{0};
  std::atomic<int> stalled_asks{0};
  std::atomic<int> aborts{0};       // begun
  std::atomic<int> destroyed{0};    // after queued work was done, and NCCL had finished
  std::atomic<int> wrong_calls{0};  // calls that NCCL would reject, or not survive
};

Control& control();
// Resets all controls to their initial values. No communicator may be alive.
void reset();

}  // namespace nccl_double

// What a test asks of the double of NCCL.
#pragma once

#include <nccl.h>

#include <atomic>

namespace nccl_double {

// An ncclResult_t by its number, from NCCL_DOUBLE_ERROR: for programs that a test starts.
ncclResult_t error_of_the_environment();

struct Control {
  std::atomic<int> version{NCCL_VERSION(2, 20, 5)};
  // What calls return, and do nothing; ncclSuccess: they do what they are for.
  std::atomic<ncclResult_t> id_error{ncclSuccess};
  std::atomic<ncclResult_t> call_error{
      error_of_the_environment()};  // of those that begin something
  // What they come to, when somebody asks.
  std::atomic<ncclResult_t> async_error{ncclSuccess};
  std::atomic<int> async_error_of{-1};  // of this rank alone; -1: of all
  // What is begun is in progress while it is asked for so many times, and not queued before.
  std::atomic<int> asks{0};
  std::atomic<bool> stalls{false};  // in progress for ever
  // What begins something and is not done says that it is, as non-blocking calls of NCCL may.
  std::atomic<bool> claims_success{false};
  // Aborts do not return before this is false again: notify_all(), then.
  std::atomic<bool> aborts_wait{false};

  // What there is, and was.
  std::atomic<int> communicators{0};
  std::atomic<int> stalled_asks{0};
  std::atomic<int> aborts{0};       // begun
  std::atomic<int> destroyed{0};    // after what was queued was done, and NCCL had finished
  std::atomic<int> wrong_calls{0};  // that NCCL would not have taken, or not have survived
};

Control& control();
// As at first. No communicator lives.
void reset();

}  // namespace nccl_double

// Exchange between ranks of the double of NCCL, through a mailbox. A collective is two pieces of
// work in each rank's stream. The first posts the rank's data, in the stream's order. The second is
// ready when the peers have posted their data, and fills the rank's buffers. Sums are computed in
// the order of ranks.
//
// On GPUs streams make progress by themselves, whatever their owner waits for. Here a thread of
// each communicator queries its stream while the stream has work of the communicator.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulator/emulator.h"
#include "tests/support/nccl_double/control.h"
#include "tests/support/nccl_double/mailbox.h"

namespace nccl_double {

// Data that one rank sends to a peer and receives from it; for a sum its summand and the result.
struct Slice {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t sent = 0;
  size_t received = 0;
};
struct Share {
  bool is_sum = false;
  std::vector<Slice> slices;  // by peer; a sum uses only the first
};

// One rank of a communicator. Outlives its handle while its stream has work of it.
struct Member {
  std::string mailbox;
  int rank = 0;
  int ranks = 0;
  int device = 0;
  cudaStream_t stream = nullptr;  // the last stream that it was used on
  bool aborted = false;
  // Numbers of queued operations: sums, sends to each peer, receives from each peer.
  size_t sums = 0;
  std::vector<size_t> sent = std::vector<size_t>(static_cast<size_t>(ranks));
  std::vector<size_t> received = std::vector<size_t>(static_cast<size_t>(ranks));
  size_t unfinished = 0;  // of all these operations
};

// Queues both pieces of work on the member's stream. The caller holds the emulator's lock.
void queue(const std::shared_ptr<Member>& member, const Share& share);

// Registers a rank and its GPU, or removes the rank. The last rank to leave removes the mailbox.
void arrive(const Member& member, const std::string& gpu);
bool all_joined(const Member& member);
std::string gpu_of(const Member& member, int peer);
void leave(const Member& member);

// The thread that lets the member's stream make progress. It takes the emulator's lock, so it must
// not be destroyed under that lock.
class Progress {
 public:
  explicit Progress(std::shared_ptr<Member> member)
      : member_(std::move(member)), thread_([this](const std::stop_token& stop) { run(stop); }) {}
  void was_queued() { queued_.notify_all(); }

 private:
  void run(const std::stop_token& stop);

  const std::shared_ptr<Member> member_;
  std::condition_variable_any queued_;
  std::jthread thread_;
};

}  // namespace nccl_double

struct ncclComm {
  explicit ncclComm(std::shared_ptr<nccl_double::Member> of)
      : member(std::move(of)), progress(member) {}

  std::shared_ptr<nccl_double::Member> member;
  std::function<void()> begun;      // queues the call in progress
  std::function<bool()> can_begin;  // null: it can begin at once
  int asks_left = 0;
  bool finalized = false;  // or being finalized
  ncclResult_t failed = ncclSuccess;
  std::string last_error;
  nccl_double::Progress progress;
};

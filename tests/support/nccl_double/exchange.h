// What ranks of the double of NCCL exchange, through a mailbox. A collective is two pieces of work
// in each rank's stream. The first posts what the rank gives, in the stream's order; the second is
// ready when its peers have posted theirs, and fills what the rank gets. Sums are in the order of
// ranks.
//
// On GPUs streams go on by themselves, whatever their owner waits for. Here a thread of each
// communicator asks for its stream as long as that has work of it.
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

// What one rank sends to a peer and receives from it; of a sum what it adds, and where it goes.
struct Slice {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t sent = 0;
  size_t received = 0;
};
struct Share {
  bool is_sum = false;
  std::vector<Slice> slices;  // by peer; of a sum only the first
};

// One rank of those who came with one id. Outlives its handle while its stream has work of it.
struct Member {
  std::string mailbox;
  int rank = 0;
  int ranks = 0;
  int device = 0;
  cudaStream_t stream = nullptr;  // that it was used on last
  bool aborted = false;
  // What it has queued: of sums, to each peer, from each peer.
  size_t sums = 0;
  std::vector<size_t> sent = std::vector<size_t>(static_cast<size_t>(ranks));
  std::vector<size_t> received = std::vector<size_t>(static_cast<size_t>(ranks));
  size_t unfinished = 0;  // of all that
};

// Both pieces of work, into the member's stream. Under the emulator's lock.
void queue(const std::shared_ptr<Member>& member, const Share& share);

// Who has come, and on which GPU; who has gone. The last one to go removes the mailbox.
void arrive(const Member& member, const std::string& gpu);
bool all_are_here(const Member& member);
std::string gpu_of(const Member& member, int peer);
void leave(const Member& member);

// The thread that lets the member's stream go on. Takes the emulator's lock: it is not destroyed
// under it.
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
  std::function<void()> begun;      // queues what is in progress
  std::function<bool()> can_begin;  // null: at once
  int asks_left = 0;
  bool finalized = false;  // or about to be
  ncclResult_t failed = ncclSuccess;
  std::string last_error;
  nccl_double::Progress progress;
};

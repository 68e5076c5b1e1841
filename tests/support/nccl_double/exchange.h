// What ranks of the double of NCCL exchange. A collective is two pieces of work in each rank's
// stream. The first takes what the rank gives, in the stream's order; the second is ready when its
// peers have given theirs, and fills what the rank gets. While one rank asks for its stream, time
// passes on its peers', too. Sums are in the order of ranks.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulator/emulator.h"
#include "tests/support/nccl_double/control.h"

namespace nccl_double {

using Bytes = std::vector<std::byte>;

// What one rank sends to a peer and receives from it; of a sum what it adds, and where it goes.
struct Slice {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t sent = 0;
  size_t received = 0;
};
struct Share {
  bool is_sum = false;
  size_t number = 0;          // of the sum
  std::vector<Slice> slices;  // by peer; of a sum only the first
};

// Those who came with one id, and what their streams have given so far.
struct Group {
  std::map<int, ncclComm*> members;  // by rank; null: aborted
  std::map<int, int> devices;
  std::map<std::pair<int, int>, std::deque<Bytes>> mail;  // sender and receiver -> in their order
  std::vector<std::map<int, Bytes>> sums;                 // by number and rank
  bool nudging = false;
};

// Outlives its handle while streams have work of it.
struct Member {
  std::shared_ptr<Group> group;
  int rank = 0;
  int ranks = 0;
  int device = 0;
  bool aborted = false;
  size_t sums = 0;        // that this rank has queued
  size_t unfinished = 0;  // of all that it has queued
};

// Both pieces of work, into the stream. Under the emulator's lock.
void queue(const std::shared_ptr<Member>& member, Share share, cudaStream_t stream);

[[noreturn]] void die(const char* what);

}  // namespace nccl_double

struct ncclComm {
  std::shared_ptr<nccl_double::Member> member;
  cudaStream_t stream = nullptr;    // that it was used on last
  std::function<void()> begun;      // queues what is in progress
  std::function<bool()> can_begin;  // null: at once
  int asks_left = 0;
  bool finalized = false;  // or about to be
  ncclResult_t failed = ncclSuccess;
  std::string last_error;
};

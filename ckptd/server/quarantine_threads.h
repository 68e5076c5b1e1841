// QuarantineThreads: the threads of Quarantine, and their channel to the loop.
//
// The first thread unshares its table of descriptors and reads requests from the channel. It starts
// the other threads, which share that table. They block signals: handlers use descriptors of the
// daemon's table. All of them end when the loop's end of the channel is closed, except threads that
// are stuck in a system call.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

// Bytes and descriptors received from a client's socket.
struct ForeignBytes {
  std::vector<std::byte> bytes;  // empty: end of stream, unless `would_block`
  bool would_block = false;
  std::string error;            // not empty: the socket cannot be read
  size_t descriptors = 0;       // received, at most 2 counted; all but `memory` are closed
  ckpt::base::UniqueFd memory;  // set if exactly one came and it is sealed memory (a memfd)
};

class QuarantineThreads : public std::enable_shared_from_this<QuarantineThreads> {
 public:
  // A message to the threads. Each job takes two: the first brings the descriptor to receive from
  // or to close. The second, kBegin, starts the job once the loop has closed its own copy.
  // Otherwise the loop's copy could be the last one.
  enum class Kind : uint8_t { kBringToReceive, kBringToClose, kBegin };
  struct Request {
    uint64_t id = 0;
    uint32_t uid = 0;
    Kind kind = Kind::kBegin;
  };
  // A message from the threads. A receive gets two replies: one with the received bytes (and
  // memory, if any), one when all other received descriptors are closed. A close gets the second.
  struct Reply {
    uint64_t id = 0;
    bool done = false;
  };

  // `channel`: one end of a SOCK_SEQPACKET pair. Returns when the threads have their own table.
  static ckpt::Result<std::shared_ptr<QuarantineThreads>> start(ckpt::base::UniqueFd channel);

  // The bytes received for a request, without its memory; once. From any thread.
  ForeignBytes take_received(uint64_t id);
  // Waits for the threads to end. False: some threads are stuck.
  bool wait_until_ended(std::chrono::milliseconds patience);

 private:
  // A descriptor number in the threads' table. In other threads the number means another file or
  // nothing, so no destructor closes it; open ones are closed with the table.
  using OwnFd = int;
  struct Job {
    Request request;
    OwnFd fd = -1;
  };
  // Jobs of one class of users.
  struct Queue {
    std::deque<Job> waiting;
    size_t threads = 0;  // threads working for the class
  };
  enum class Table { kUnknown, kShared, kOwn };

  QuarantineThreads() = default;
  void begin(OwnFd channel);
  void take_own_table();
  void read_requests();
  bool read_request(Request& request);
  void drop_request(const Request& request);
  void take_request(const Request& request);
  void wake_a_thread();
  void start_thread(void (QuarantineThreads::*body)());
  void work();
  std::optional<Job> next_job();
  void serve(const Job& job);
  void receive_for(const Job& job);
  ForeignBytes receive_from(OwnFd socket, std::vector<ckpt::base::UniqueFd>& fds) const;
  void reply(const Reply& reply, OwnFd memory) const noexcept;

  OwnFd channel_ = -1;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ckpt::base::UniqueFd> arrived_;  // with a request; only for the first thread
  std::map<uint64_t, Job> brought_;            // not begun; only for the first thread
  std::map<uint32_t, Queue> queues_;
  std::map<uint64_t, ForeignBytes> received_;
  uint32_t last_served_ = 0;
  size_t threads_ = 0;
  size_t idle_ = 0;
  size_t wakeups_ = 0;  // given to idle threads that have not run since
  Table table_ = Table::kUnknown;
  bool ending_ = false;
};

}  // namespace ckptd

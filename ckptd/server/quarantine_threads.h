// QuarantineThreads: the threads of Quarantine, and what passes between them and the loop.
//
// The first thread takes a table of descriptors of its own and reads requests from the channel. It
// starts the others, which share that table. All of them end when the loop's end of the channel is
// closed, except those that are stuck in a system call.
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

// What came from a client's socket.
struct ForeignBytes {
  std::vector<std::byte> bytes;  // empty: end of stream, unless `would_block`
  bool would_block = false;
  std::string error;            // not empty: the socket cannot be read
  size_t descriptors = 0;       // that came along, 2: or more; all but `memory` are closed
  ckpt::base::UniqueFd memory;  // set if just one came and it is sealed memory (a memfd)
};

class QuarantineThreads : public std::enable_shared_from_this<QuarantineThreads> {
 public:
  // Travels over the channel. Each job takes two: one that brings the descriptor to receive from or
  // to close, and, when the loop has closed its own copy, one that begins it. Were it begun
  // earlier, the copy of the loop could be the last one.
  enum class Kind : uint8_t { kBringToReceive, kBringToClose, kBegin };
  struct Request {
    uint64_t id = 0;
    uint32_t uid = 0;
    Kind kind = Kind::kBegin;
  };
  // Travels back. A request to receive gets two: one with what came (and its memory, if any), one
  // when everything else that came is closed. A request to close gets the second one only.
  struct Reply {
    uint64_t id = 0;
    bool done = false;
  };

  // `channel`: one end of a SOCK_SEQPACKET pair. Returns when the threads have their own table.
  static ckpt::Result<std::shared_ptr<QuarantineThreads>> start(ckpt::base::UniqueFd channel);

  // What was received for a request, without its memory; once. From any thread.
  ForeignBytes take_received(uint64_t id);
  // Waits for the threads to end. False: some are stuck.
  bool wait_until_ended(std::chrono::milliseconds patience);

 private:
  // A number in the threads' table. It means something else, or nothing, to all other threads, so
  // it is never closed by a destructor; what is left goes with the table.
  using OwnFd = int;
  struct Job {
    Request request;
    OwnFd fd = -1;
  };
  // What one class of users has brought.
  struct Queue {
    std::deque<Job> waiting;
    size_t threads = 0;  // at work for it
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
  std::vector<ckpt::base::UniqueFd> arrived_;  // with a request; the first thread's alone
  std::map<uint64_t, Job> brought_;            // and not begun; the first thread's alone
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

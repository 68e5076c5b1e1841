// Quarantine: handles descriptors that clients passed on separate threads, never on the loop.
//
// Receiving and closing a foreign descriptor may block for as long as its owner likes (see
// rights_option.h). If a FUSE server stalls the call, not even SIGKILL ends it. So:
//   - The threads have their own table of descriptors (unshare(CLONE_FILES)). A stuck thread
//     holds nothing of the daemon's: no lock of the store, no socket, no log.
//   - Each class of users gets at most kQuarantineThreadsPerUser of the threads. Jobs beyond that
//     wait in the class's own queue, and delay no other class.
//   - Each class gets a share of the places in that table. Beyond its share, descriptors to close
//     are parked (parked_descriptors.h), and receives fail.
//   - A class that is stuck for a while is overloaded(): the server refuses its connections.
//
// Loop thread only. SCM_RIGHTS over a socket pair moves descriptors between the two tables: sockets
// to the threads, checked memory back.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "ckptd/server/parked_descriptors.h"
#include "ckptd/server/quarantine_threads.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

class Quarantine {
 public:
  using Clock = std::chrono::steady_clock;
  using Done = std::function<void(ForeignBytes)>;
  // The class of a client: its user id, or kStrangers for all users that may not connect. So a
  // person with many user ids gets no more threads than others.
  using Class = uint32_t;
  static constexpr Class kStrangers = UINT32_MAX;

  static ckpt::Result<std::unique_ptr<Quarantine>> start(asio::io_context& loop);
  // Waits briefly for the threads to end; stuck threads are left behind.
  ~Quarantine();
  Quarantine(const Quarantine&) = delete;
  Quarantine& operator=(const Quarantine&) = delete;

  // Reads once from `socket`, without waiting, descriptors included. Calls `done` from the loop.
  // The caller keeps `socket`, and may close it meanwhile.
  void receive(Class of, int socket, Done done);
  // Closes a foreign descriptor, or one with foreign descriptors in its receive queue.
  void close(Class of, ckpt::base::UniqueFd fd);
  // Closes a client's socket: directly if its receive queue is empty, otherwise like close().
  void close_socket(Class of, ckpt::base::UniqueFd socket);

  // True if the class has kQuarantineJobsPerUser descriptors or more here, the oldest for too long.
  bool overloaded(Class of) const;
  // True at the limit of held descriptors: accept no connection that may pass more. The share of
  // kStrangers does not count: users who may not connect never keep out those who may.
  bool full() const;
  // The reason of full() and what to do, as one sentence; empty if it is not.
  std::string fault() const;
  size_t held() const { return held_; }
  size_t held_of(Class of) const;
  // Retries sends that the threads' channel had no room for. Call it periodically.
  void tick();

 private:
  struct Job {
    Class of = 0;
    Done done;               // empty once called, and for a close
    size_t descriptors = 1;  // more for a lot of parked descriptors
  };
  struct OfClass {
    std::map<uint64_t, Clock::time_point> since;  // by job
    ParkedDescriptors parked;
  };
  struct Unsent {
    QuarantineThreads::Request request;
    ckpt::base::UniqueFd fd;
  };

  Quarantine(asio::io_context& loop, ckpt::base::UniqueFd channel,
             std::shared_ptr<QuarantineThreads> threads);
  using Kind = QuarantineThreads::Kind;
  void submit(Class of, Kind kind, ckpt::base::UniqueFd fd, Done done, size_t descriptors = 1);
  size_t jobs_of(Class of) const;
  bool park(Class of, ckpt::base::UniqueFd& fd);
  void close_parked(Class of);
  void send_unsent();
  void wait_for_replies();
  bool take_reply();
  void replied(const QuarantineThreads::Reply& reply, ckpt::base::UniqueFd memory);

  asio::posix::stream_descriptor channel_;
  std::shared_ptr<QuarantineThreads> threads_;
  std::map<uint64_t, Job> jobs_;  // until the last of a job's descriptors is closed
  std::map<Class, OfClass> classes_;
  std::deque<Unsent> unsent_;   // requests that the channel had no room for
  std::deque<Unsent> refused_;  // requests that the kernel refuses now
  size_t jobs_max_ = 0;
  size_t parked_max_ = 0;
  size_t parked_ = 0;
  size_t held_ = 0;  // by jobs, and parked
  uint64_t next_ = 1;
};

}  // namespace ckptd

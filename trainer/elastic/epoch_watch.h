// EpochWatch: ends the collectives of an epoch as soon as ckptd says that the epoch is over.
//
// A collective sees by its connections that a peer is gone, nearly always at once. Not always: Gloo
// forgets to tell the one who waits when a connection breaks while its own thread is answering the
// peer, and a peer that hangs breaks no connection. ckptd knows of every death, so its word ends
// the wait as well, on a thread of this object.
//
// A session belongs to one thread at a time. The rank's thread has it, and lends it to the watch
// while it is in collectives (Loan); outside of a loan the watch looks at nothing. Whoever needs it
// in the midst of a loan takes it back for a while (Recall).
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "trainer/elastic/member.h"

namespace moetrain {

class EpochWatch {
 public:
  // Made and destroyed by the rank's thread, without a loan. Both outlive it.
  EpochWatch(Member& member, Comm& comm);
  ~EpochWatch();

  class Loan {
   public:
    explicit Loan(EpochWatch& watch) : watch_(watch) { watch_.own_.unlock(); }
    ~Loan() { watch_.own_.lock(); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

   private:
    EpochWatch& watch_;
  };
  // During a loan, takes the session back as long as it lives; at other times it changes nothing.
  class Recall {
   public:
    explicit Recall(EpochWatch& watch) : watch_(watch), lent_(!watch.own_.owns_lock()) {
      if (lent_) watch_.own_.lock();
    }
    ~Recall() {
      if (lent_) watch_.own_.unlock();
    }
    Recall(const Recall&) = delete;
    Recall& operator=(const Recall&) = delete;

   private:
    EpochWatch& watch_;
    const bool lent_;
  };

 private:
  void run(const std::stop_token& stop);

  Member& member_;
  Comm& comm_;
  std::mutex session_;                // whose thread the session belongs to
  std::unique_lock<std::mutex> own_;  // the rank's thread: held except during a loan
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

}  // namespace moetrain

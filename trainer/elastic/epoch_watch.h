// EpochWatch: aborts the collectives of an epoch as soon as ckptd reports that the epoch is over.
//
// A collective nearly always notices a lost peer at once, by its connection. There are exceptions:
// Gloo does not wake the waiting thread if a connection breaks while Gloo's own thread is answering
// the peer, and a peer that hangs breaks no connection. ckptd detects every death, so a thread of
// this object polls ckptd, and aborts the wait.
//
// A session belongs to one thread at a time. The rank's thread owns it, and lends it to the watch
// during collectives (Loan); outside of a loan the watch does not poll. Code that needs the session
// during a loan takes it back temporarily (Recall).
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "trainer/elastic/member.h"

namespace moetrain {

class EpochWatch {
 public:
  // Created and destroyed by the rank's thread, outside of a loan. Both arguments outlive it.
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
  // Scope: during a loan, takes the session back; otherwise has no effect.
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
  std::mutex session_;                // held by the thread that owns the session
  std::unique_lock<std::mutex> own_;  // the rank's thread: held except during a loan
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

}  // namespace moetrain

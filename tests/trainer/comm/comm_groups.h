// Groups of communicators for tests: one thread per rank, for any transport.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/comm/comm.h"

namespace moetrain {

// The rendezvous of threads: a map; get waits for the key.
class MapRendezvous {
 public:
  Rendezvous callbacks() {
    Rendezvous rendezvous;
    rendezvous.set = [this](const std::string& key, const std::vector<char>& value) {
      std::lock_guard lock(mutex_);
      values_[key] = value;
      changed_.notify_all();
      return Status();
    };
    rendezvous.get = [this](const std::string& key) -> Result<std::vector<char>> {
      std::unique_lock lock(mutex_);
      const bool there =
          changed_.wait_for(lock, std::chrono::seconds(30), [&] { return values_.contains(key); });
      if (!there) return ckpt::make_error(ckpt::ErrorCode::kDeadlineExceeded, "key {}", key);
      return values_[key];
    };
    return rendezvous;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<char>> values_;
};

enum class CommKind { kLocal, kGloo };

inline std::string comm_kind_name(CommKind kind) {
  return kind == CommKind::kLocal ? "Local" : "Gloo";
}

// All ranks' communicators of a new group, by rank. Fails the test if they cannot be made.
std::vector<std::unique_ptr<Comm>> make_comms(CommKind kind, uint32_t size, uint32_t timeout_ms);

// The same, each with a communication thread that has its own communicator (comm_thread.h).
std::vector<std::unique_ptr<Comm>> make_comms_with_threads(CommKind kind, uint32_t size,
                                                           uint32_t timeout_ms);

// Runs `body` for each communicator on its own thread; returns when all have ended.
inline void on_all_ranks(std::vector<std::unique_ptr<Comm>>& comms,
                         const std::function<void(Comm&)>& body) {
  std::vector<std::jthread> threads;
  for (auto& comm : comms) threads.emplace_back([&body, &each = *comm] { body(each); });
}

}  // namespace moetrain

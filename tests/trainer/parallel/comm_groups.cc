#include "tests/trainer/parallel/comm_groups.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>

namespace moetrain {
namespace {

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

}  // namespace

std::vector<std::unique_ptr<Comm>> make_comms(CommKind kind, uint32_t size, uint32_t timeout_ms) {
  if (kind == CommKind::kLocal) return make_local_comms(size, timeout_ms);
  MapRendezvous rendezvous;
  std::vector<std::unique_ptr<Comm>> comms(size);
  std::vector<std::jthread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto comm = make_gloo_comm({.rank = rank,
                                  .size = size,
                                  .rendezvous = rendezvous.callbacks(),
                                  .timeout_ms = timeout_ms});
      ASSERT_TRUE(comm.ok()) << comm.error().message;
      comms[rank] = std::move(comm).value();
    });
  }
  threads.clear();
  return comms;
}

}  // namespace moetrain

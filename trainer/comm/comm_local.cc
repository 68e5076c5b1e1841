// Communicators of threads of one process: messages are copied straight out of the sender's buffer,
// from one GPU's memory into the same or another one's, too.
#include <chrono>
#include <condition_variable>
#include <cstring>

#include "formats/base/assert.h"
#include "trainer/comm/comm_pairwise.h"
#include "trainer/device/device.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Shared by the ranks. An exchange has four parts: post the send buffer; wait until all have
// posted; copy from the others' buffers; wait until all have copied, so that no buffer changes
// under a reader.
class LocalGroup {
 public:
  LocalGroup(uint32_t size, uint32_t timeout_ms)
      : size_(size), timeout_(timeout_ms), posted_(size) {}

  Status exchange(uint32_t rank, const Exchange& exchange) {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    std::unique_lock lock(mutex_);
    posted_[rank] = &exchange;
    CKPT_TRY(arrive(lock, deadline, /*copying=*/1));
    // Counted in `copying_` from the moment the last rank arrived: an abort waits for the copies.
    lock.unlock();
    Status copied = copy(rank, exchange);
    lock.lock();
    if (--copying_ == 0) changed_.notify_all();
    if (!copied.ok()) {
      changed_.wait(lock, [&] { return copying_ == 0; });
      return copied;
    }
    return arrive(lock, deadline, /*copying=*/0);
  }

  void interrupt(const std::string& reason) {
    std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
    changed_.notify_all();
  }

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  // Waits until all ranks have arrived here as often as this one. The last to arrive marks all
  // ranks as copying, if that is what they do next.
  Status arrive(std::unique_lock<std::mutex>& lock, Deadline deadline, uint32_t copying) {
    const uint64_t round = round_;
    if (!aborted_ && ++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      copying_ = copying * size_;
      changed_.notify_all();
    }
    const auto done = [&] { return round_ != round || aborted_; };
    bool timed_out = !changed_.wait_until(lock, deadline, done);
    if (round_ != round) return {};
    if (timed_out) {
      aborted_ = "a peer did not take part in time";
      changed_.notify_all();
    }
    // My buffers may be in use by a rank that still copies; that is a bounded wait.
    changed_.wait(lock, [&] { return copying_ == 0; });
    if (timed_out) {
      return make_error(ErrorCode::kDeadlineExceeded, "a peer did not take part within {} ms",
                        timeout_.count());
    }
    return make_error(ErrorCode::kAborted, "{}", *aborted_);
  }

  Status copy(uint32_t rank, const Exchange& exchange) const {
    for (const Transfer& in : exchange.recvs) {
      const Exchange& theirs = *posted_[in.peer];
      const Transfer* out = nullptr;
      for (const Transfer& candidate : theirs.sends) {
        if (candidate.peer == rank) out = &candidate;
      }
      if (out == nullptr || out->bytes != in.bytes) {
        return make_error(ErrorCode::kAborted, "expects {} bytes from rank {}, which sends {}",
                          in.bytes, in.peer, out == nullptr ? 0 : out->bytes);
      }
      std::byte* const to = exchange.recv.data() + in.offset;
      const std::byte* const from = theirs.send.data() + out->offset;
      if (exchange.device != nullptr) {
        exchange.device->copy(to, from, in.bytes);
      } else {
        std::memcpy(to, from, in.bytes);
      }
    }
    // A peer's buffer is its own again when all have copied.
    return exchange.device != nullptr ? exchange.device->synchronize() : Status();
  }

  const uint32_t size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const Exchange*> posted_;
  uint64_t round_ = 0;
  uint32_t arrived_ = 0;
  uint32_t copying_ = 0;
  std::optional<std::string> aborted_;
};

class LocalComm final : public PairwiseComm {
 public:
  LocalComm(uint32_t rank, uint32_t size, std::shared_ptr<LocalGroup> group)
      : PairwiseComm(rank, size), group_(std::move(group)) {}
  // A rank that leaves is gone for its peers, as a process would be.
  ~LocalComm() override { group_->interrupt(fmt::format("rank {} is gone", rank())); }

 protected:
  bool reaches_devices() const override { return true; }
  Status exchange(const Exchange& exchange) override { return group_->exchange(rank(), exchange); }
  void interrupt(const std::string& reason) override { group_->interrupt(reason); }

 private:
  std::shared_ptr<LocalGroup> group_;
};

}  // namespace

std::vector<std::unique_ptr<Comm>> make_local_comms(uint32_t size, uint32_t timeout_ms) {
  CKPT_ASSERT(size > 0);
  auto group = std::make_shared<LocalGroup>(size, timeout_ms);
  std::vector<std::unique_ptr<Comm>> comms;
  comms.reserve(size);
  for (uint32_t rank = 0; rank < size; ++rank) {
    comms.push_back(std::make_unique<LocalComm>(rank, size, group));
  }
  return comms;
}

}  // namespace moetrain

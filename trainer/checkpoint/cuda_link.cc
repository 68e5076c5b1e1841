#include <ckpt/ckpt_cuda.h>

#include <map>
#include <set>
#include <utility>

#include "kernels/queue.h"
#include "trainer/checkpoint/client_status.h"
#include "trainer/checkpoint/device_link.h"
#include "trainer/device/cuda_device.h"

namespace moetrain {

namespace client = ckpt::client;
using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// A millisecond of the link to the host: after that time the first layer has waited for its device,
// and more is queued during that wait.
constexpr uint64_t kAheadBytes = 32 << 20;

class CudaLink final : public DeviceLink {
 public:
  explicit CudaLink(Device& device) : device_(device) {}
  ~CudaLink() override {
    set_while_waiting(device_, {});
    when_busy({});
    if (cuda_ == nullptr || ckpt_cuda_close(cuda_) == CKPT_OK) return;
    leave_device_memory();
  }

  Status open(client::Session& session, uint32_t timeout_ms) {
    ckpt_cuda_options options = CKPT_INIT(ckpt_cuda_options);
    options.device = cuda_queue(device_).device();
    options.timeout_ms = timeout_ms;
    options.ahead_bytes = kAheadBytes;
    char error[512] = "";
    const ckpt_status opened =
        ckpt_cuda_open(session.handle(), &options, &cuda_, error, sizeof error);
    if (opened == CKPT_OK) {
      set_while_waiting(device_, [this] { ckpt_cuda_advance(cuda_); });
      return {};
    }
    return make_error(static_cast<ErrorCode>(opened), "device {}: {}", device_.name(), error);
  }

  Status stage(client::Snapshot& snapshot, const std::vector<LinkPiece>& pieces) override {
    run_work();
    // The last copies out of `from_host_` may still be reading it.
    for (const uint32_t unit : std::exchange(from_host_units_, {})) {
      CKPT_TRY(of_device(ckpt_cuda_wait_gathered(cuda_, unit, stream())));
    }
    size_t host_bytes = 0;
    for (const LinkPiece& piece : pieces) {
      if (!piece.on_host) continue;
      from_host_units_.insert(piece.unit);
      host_bytes += piece.bytes.size();
    }
    from_host_.reshape(device_, Type::kByte, host_bytes);
    std::byte* copy = from_host_.data();
    std::vector<ckpt_cuda_piece> staged;
    for (const LinkPiece& piece : pieces) {
      const void* data = piece.bytes.data();
      if (piece.on_host) {
        device_.upload(copy, piece.bytes);
        data = copy;
        copy += piece.bytes.size();
      }
      staged.push_back({piece.unit, piece.offset, data, piece.bytes.size()});
    }
    // A kernel that has failed may have left wrong bytes: do not stage them.
    if (const auto& failure = cuda_queue(device_).failed()) {
      return make_error(ErrorCode::kIo, "device {}: {}", device_.name(), *failure);
    }
    CKPT_TRY(
        checked(ckpt_cuda_stage(cuda_, snapshot.handle(), staged.data(), staged.size(), stream())));
    number_of_[snapshot.handle()] = ++staged_;
    waited_for_.clear();
    return {};
  }

  void when_busy(std::function<void()> work) override {
    work_ = std::move(work);
    if (work_) {
      call_at_next_wait(device_, [this] { run_work(); });
    } else {
      call_at_next_wait(device_, {});
    }
  }

  void retire(client::Snapshot snapshot) override {
    const auto number = number_of_.find(snapshot.handle());
    if (number != number_of_.end()) retired_.emplace(number->second, std::move(snapshot));
  }

  // The stream is in order: one wait for a unit is enough until more is staged.
  void wait_gathered(uint32_t unit) override {
    run_work();
    if (!waited_for_.insert(unit).second) return;
    const ckpt_status held = ckpt_cuda_wait_gathered(cuda_, unit, stream());
    if (held != CKPT_OK) cuda_queue(device_).fail(ckpt_cuda_error(cuda_));
  }
  void wait_all_gathered() override { wait_gathered(CKPT_CUDA_ALL_UNITS); }
  // Snapshots arrive in the order in which they were staged. After an error no further snapshot is
  // staged.
  Status poll() override {
    run_work();
    size_t open = 0;
    const ckpt_status polled = ckpt_cuda_poll(cuda_, &open);
    const uint64_t arrived = polled == CKPT_OK ? staged_ - open : staged_;
    retired_.erase(retired_.begin(), retired_.upper_bound(arrived));
    std::erase_if(number_of_, [&](const auto& entry) { return entry.second <= arrived; });
    return of_device(polled);
  }
  Status drain(uint32_t timeout_ms) override {
    run_work();
    return checked(ckpt_cuda_drain(cuda_, timeout_ms));
  }

  Result<std::vector<client::Restored>> restore(const client::RestoreOptions& options,
                                                const std::vector<LinkPiece>& pieces) override {
    run_work();
    const ckpt_restore_options raw = client::detail::raw_options(options);
    std::vector<ckpt_cuda_destination> destinations;
    destinations.reserve(pieces.size());
    for (const LinkPiece& piece : pieces) {
      CKPT_ASSERT(!piece.on_host);
      destinations.push_back({piece.unit, piece.offset, piece.bytes.data(), piece.bytes.size()});
    }
    std::vector<ckpt_restored> answers(pieces.size());
    CKPT_TRY(checked(ckpt_cuda_restore(cuda_, &raw, destinations.data(), destinations.size(),
                                       answers.data(), stream())));
    return client::detail::from_raw(answers);
  }

 private:
  // `work` may use this link.
  void run_work() {
    if (work_) std::exchange(work_, {})();
  }
  CUstream_st* stream() { return cuda_queue(device_).stream(); }
  Status checked(ckpt_status status) const {
    if (status == CKPT_OK) return {};
    return make_error(static_cast<ErrorCode>(status), "{}", ckpt_cuda_error(cuda_));
  }

  // For calls that only the device can fail: kIo, so that no caller blames a peer for the failure.
  Status of_device(ckpt_status status) const {
    if (status == CKPT_OK) return {};
    return make_error(ErrorCode::kIo, "device {}: {}", device_.name(), ckpt_cuda_error(cuda_));
  }

  Device& device_;
  ckpt_cuda* cuda_ = nullptr;
  std::function<void()> work_;
  Tensor from_host_;
  std::set<uint32_t> from_host_units_;                  // units with a copy in from_host_
  std::set<uint32_t> waited_for_;                       // units waited for since the last staging
  uint64_t staged_ = 0;                                 // snapshots so far
  std::map<const ckpt_snapshot*, uint64_t> number_of_;  // of snapshots in flight
  std::map<uint64_t, client::Snapshot> retired_;
};

}  // namespace

Result<std::unique_ptr<DeviceLink>> make_cuda_link(client::Session& session, Device& device,
                                                   uint32_t timeout_ms) {
  auto link = std::make_unique<CudaLink>(device);
  CKPT_TRY(link->open(session, timeout_ms));
  return std::unique_ptr<DeviceLink>(std::move(link));
}

}  // namespace moetrain

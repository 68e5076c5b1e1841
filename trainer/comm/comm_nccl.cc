#include "trainer/comm/comm_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>

#include "trainer/comm/device_collectives.h"
#include "trainer/device/cuda_device.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

using Clock = std::chrono::steady_clock;

// NCCL works in its own threads, so its state is polled, first without a pause: usually the work is
// done soon, and every collective of a step waits here.
constexpr std::chrono::microseconds kBusyPoll{200};
constexpr std::chrono::microseconds kPollPause{50};
constexpr const char* kIdKey = "nccl-id";
constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
// Timeout of a normal end, in which peers finish queued work; after it: abort.
constexpr uint32_t kFinishMs = 5'000;

// CMake checked the header's version; the loaded library may be another one.
Status check_version() {
  constexpr int kNeeded = NCCL_VERSION(2, 14, 0);
  int version = 0;
  const ncclResult_t asked = ncclGetVersion(&version);
  if (asked == ncclSuccess && version >= kNeeded) return {};
  return make_error(ErrorCode::kFailedPrecondition,
                    "NCCL: version {}.{} is loaded, 2.14 or later is needed", version / 10'000,
                    version / 100 % 100);
}

// Error code of an NCCL failure. A failed connection may be due to a dead peer: the next epoch
// tries again. Anything else that NCCL cannot do here will fail in the next epoch, too.
ErrorCode code_of(ncclResult_t state) {
  const bool peer_failed = state == ncclRemoteError || state == ncclSystemError;
  return peer_failed ? ErrorCode::kUnavailable : ErrorCode::kFailedPrecondition;
}

Result<ncclUniqueId> exchange_id(uint32_t rank, const Rendezvous& rendezvous) {
  ncclUniqueId id{};
  if (rank == 0) {
    const ncclResult_t drawn = ncclGetUniqueId(&id);
    if (drawn != ncclSuccess) {
      return make_error(code_of(drawn), "NCCL: drawing an id: {}", ncclGetErrorString(drawn));
    }
    CKPT_TRY(rendezvous.set(kIdKey, std::vector<char>(id.internal, id.internal + sizeof id)));
    return id;
  }
  CKPT_ASSIGN(const std::vector<char> bytes, rendezvous.get(kIdKey));
  if (bytes.size() != sizeof id) {
    return make_error(ErrorCode::kCorrupt, "key {}: {} bytes, an id of NCCL has {}", kIdKey,
                      bytes.size(), sizeof id);
  }
  std::memcpy(&id, bytes.data(), sizeof id);
  return id;
}

class NcclComm final : public Comm {
 public:
  NcclComm(std::unique_ptr<Comm> host, Device* device, uint32_t timeout_ms)
      : host_(std::move(host)), device_(device), timeout_ms_(timeout_ms) {}
  // After a failure everything has been ended before.
  ~NcclComm() override { finish(); }

  // Does not keep the options: their callbacks may live no longer than this call.
  Status connect(const NcclOptions& options) {
    CKPT_ASSIGN(const ncclUniqueId id, exchange_id(rank(), options.rendezvous));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun = [&] {
      const std::lock_guard lock(mutex_);
      return ncclCommInitRankConfig(&comm_, static_cast<int>(size()), id, static_cast<int>(rank()),
                                    &config);
    }();
    CKPT_TRY(await("connecting", begun, options.connect_timeout_ms, options.interrupted));
    connected_ = true;
    return {};
  }

  uint32_t rank() const override { return host_->rank(); }
  uint32_t size() const override { return host_->size(); }

  Status all_reduce_sum(std::span<float> values) override {
    return on_host([&] { return host_->all_reduce_sum(values); });
  }
  Status all_reduce_sum(std::span<double> values) override {
    return on_host([&] { return host_->all_reduce_sum(values); });
  }
  Status all_reduce_sum(std::span<int64_t> values) override {
    return on_host([&] { return host_->all_reduce_sum(values); });
  }
  Status all_reduce_max(std::span<int64_t> values) override {
    return on_host([&] { return host_->all_reduce_max(values); });
  }
  Status all_to_all_v(std::span<const float> send, std::span<const int64_t> send_counts,
                      std::span<float> recv, std::span<const int64_t> recv_counts) override {
    return on_host([&] { return host_->all_to_all_v(send, send_counts, recv, recv_counts); });
  }
  Status all_to_all_v(std::span<const int64_t> send, std::span<const int64_t> send_counts,
                      std::span<int64_t> recv, std::span<const int64_t> recv_counts) override {
    return on_host([&] { return host_->all_to_all_v(send, send_counts, recv, recv_counts); });
  }
  Status all_to_all_v(std::span<const std::byte> send, std::span<const int64_t> send_counts,
                      std::span<std::byte> recv, std::span<const int64_t> recv_counts) override {
    return on_host([&] { return host_->all_to_all_v(send, send_counts, recv, recv_counts); });
  }
  Status all_gather(std::span<const int64_t> send, std::span<int64_t> recv) override {
    return on_host([&] { return host_->all_gather(send, recv); });
  }
  Status broadcast(std::span<float> values, uint32_t root) override {
    return on_host([&] { return host_->broadcast(values, root); });
  }
  Status broadcast(std::span<int64_t> values, uint32_t root) override {
    return on_host([&] { return host_->broadcast(values, root); });
  }
  Status barrier() override {
    return on_host([&] { return host_->barrier(); });
  }
  int64_t waited_ns() const override { return host_->waited_ns(); }

  Status all_reduce_sum(Tensor& values) override {
    if (values.empty() || values.device()->is_host()) {
      return on_host([&] { return host_->all_reduce_sum(values); });
    }
    return queue("all_reduce", [&](ncclComm_t comm) {
      return in_group([&](const auto& note) {
        note(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat, ncclSum, comm,
                           stream()));
      });
    });
  }

  Status all_to_all_v(const Tensor& send, std::span<const int64_t> send_counts, Tensor& recv,
                      std::span<const int64_t> recv_counts) override {
    if (device_ != send.device() && device_ != recv.device()) {
      return on_host([&] { return host_->all_to_all_v(send, send_counts, recv, recv_counts); });
    }
    return queue("all_to_all_v", [&](ncclComm_t comm) {
      return send_and_receive(comm, send, send_counts, recv, recv_counts);
    });
  }

  void abort(const std::string& reason) override { end_both(reason); }

 private:
  CUstream_st* stream() { return cuda_queue(*device_).stream(); }

  // A collective on the host. Not after a failure of NCCL, which may have left garbage on the GPU.
  // If peers are lost, the GPU must not wait for them either.
  template <typename Call>
  Status on_host(const Call& call) {
    CKPT_TRY(check_sound());
    Status status = call();
    if (!status.ok()) end(status.error().message);
    return status;
  }

  // Checks once for failures since a collective was queued.
  Status check_sound() {
    ncclResult_t state = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return make_error(ErrorCode::kAborted, "rank {}: {}", rank(), *ended_);
      if (comm_ == nullptr) return {};
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
      if (asked != ncclSuccess) state = asked;
    }
    if (state == ncclSuccess || state == ncclInProgress) return {};
    return failed("after a collective", state);
  }

  Status failed(const char* what, ncclResult_t state) {
    const std::string reason = reason_of(state);
    end_both(reason);
    // NCCL connects some peers only at their first exchange, and then reports a death in many ways.
    const ErrorCode code = connected_ ? ErrorCode::kUnavailable : code_of(state);
    return make_error(code, "rank {} {}: NCCL: {}", rank(), what, reason);
  }

  // Runs NCCL calls as one group. Outside of a group, a call on a non-blocking communicator may
  // return ncclSuccess before its work is in the stream; ncclGroupEnd returns ncclInProgress then.
  template <typename Calls>
  static ncclResult_t in_group(const Calls& calls) {
    ncclResult_t first = ncclGroupStart();
    calls([&](ncclResult_t result) {
      if (first == ncclSuccess && result != ncclInProgress) first = result;
    });
    const ncclResult_t ended = ncclGroupEnd();
    return first == ncclSuccess ? ended : first;
  }

  // Each rank sends to and receives from everyone at once, itself included.
  ncclResult_t send_and_receive(ncclComm_t comm, const Tensor& send,
                                std::span<const int64_t> send_counts, Tensor& recv,
                                std::span<const int64_t> recv_counts) {
    const size_t element = bytes_of(recv.type());
    return in_group([&](const auto& note) {
      const std::byte* from = send.data();
      std::byte* to = recv.data();
      for (uint32_t peer = 0; peer < size(); ++peer) {
        const size_t sent = static_cast<size_t>(send_counts[peer]) * element;
        const size_t received = static_cast<size_t>(recv_counts[peer]) * element;
        const auto rank = static_cast<int>(peer);
        if (sent > 0) note(ncclSend(from, sent, ncclInt8, rank, comm, stream()));
        if (received > 0) note(ncclRecv(to, received, ncclInt8, rank, comm, stream()));
        from += sent;
        to += received;
      }
    });
  }

  // Queues a collective on the device, behind earlier work. Not after a failure of the device: an
  // allocation that failed is a null pointer, which NCCL would accept.
  template <typename Call>
  Status queue(const char* collective, const Call& call) {
    if (cuda_queue(*device_).failed()) {
      Status failure = device_->synchronize();
      end_both(failure.error().message);
      return failure;
    }
    const ncclResult_t begun = [&] {
      const std::lock_guard lock(mutex_);
      return comm_ == nullptr ? ncclInvalidUsage : call(comm_);
    }();
    return await(collective, begun, timeout_ms_, {});
  }

  // Waits until NCCL has finished the call. Polls even after success, which refers to the call only
  // and may come before its work is in the stream. After a failure both communicators are ended.
  Status await(const char* what, ncclResult_t state, uint32_t timeout_ms,
               const std::function<std::optional<std::string>()>& interrupted) {
    const auto begin = Clock::now();
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (ended_) {
          return make_error(ErrorCode::kAborted, "rank {} {}: {}", rank(), what, *ended_);
        }
        if (state == ncclSuccess || state == ncclInProgress) {
          const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
          if (asked != ncclSuccess) state = asked;
        }
      }
      if (state == ncclSuccess) return {};
      if (state != ncclInProgress) return failed(what, state);
      if (const auto why = interrupted ? interrupted() : std::nullopt) {
        end_both(*why);
        return make_error(ErrorCode::kAborted, "rank {} {}: {}", rank(), what, *why);
      }
      const auto waited = Clock::now() - begin;
      if (waited > std::chrono::milliseconds(timeout_ms)) {
        end_both(fmt::format("{} took too long", what));
        return make_error(ErrorCode::kDeadlineExceeded, "rank {} {}: NCCL is not done after {} ms",
                          rank(), what, timeout_ms);
      }
      if (waited > kBusyPoll) std::this_thread::sleep_for(kPollPause);
    }
  }

  // NCCL's error text, and its last log lines.
  std::string reason_of(ncclResult_t state) {
    const std::lock_guard lock(mutex_);
    const char* const detail = ncclGetLastError(comm_);
    const bool has_detail = detail != nullptr && *detail != '\0';
    return fmt::format("{}{}{}", ncclGetErrorString(state), has_detail ? ": " : "",
                       has_detail ? detail : "");
  }

  // Aborts the host's first: a rank that reads garbage left by an abort on the GPU must fail there.
  void end_both(const std::string& reason) {
    host_->abort(reason);
    end(reason);
  }

  // Ends queued work and all later calls. Any thread; the first reason counts. NCCL may wait for
  // its own threads in an abort, so no lock is held meanwhile.
  void end(const std::string& reason) {
    ncclComm_t comm = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (!ended_) ended_ = reason;
      comm = std::exchange(comm_, nullptr);
    }
    if (comm != nullptr) (void)ncclCommAbort(comm);
  }

  // A normal end: queued work completes, then NCCL closes its connections. If a peer does not
  // finish, await() aborts.
  void finish() {
    ncclResult_t begun = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return;
      begun = ncclCommFinalize(comm_);
    }
    if (!await("finishing", begun, std::min(timeout_ms_, kFinishMs), {}).ok()) return;
    (void)ncclCommDestroy(std::exchange(comm_, nullptr));  // no wait is left
  }

  const std::unique_ptr<Comm> host_;
  Device* const device_;
  const uint32_t timeout_ms_;
  bool connected_ = false;
  std::mutex mutex_;  // protects the following; held for calls that do not wait
  ncclComm_t comm_ = nullptr;
  std::optional<std::string> ended_;
};

}  // namespace

bool has_nccl() { return true; }

Result<uint64_t> nccl_gpu(Device& device) {
  CKPT_TRY(check_version());
  CKPT_ASSIGN(const std::string bus_id, pci_bus_id(device));
  std::string boot_id;
  if (!std::getline(std::ifstream(kBootId), boot_id) || boot_id.empty()) {
    return make_error(ErrorCode::kUnavailable, "{}: cannot be read", kBootId);
  }
  return gpu_identity(boot_id, bus_id);
}

Result<std::unique_ptr<Comm>> make_nccl_comm(std::unique_ptr<Comm> host,
                                             const NcclOptions& options) {
  CKPT_TRY(check_version());
  auto comm = std::make_unique<NcclComm>(std::move(host), options.device, options.timeout_ms);
  CKPT_TRY(comm->connect(options));
  return std::unique_ptr<Comm>(std::move(comm));
}

}  // namespace moetrain

// libckpt_cuda for C++17 and later, like client.hpp for libckpt: header only, nothing throws.
//
//   auto cuda = ckpt::client::Cuda::open(*session);
//   cuda->restore(view, {{unit, 0, weights, bytes}}, stream);
//   ...
//   cuda->stage(*snapshot, {{unit, 0, weights, bytes}}, stream);
//   cuda->wait_gathered(CKPT_CUDA_ALL_UNITS, stream);  // before the optimizer writes
//   cuda->poll();                                      // now and then
#ifndef CKPT_CLIENT_CUDA_HPP_
#define CKPT_CLIENT_CUDA_HPP_

#include <ckpt/ckpt_cuda.h>

#include <ckpt/client.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ckpt::client {

// The fields have the same meaning as in ckpt_cuda.h.
struct CudaOptions {
  int device = 0;
  uint64_t gather_bytes = 0;
  uint64_t chunk_bytes = 0;
  uint32_t timeout_ms = 0;
  uint64_t ahead_bytes = 0;
  uint64_t direct_bytes = 0;
  std::function<void(uint64_t pinned, uint64_t total)> pinning;  // not after Cuda::open
};

// How the session's arena was pinned.
struct CudaPinInfo {
  uint64_t bytes = 0;
  uint64_t ns = 0;
  int numa_node = -1;
  bool on_numa_node = false;
};

// Sources of the last restore's bytes.
struct CudaRestoreInfo {
  uint64_t bytes_arena = 0;
  uint64_t bytes_direct = 0;
  std::string reason;  // why cuFile was not used although requested; empty: no reason
};

// Moves state between a session's arena and a GPU. Destroy before the Session, and before the
// Snapshots that are still being staged: the destructor aborts those.
class Cuda {
 public:
  static Outcome<Cuda> open(const Session& session, const CudaOptions& options = {}) {
    ckpt_cuda_options raw{};
    raw.struct_size = sizeof raw;
    raw.device = options.device;
    raw.gather_bytes = options.gather_bytes;
    raw.chunk_bytes = options.chunk_bytes;
    raw.timeout_ms = options.timeout_ms;
    raw.ahead_bytes = options.ahead_bytes;
    raw.direct_bytes = options.direct_bytes;
    if (options.pinning) {
      raw.pinning = [](void* user, uint64_t pinned, uint64_t total) {
        static_cast<const CudaOptions*>(user)->pinning(pinned, total);
      };
      raw.pinning_user = const_cast<CudaOptions*>(&options);
    }
    ckpt_cuda* handle = nullptr;
    char message[1024] = "";
    const ckpt_status status =
        ckpt_cuda_open(session.handle(), &raw, &handle, message, sizeof message);
    if (status != CKPT_OK) return Error{status, message};
    return Cuda(handle);
  }

  Outcome<void> stage(const Snapshot& snapshot, const std::vector<ckpt_cuda_piece>& pieces,
                      CUstream_st* stream) {
    return check(
        ckpt_cuda_stage(handle_.get(), snapshot.handle(), pieces.data(), pieces.size(), stream));
  }
  Outcome<void> wait_gathered(uint32_t unit, CUstream_st* stream) {
    return check(ckpt_cuda_wait_gathered(handle_.get(), unit, stream));
  }
  // With ahead_bytes: call this wherever the trainer waits for its device anyway.
  void advance() { ckpt_cuda_advance(handle_.get()); }
  // Number of snapshots still being staged.
  Outcome<size_t> poll() {
    size_t open = 0;
    const ckpt_status status = ckpt_cuda_poll(handle_.get(), &open);
    if (status != CKPT_OK) return failed(status);
    return open;
  }
  Outcome<void> drain(uint32_t timeout_ms) {
    return check(ckpt_cuda_drain(handle_.get(), timeout_ms));
  }

  // Fills every destination's `data`; one answer per destination.
  Outcome<std::vector<Restored>> restore(const RestoreOptions& options,
                                         const std::vector<ckpt_cuda_destination>& destinations,
                                         CUstream_st* stream) {
    const ckpt_restore_options raw = detail::raw_options(options);
    std::vector<ckpt_restored> answers(destinations.size());
    const ckpt_status status = ckpt_cuda_restore(handle_.get(), &raw, destinations.data(),
                                                 destinations.size(), answers.data(), stream);
    if (status != CKPT_OK) return failed(status);
    return detail::from_raw(answers);
  }

  // Frees the device memory that restores keep for the next restore.
  Outcome<void> trim() { return check(ckpt_cuda_trim(handle_.get())); }

  CudaPinInfo pinned() const {
    ckpt_cuda_pin_info raw{};
    raw.struct_size = sizeof raw;
    (void)ckpt_cuda_pinned(handle_.get(), &raw);
    return {raw.bytes, raw.ns, raw.numa_node, raw.on_numa_node != 0};
  }
  CudaRestoreInfo last_restore() const {
    ckpt_cuda_restore_info raw{};
    raw.struct_size = sizeof raw;
    (void)ckpt_cuda_last_restore(handle_.get(), &raw);
    return {raw.bytes_arena, raw.bytes_direct, raw.reason != nullptr ? raw.reason : ""};
  }

  ckpt_cuda* handle() const { return handle_.get(); }

 private:
  struct Close {
    void operator()(ckpt_cuda* cuda) const { (void)ckpt_cuda_close(cuda); }
  };
  explicit Cuda(ckpt_cuda* handle) : handle_(handle) {}
  Error failed(ckpt_status status) const { return {status, ckpt_cuda_error(handle_.get())}; }
  Outcome<void> check(ckpt_status status) const {
    if (status == CKPT_OK) return {};
    return failed(status);
  }
  std::unique_ptr<ckpt_cuda, Close> handle_;
};

}  // namespace ckpt::client

#endif  // CKPT_CLIENT_CUDA_HPP_

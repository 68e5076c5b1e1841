// The C ABI of libckpt_cuda.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

#include "client/src/cuda/stager.h"

struct ckpt_cuda {
  std::unique_ptr<ckpt::lib::Stager> stager;
};

namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Status;
using ckpt::lib::Stager;

// Runs a call on the stager's device. No exception crosses the C ABI: there are none but for
// memory.
template <typename Body>
ckpt_status run(ckpt_cuda* cuda, Body body) {
  const ckpt::kernels::CudaDeviceScope scope(cuda->stager->device());
  Status status;
  try {
    status = body(*cuda->stager);
  } catch (const std::exception& error) {
    status = make_error(ErrorCode::kResourceExhausted, "out of memory: {}", error.what());
  }
  if (status.ok()) return CKPT_OK;
  cuda->stager->error_text = status.error().message;
  return static_cast<ckpt_status>(status.error().code);
}

// Whatever a caller's struct of another version has; the rest is zero.
ckpt_cuda_options copy_options(const ckpt_cuda_options* from) {
  ckpt_cuda_options options{};
  if (from != nullptr) std::memcpy(&options, from, std::min(from->struct_size, sizeof options));
  return options;
}

}  // namespace

ckpt_status ckpt_cuda_open(ckpt_session* session, const ckpt_cuda_options* options,
                           ckpt_cuda** cuda, char* error, size_t error_bytes) {
  if (session == nullptr || cuda == nullptr) return CKPT_E_INVALID_ARGUMENT;
  *cuda = nullptr;
  const ckpt_cuda_options given = copy_options(options);
  Stager::Options wanted{.device = given.device};
  if (given.gather_bytes != 0) wanted.gather_bytes = given.gather_bytes;
  if (given.chunk_bytes != 0) wanted.chunk_bytes = given.chunk_bytes;
  if (given.timeout_ms != 0) wanted.timeout_ms = given.timeout_ms;
  const ckpt::kernels::CudaDeviceScope scope(wanted.device);
  auto opened = Stager::open(session, wanted);
  if (opened.ok()) {
    *cuda = new ckpt_cuda{std::move(opened).value()};
    return CKPT_OK;
  }
  if (error != nullptr && error_bytes > 0) {
    std::snprintf(error, error_bytes, "%s", opened.error().message.c_str());
  }
  return static_cast<ckpt_status>(opened.error().code);
}

void ckpt_cuda_close(ckpt_cuda* cuda) {
  if (cuda == nullptr) return;
  const ckpt::kernels::CudaDeviceScope scope(cuda->stager->device());
  delete cuda;
}

const char* ckpt_cuda_error(const ckpt_cuda* cuda) { return cuda->stager->error_text.c_str(); }

ckpt_status ckpt_cuda_stage(ckpt_cuda* cuda, ckpt_snapshot* snapshot, const ckpt_cuda_piece* pieces,
                            size_t count, CUstream_st* stream) {
  return run(cuda, [&](Stager& stager) -> Status {
    if (snapshot == nullptr || (pieces == nullptr && count > 0)) {
      return make_error(ErrorCode::kInvalidArgument, "snapshot or pieces is NULL");
    }
    return stager.stage(snapshot, {pieces, pieces + count}, stream);
  });
}

ckpt_status ckpt_cuda_wait_gathered(ckpt_cuda* cuda, uint32_t unit, CUstream_st* stream) {
  return run(cuda, [&](Stager& stager) { return stager.wait_gathered(unit, stream); });
}

ckpt_status ckpt_cuda_poll(ckpt_cuda* cuda, size_t* open) {
  return run(cuda, [&](Stager& stager) {
    Status polled = stager.poll();
    if (open != nullptr) *open = stager.open_count();
    return polled;
  });
}

ckpt_status ckpt_cuda_drain(ckpt_cuda* cuda, uint32_t timeout_ms) {
  return run(cuda, [&](Stager& stager) { return stager.drain(timeout_ms); });
}

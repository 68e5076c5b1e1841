// The C ABI of libckpt_cuda.
#include <ckpt/ckpt_direct.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "client/src/cuda/capture_scope.h"
#include "client/src/cuda/direct_restore.h"
#include "client/src/cuda/restore_buffers.h"
#include "client/src/cuda/restorer.h"
#include "client/src/cuda/stager.h"
#include "client/src/out_of_memory.h"
#include "kernels/cuda/abandoned.h"

struct ckpt_cuda {
  ckpt_cuda(ckpt_session* of, const ckpt::lib::Stager::Options& with)
      : session(of),
        options(with),
        arena(of, {.device = with.device, .part_bytes = ckpt::lib::ArenaPinning::kPartBytes}) {}
  ckpt_session* const session;
  const ckpt::lib::Stager::Options options;
  ckpt::lib::PinnedArena arena;
  std::unique_ptr<ckpt::lib::Stager> stager;
  ckpt::lib::CuFileOnDemand cufile;
  std::unique_ptr<ckpt::lib::RestoreBuffers> buffers;  // from the first restore until the next trim
  std::unique_ptr<ckpt::lib::Restorer> stranded;  // of a failed restore that the device still uses
  ckpt::lib::Restorer::Outcome outcome;           // of the last restore
  std::string error_text;                         // of the last call
};

namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Status;
using ckpt::lib::check_not_capturing;
using ckpt::lib::check_reachable;
using ckpt::lib::direct_mode;
using ckpt::lib::RestoreBuffers;
using ckpt::lib::Restorer;
using ckpt::lib::session_status;
using ckpt::lib::Stager;

constexpr uint32_t kTimeoutMs = 60'000;

// Scope of every call into CUDA: makes the session's device the thread's current one, and protects
// CUDA graph captures of any thread. The device comes first, since a call of CUDA may open a
// context on the current device.
struct EntryScope {
  explicit EntryScope(int number) : device(number) {}
  const ckpt::kernels::CudaDeviceScope device;
  const ckpt::lib::CaptureScope beside_captures;
};

// No exception crosses the C ABI: the only possible one is std::bad_alloc.
template <typename Body>
Status guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ckpt::Error{ErrorCode::kResourceExhausted, ckpt::lib::kOutOfMemory};
  }
}

// Runs a call, and keeps the error message of a failed one.
template <typename Body>
ckpt_status run(ckpt_cuda* cuda, Body body) {
  const EntryScope scope(cuda->options.device);
  Status status = guarded(body);
  if (status.ok()) return CKPT_OK;
  ckpt::Error error = std::move(status).error();
  cuda->error_text = std::move(error.message);
  return static_cast<ckpt_status>(error.code);
}

// The fields that the caller's struct, of any version, has; the rest is zero.
template <typename Options>
Options copy_options(const Options* from) {
  Options options{};
  if (from != nullptr) std::memcpy(&options, from, std::min(from->struct_size, sizeof options));
  return options;
}

Stager::Options stager_options(const ckpt_cuda_options& given) {
  Stager::Options options{.device = given.device, .timeout_ms = kTimeoutMs};
  if (given.gather_bytes != 0) options.gather_bytes = given.gather_bytes;
  if (given.timeout_ms != 0) options.timeout_ms = given.timeout_ms;
  options.chunk_bytes = given.chunk_bytes;
  options.ahead_bytes = given.ahead_bytes;
  options.direct_bytes = given.direct_bytes;
  return options;
}

ckpt::lib::ArenaPinning::Progress told_to(const ckpt_cuda_options& options) {
  if (options.pinning == nullptr) return {};
  return [tell = options.pinning, user = options.pinning_user](uint64_t pinned, uint64_t total) {
    tell(user, pinned, total);
  };
}

// A refusal aborts the snapshot, like every failure of ckpt_cuda_stage.
Status check_stream_of(ckpt_snapshot* snapshot, CUstream_st* stream) {
  Status checked = check_not_capturing(stream, "ckpt_cuda_stage");
  if (!checked.ok()) (void)ckpt_snapshot_abort(snapshot, checked.error().message.c_str());
  return checked;
}

struct FreeRestore {
  void operator()(ckpt_restore* restore) const { ckpt_restore_free(restore); }
};

Status begin_restore(const ckpt_cuda& cuda, const ckpt_restore_options& options,
                     const std::vector<ckpt_cuda_destination>& destinations,
                     std::unique_ptr<ckpt_restore, FreeRestore>& restore) {
  std::vector<ckpt_range> ranges;
  ranges.reserve(destinations.size());
  for (const ckpt_cuda_destination& to : destinations) {
    CKPT_TRY(check_reachable(cuda.options.device, to.unit, to.offset, to.data, to.length));
    ranges.push_back({to.unit, to.offset, to.length, nullptr});
  }
  ckpt_restore* begun = nullptr;
  CKPT_TRY(session_status(cuda.session, ckpt_restore_begin(cuda.session, &options, ranges.data(),
                                                           ranges.size(), &begun)));
  restore.reset(begun);
  return ckpt::ok_status();
}

Status check_stranded_idle(ckpt_cuda& cuda) {
  if (cuda.stranded == nullptr) return ckpt::ok_status();
  const Status idle = cuda.stranded->wait_until_idle(0);
  if (!idle.ok()) {
    return make_error(ErrorCode::kUnavailable, "an earlier restore still uses the device: {}",
                      idle.error().message);
  }
  cuda.stranded.reset();
  return ckpt::ok_status();
}

// Requests windows with files, if they are wanted and can be read.
Status request_files(ckpt_cuda& cuda, ckpt_restore_options& options, Restorer::Options& with) {
  CKPT_ASSIGN(const ckpt_direct direct, direct_mode(options));
  options.direct = direct;
  options.locate_bytes_max = 0;
  if (direct == CKPT_DIRECT_OFF) return ckpt::ok_status();
  with.cufile = cuda.cufile.get(with.device, with.timeout_ms);
  with.cufile_required = direct == CKPT_DIRECT_REQUIRED;
  if (with.cufile != nullptr) {
    options.locate_bytes_max = ckpt_slab_bytes(cuda.session);
    return ckpt::ok_status();
  }
  cuda.outcome.reason = cuda.cufile.why();
  if (!with.cufile_required) return ckpt::ok_status();
  return make_error(ErrorCode::kFailedPrecondition, "{}", cuda.outcome.reason);
}

// Records the outcome of the restorer, and the reason for not using cuFile.
void record_outcome(ckpt_cuda& cuda, const Restorer& restorer, const ckpt_restore* restore) {
  const std::string before = std::move(cuda.outcome.reason);
  cuda.outcome = restorer.outcome();
  const char* refused = ckpt_restore_not_located(restore);
  if (cuda.outcome.reason.empty()) cuda.outcome.reason = refused != nullptr ? refused : before;
}

Status restore_to_device(ckpt_cuda& cuda, const ckpt_restore_options* given,
                         const std::vector<ckpt_cuda_destination>& destinations,
                         ckpt_restored* restored, CUstream_st* stream) {
  cuda.outcome = {};
  CKPT_TRY(check_not_capturing(stream, "ckpt_cuda_restore"));
  CKPT_TRY(check_stranded_idle(cuda));
  ckpt_restore_options options = copy_options(given);
  options.struct_size = sizeof options;
  const uint32_t timeout_ms = options.timeout_ms != 0 ? options.timeout_ms : kTimeoutMs;
  Restorer::Options with{.device = cuda.options.device, .timeout_ms = timeout_ms, .cufile = {}};
  CKPT_TRY(request_files(cuda, options, with));
  std::unique_ptr<ckpt_restore, FreeRestore> restore;
  CKPT_TRY(begin_restore(cuda, options, destinations, restore));
  if (cuda.buffers == nullptr) {
    CKPT_ASSIGN(cuda.buffers, RestoreBuffers::make(with.device, cuda.options.timeout_ms));
  }
  auto restorer = std::make_unique<Restorer>(cuda.session, cuda.arena, *cuda.buffers, with);
  Status done = guarded([&] { return restorer->run(restore.get(), destinations, stream); });
  record_outcome(cuda, *restorer, restore.get());
  if (!done.ok()) {
    if (!restorer->wait_until_idle(timeout_ms).ok()) cuda.stranded = std::move(restorer);
    return done;
  }
  cuda.buffers->drop_outgrown();
  return session_status(cuda.session, ckpt_restore_end(restore.get(), restored));
}

}  // namespace

ckpt_status ckpt_cuda_open(ckpt_session* session, const ckpt_cuda_options* options,
                           ckpt_cuda** cuda, char* error, size_t error_bytes) {
  if (session == nullptr || cuda == nullptr) return CKPT_E_INVALID_ARGUMENT;
  *cuda = nullptr;
  const ckpt_cuda_options given = copy_options(options);
  const EntryScope scope(given.device);
  const Status opened = guarded([&]() -> Status {
    auto made = std::make_unique<ckpt_cuda>(session, stager_options(given));
    CKPT_TRY(made->arena.pin(told_to(given)));
    CKPT_ASSIGN(made->stager, Stager::open(session, made->arena, made->options));
    *cuda = made.release();
    return ckpt::ok_status();
  });
  if (opened.ok()) return CKPT_OK;
  if (error != nullptr && error_bytes > 0) {
    std::snprintf(error, error_bytes, "%s", opened.error().message.c_str());
  }
  return static_cast<ckpt_status>(opened.error().code);
}

ckpt_status ckpt_cuda_close(ckpt_cuda* cuda) {
  if (cuda == nullptr) return CKPT_OK;
  const EntryScope scope(cuda->options.device);
  delete cuda;
  return ckpt::kernels::any_abandoned() ? CKPT_E_DEADLINE_EXCEEDED : CKPT_OK;
}

const char* ckpt_cuda_error(const ckpt_cuda* cuda) { return cuda->error_text.c_str(); }

ckpt_status ckpt_cuda_stage(ckpt_cuda* cuda, ckpt_snapshot* snapshot, const ckpt_cuda_piece* pieces,
                            size_t count, CUstream_st* stream) {
  return run(cuda, [&]() -> Status {
    if (snapshot == nullptr || (pieces == nullptr && count > 0)) {
      return make_error(ErrorCode::kInvalidArgument, "snapshot or pieces is NULL");
    }
    CKPT_TRY(check_stream_of(snapshot, stream));
    return cuda->stager->stage(snapshot, {pieces, count}, stream);
  });
}

ckpt_status ckpt_cuda_wait_gathered(ckpt_cuda* cuda, uint32_t unit, CUstream_st* stream) {
  return run(cuda, [&]() -> Status {
    CKPT_TRY(check_not_capturing(stream, "ckpt_cuda_wait_gathered"));
    return cuda->stager->wait_gathered(unit, stream);
  });
}

void ckpt_cuda_advance(ckpt_cuda* cuda) {
  if (!cuda->stager->is_active()) return;
  const EntryScope scope(cuda->options.device);
  cuda->stager->advance();
}

ckpt_status ckpt_cuda_poll(ckpt_cuda* cuda, size_t* open) {
  return run(cuda, [&] {
    Status polled = cuda->stager->poll();
    if (open != nullptr) *open = cuda->stager->open_count();
    return polled;
  });
}

ckpt_status ckpt_cuda_drain(ckpt_cuda* cuda, uint32_t timeout_ms) {
  return run(cuda, [&] { return cuda->stager->drain(timeout_ms); });
}

ckpt_status ckpt_cuda_restore(ckpt_cuda* cuda, const ckpt_restore_options* options,
                              const ckpt_cuda_destination* destinations, size_t count,
                              ckpt_restored* restored, CUstream_st* stream) {
  return run(cuda, [&]() -> Status {
    if (destinations == nullptr && count > 0) {
      return make_error(ErrorCode::kInvalidArgument, "destinations is NULL");
    }
    return restore_to_device(*cuda, options, {destinations, destinations + count}, restored,
                             stream);
  });
}

ckpt_status ckpt_cuda_last_restore(const ckpt_cuda* cuda, ckpt_cuda_restore_info* info) {
  if (info == nullptr) return CKPT_E_INVALID_ARGUMENT;
  const Restorer::Outcome& outcome = cuda->outcome;
  ckpt_cuda_restore_info out{};
  out.struct_size = info->struct_size;
  out.bytes_arena = outcome.bytes_arena;
  out.bytes_direct = outcome.bytes_direct;
  out.reason = outcome.reason.empty() ? nullptr : outcome.reason.c_str();
  std::memcpy(info, &out, std::min(info->struct_size, sizeof out));
  return CKPT_OK;
}

ckpt_status ckpt_cuda_trim(ckpt_cuda* cuda) {
  return run(cuda, [&]() -> Status {
    CKPT_TRY(check_stranded_idle(*cuda));
    cuda->buffers.reset();
    return ckpt::ok_status();
  });
}

ckpt_status ckpt_cuda_pinned(const ckpt_cuda* cuda, ckpt_cuda_pin_info* info) {
  if (info == nullptr) return CKPT_E_INVALID_ARGUMENT;
  const ckpt::lib::ArenaPinning::Stats& stats = cuda->arena.newest()->stats();
  ckpt_cuda_pin_info out{};
  out.struct_size = info->struct_size;
  out.bytes = stats.bytes;
  out.ns = stats.ns;
  out.numa_node = stats.numa_node;
  out.on_numa_node = stats.is_near ? 1 : 0;
  std::memcpy(info, &out, std::min(info->struct_size, sizeof out));
  return CKPT_OK;
}

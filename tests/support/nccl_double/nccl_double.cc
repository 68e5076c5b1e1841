// NCCL for the emulated device: ranks are threads or processes, each with a device of its own. See
// exchange.h for the exchange between ranks.
//
// After an abort the aborted rank's work is done at once and moves nothing. Work of its peers stays
// until they abort as well, as on GPUs. A communicator is finalized before it is destroyed, and not
// used in between. The finalization is in progress while its stream has work of it.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/support/nccl_double/exchange.h"

namespace nccl_double {

using cuda_emulator::Lock;
using cuda_emulator::lock;

namespace {

// Work of the calling thread that ncclGroupEnd() will queue.
thread_local int group_depth = 0;
thread_local std::optional<Share> grouped;
thread_local ncclComm* grouped_of = nullptr;
thread_local cudaStream_t grouped_on = nullptr;

ncclResult_t wrong(const char* what) {
  ++control().wrong_calls;
  std::fprintf(stderr, "nccl_double: %s\n", what);
  return ncclInvalidUsage;
}

// Begins a call. Returns success if the call is done already.
ncclResult_t begin(ncclComm& comm, std::function<void()> work, std::function<bool()> can_begin) {
  if (comm.begun) return wrong("the last call is still in progress");
  if (comm.finalized) return wrong("a communicator that was finalized");
  comm.begun = std::move(work);
  comm.can_begin = std::move(can_begin);
  comm.asks_left = control().asks;
  ncclResult_t state = ncclInProgress;
  const bool at_once = comm.asks_left == 0 && !control().stalls;
  if (at_once) (void)ncclCommGetAsyncError(&comm, &state);
  return state == ncclInProgress && control().claims_success ? ncclSuccess : state;
}

ncclResult_t queue_share(ncclComm& comm, Share share, cudaStream_t stream) {
  if (comm.failed != ncclSuccess) return comm.failed;
  if (const ncclResult_t error = control().call_error) {
    comm.last_error = "as the test wanted";
    return error;
  }
  for (const Slice& slice : share.slices) {
    const bool null =
        (slice.sent > 0 && slice.from == nullptr) || (slice.received > 0 && slice.to == nullptr);
    if (null) return wrong("a null pointer");
  }
  if (stream == nullptr || stream->device != comm.member->device) {
    return wrong("a stream of another device");
  }
  comm.member->stream = stream;
  const auto work = [&comm, moved = std::move(share)] {
    queue(comm.member, moved);
    comm.progress.was_queued();
  };
  return begin(comm, work, {});
}

Slice& grouped_slice(ncclComm& comm, int peer, cudaStream_t stream) {
  if (!grouped) grouped.emplace().slices.resize(static_cast<size_t>(comm.member->ranks));
  grouped_of = &comm;
  grouped_on = stream;
  return grouped->slices[static_cast<size_t>(peer)];
}

// Removes a communicator whose handle is no longer used. The caller destroys it without the lock.
std::unique_ptr<ncclComm> remove(ncclComm_t comm) {
  leave(*comm->member);
  --control().communicators;
  return std::unique_ptr<ncclComm>(comm);
}

std::string current_gpu() {
  constexpr size_t kBytes = 64;
  std::string name(kBytes, '\0');
  if (cudaDeviceGetPCIBusId(name.data(), static_cast<int>(name.size()),
                            cuda_emulator::current_device()) != cudaSuccess) {
    die("the current device has no bus id");
  }
  return name.c_str();
}

// Finds ranks that share a GPU. To be called once all ranks have arrived.
void find_duplicates(ncclComm& comm, const std::string& gpu) {
  for (int peer = 0; peer < comm.member->ranks; ++peer) {
    if (peer == comm.member->rank || gpu_of(*comm.member, peer) != gpu) continue;
    comm.failed = ncclInvalidUsage;
    comm.last_error = "Duplicate GPU detected";
  }
}

bool fault_applies(const ncclComm& comm) {
  const int of = control().async_error_of;
  return control().async_error != ncclSuccess && (of < 0 || of == comm.member->rank);
}

}  // namespace

ncclResult_t error_of_the_environment() {
  const char* const number = std::getenv("NCCL_DOUBLE_ERROR");
  return number == nullptr ? ncclSuccess
                           : static_cast<ncclResult_t>(std::strtol(number, nullptr, 10));
}

Control& control() {
  static Control one;
  return one;
}

void reset() {
  const Lock hold(lock());
  Control& all = control();
  if (all.communicators != 0) die("reset while a communicator lives");
  all.version = NCCL_VERSION(2, 20, 5);
  for (auto* error : {&all.id_error, &all.call_error, &all.async_error}) *error = ncclSuccess;
  for (auto* count :
       {&all.asks, &all.stalled_asks, &all.aborts, &all.destroyed, &all.wrong_calls}) {
    *count = 0;
  }
  all.async_error_of = -1;
  all.stalls = all.aborts_wait = all.claims_success = false;
}

}  // namespace nccl_double

using nccl_double::control;
using nccl_double::Lock;
using nccl_double::lock;
using nccl_double::Share;

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
ncclResult_t ncclGetVersion(int* version) {
  *version = control().version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const ncclResult_t error = control().id_error) return error;
  const std::string mailbox = nccl_double::make_mailbox();
  if (mailbox.size() >= sizeof id->internal) nccl_double::die(mailbox + ": too long for an id");
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, mailbox.data(), mailbox.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const Lock hold(lock());
  if (config->blocking != 0) return nccl_double::wrong("calls that block");
  if (const ncclResult_t error = control().call_error) return error;
  *comm = new ncclComm(std::make_shared<nccl_double::Member>(
      nccl_double::Member{.mailbox = id.internal,
                          .rank = rank,
                          .ranks = ranks,
                          .device = cuda_emulator::current_device()}));
  ++control().communicators;
  const std::string gpu = nccl_double::current_gpu();
  nccl_double::arrive(*(*comm)->member, gpu);
  const auto joined = [member = (*comm)->member] { return nccl_double::all_joined(*member); };
  const auto connect = [handle = *comm, gpu] { nccl_double::find_duplicates(*handle, gpu); };
  return nccl_double::begin(**comm, connect, joined);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Lock hold(lock());
  const auto is_idle = [comm] { return comm->member->unfinished == 0; };
  const ncclResult_t begun = nccl_double::begin(
      *comm, [] {}, is_idle);
  comm->finalized = true;
  return begun;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::unique_ptr<ncclComm> gone;
  const Lock hold(lock());
  if (!comm->finalized || comm->begun) return nccl_double::wrong("destroyed, but not finalized");
  ++control().destroyed;
  gone = nccl_double::remove(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ++control().aborts;
  control().aborts_wait.wait(true);
  std::unique_ptr<ncclComm> gone;
  const Lock hold(lock());
  comm->member->aborted = true;
  gone = nccl_double::remove(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Lock hold(lock());
  *state = ncclInProgress;
  if (comm->begun) {
    if (control().stalls) {
      ++control().stalled_asks;
      return ncclSuccess;
    }
    if (comm->asks_left > 0) {
      --comm->asks_left;
      return ncclSuccess;
    }
    if (comm->can_begin && !comm->can_begin()) return ncclSuccess;
    std::exchange(comm->begun, nullptr)();
  }
  if (nccl_double::fault_applies(*comm)) {
    comm->failed = control().async_error;
    comm->last_error = "as the test wanted";
  }
  *state = comm->failed;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "another error";
  }
}
const char* ncclGetLastError(ncclComm_t comm) {
  return comm == nullptr ? "" : comm->last_error.c_str();
}

ncclResult_t ncclGroupStart() {
  ++nccl_double::group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const Lock hold(lock());
  if (nccl_double::group_depth == 0) return nccl_double::wrong("no group was started");
  if (--nccl_double::group_depth > 0 || !nccl_double::grouped) return ncclSuccess;
  Share share = std::move(*nccl_double::grouped);
  nccl_double::grouped.reset();
  return nccl_double::queue_share(*nccl_double::grouped_of, std::move(share),
                                  nccl_double::grouped_on);
}

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const Lock hold(lock());
  if (type != ncclFloat || op != ncclSum) return nccl_double::wrong("only sums of floats");
  // A sum outside of a group is rejected: it could not be told when its work is in the stream.
  if (nccl_double::group_depth == 0 || nccl_double::grouped) {
    return nccl_double::wrong("a sum that is not a group of its own");
  }
  Share& share = nccl_double::grouped.emplace();
  nccl_double::grouped_of = comm;
  nccl_double::grouped_on = stream;
  share.is_sum = true;
  const size_t bytes = count * sizeof(float);
  share.slices.push_back({.from = static_cast<const std::byte*>(send),
                          .to = static_cast<std::byte*>(recv),
                          .sent = bytes,
                          .received = bytes});
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  const Lock hold(lock());
  if (nccl_double::group_depth == 0 || type != ncclInt8) {
    return nccl_double::wrong("only bytes, in a group");
  }
  nccl_double::Slice& slice = nccl_double::grouped_slice(*comm, peer, stream);
  slice.from = static_cast<const std::byte*>(from);
  slice.sent = count;
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const Lock hold(lock());
  if (nccl_double::group_depth == 0 || type != ncclInt8) {
    return nccl_double::wrong("only bytes, in a group");
  }
  nccl_double::Slice& slice = nccl_double::grouped_slice(*comm, peer, stream);
  slice.to = static_cast<std::byte*>(to);
  slice.received = count;
  return ncclSuccess;
}
// NOLINTEND(readability-identifier-naming)

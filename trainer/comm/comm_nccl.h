// NCCL for data on GPUs, beside another communicator for data in host memory.
//
// A step's small numbers (counts of rows, losses, verdicts) go through the host's communicator, as
// on a CPU; rows and gradients go from GPU to GPU. A failure of either fails both.
//
// No rank applies results of a failed NCCL. A collective that NCCL ends early, by a remote error or
// an abort, looks complete to the stream, while all processes live: its result, and everything
// computed from it, is garbage. But the reason is known before the work ends: an abort aborts the
// host's communicator first, and NCCL records an error before it stops. A step reads a result from
// the device (its gradients' norm), so all of its work is done by then. The step ends with a
// collective on the host, before which each rank asks NCCL for errors. A rank that has read garbage
// finds an error and does not take part, and without it no other rank completes the step.
//
// A new epoch gets a new communicator, even if the group has only lost ranks: the old one is
// aborted. ncclCommShrink is not used. It needs NCCL 2.27. It cannot admit ranks, so the setup
// with a new id is needed anyway. And all survivors must call it on the old communicator in
// agreement, but they agree only once the new epoch is open.
#pragma once

#include "trainer/comm/comm.h"
#include "trainer/device/device.h"

namespace moetrain {

struct NcclOptions {
  Device* device = nullptr;  // this rank's own GPU; outlives the communicator
  Rendezvous rendezvous;     // carries the id that rank 0 draws; until make_nccl_comm returns
  // See GlooOptions; not called after make_nccl_comm has returned.
  std::function<std::optional<std::string>()> interrupted;
  uint32_t connect_timeout_ms = 20'000;  // for all ranks to connect
  uint32_t timeout_ms = 30'000;          // for a collective to be queued
};

// True if this program was built with NCCL.
bool has_nccl();

// Id of this rank's GPU for device_collectives.h; an error if NCCL cannot be used with the GPU:
// the program has no NCCL, or an older version than 2.14.
Result<uint64_t> nccl_gpu(Device& device);

// A communicator of the same group as `host`, which it owns. A collective. No call blocks without
// bound: NCCL is polled, and abort() from any thread also ends work queued on the GPU. Work that a
// dead peer leaves hanging there is otherwise bounded by the device's own timeout. The destructor
// waits for queued work, 5 s at most, unless the communicator has failed.
//
// Sums are NCCL's: the same bits on every rank and, on the same GPUs, from run to run; the order of
// ranks is unspecified. Errors: those of the rendezvous; kAborted with the reason of an
// interruption; kDeadlineExceeded. With NCCL's reason: kUnavailable, if a peer may be the cause, as
// always in a collective; kFailedPrecondition, if a retry would fail: two ranks on one GPU, an NCCL
// before 2.14. A program without NCCL returns `host` unchanged: device memory then travels through
// host memory.
Result<std::unique_ptr<Comm>> make_nccl_comm(std::unique_ptr<Comm> host,
                                             const NcclOptions& options);

}  // namespace moetrain

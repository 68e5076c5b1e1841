// NCCL for what lies on GPUs, beside another communicator for what lies in host memory.
//
// A step's small numbers (counts of rows, losses, verdicts) go through the host's communicator, as
// on a CPU; rows and gradients go from GPU to GPU. A failure of either is one of both.
//
// Nobody applies what a failed NCCL has left behind. A collective that NCCL ends early, by a remote
// error or an abort, looks to the stream as if it were done, while all processes live: its result
// is garbage, and what is computed from it. But the reason is known before the work ends: an abort
// aborts the host's communicator first, and NCCL notes an error before it gives up. A step reads
// from the device what it computed (its gradients' norm), so all of its work is done by then, and
// ends with a collective of the host's, before which each rank asks NCCL for errors. Whoever has
// read garbage finds one, does not take part, and without it no other rank comes out either.
//
// A new epoch gets a new communicator, also where the group has only lost ranks: the old one is
// aborted. ncclCommShrink is not used. It needs NCCL 2.27; it cannot let ranks in, so the way
// through a new id is there in any case; and all survivors must call it on the old communicator in
// agreement, which is known to them only once the new epoch is open.
#pragma once

#include "trainer/comm/comm.h"
#include "trainer/device/device.h"

namespace moetrain {

struct NcclOptions {
  Device* device = nullptr;  // this rank's own GPU; outlives the communicator
  Rendezvous rendezvous;     // carries the id that rank 0 draws; until make_nccl_comm returns
  // As in GlooOptions, and no longer than the rendezvous.
  std::function<std::optional<std::string>()> interrupted;
  uint32_t connect_timeout_ms = 20'000;  // for all ranks to have come
  uint32_t timeout_ms = 30'000;          // for a collective to be queued
};

// Whether this program was built with NCCL.
bool has_nccl();

// What identifies the GPU of this rank to device_collectives.h; an error if NCCL cannot be used
// with it: there is none in this program, or none that is new enough (2.14).
Result<uint64_t> nccl_gpu(Device& device);

// The group of `host`, which it takes over. A collective. Nothing blocks without a bound: NCCL is
// asked again and again, and abort() from any thread ends what is queued on the GPU, too. What a
// dead peer leaves hanging there is otherwise bounded by the device's own timeout. Its end waits
// for what is queued, 5 s at most, unless it has failed.
//
// Sums are NCCL's: the same bits on every rank and, on the same GPUs, from run to run; the order of
// ranks is not promised. Errors: those of the rendezvous; kAborted with the reason of an
// interruption; kDeadlineExceeded; with NCCL's reason kUnavailable, if a peer may be it, as of a
// collective always, and kFailedPrecondition, if it would fail again: two ranks on one GPU, an NCCL
// before 2.14. A program without NCCL returns `host` as it is: then device memory travels through
// host memory.
Result<std::unique_ptr<Comm>> make_nccl_comm(std::unique_ptr<Comm> host,
                                             const NcclOptions& options);

}  // namespace moetrain

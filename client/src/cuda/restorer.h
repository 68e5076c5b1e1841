// Restorer: copies windows of the arena to device memory, checks and scatters them there. One per
// restore; its queues and memory (RestoreBuffers) are reused by the next restore.
//
//   copy queue     tables and window k -> slot     those of window k+1 -> its slot     ...
//                      |
//                      +--- copied: the window is released
//                      |
//   unpack queue       +-> CRCs of window k, matching ranges are scattered, CRCs to the host
//                                                                       |
//                        unpacked: the CRCs are compared, the slot is free
//
// The tables of a window's unpacks are copied before the window: on the unpack queue they would
// wait for the copy engine, which is busy with the following windows.
//
// A window with a file is read into its slot by cuFile (DirectReader) instead. Windows are unpacked
// in the order in which they came, not in which their bytes arrived: a later window may bring
// another version of the same bytes.
//
// Used from the session's thread. After a failure the device may still be writing: the destinations
// must stay until wait_until_idle() has succeeded, or this object is destroyed.
#pragma once

#include <ckpt/ckpt_cuda.h>
#include <ckpt/ckpt_windows.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/src/cuda/cufile.h"
#include "client/src/cuda/device_objects.h"
#include "client/src/cuda/direct_plan.h"
#include "client/src/cuda/direct_reader.h"
#include "client/src/cuda/restore_buffers.h"
#include "client/src/cuda/unpack_plan.h"
#include "formats/base/result.h"
#include "kernels/pack.h"

namespace ckpt::lib {

class Restorer {
 public:
  struct Options {
    int device = 0;
    uint32_t timeout_ms = 0;         // without any progress of the device
    std::shared_ptr<CuFile> cufile;  // null: no window has a file
    bool cufile_required = false;    // if cuFile fails, the restore fails
  };
  // Sources of the bytes. Bytes that were delivered twice count twice.
  struct Outcome {
    uint64_t bytes_arena = 0;
    uint64_t bytes_direct = 0;
    std::string reason;  // why cuFile was abandoned, if it was
  };
  // The buffers belong to options.device. They, and the arena, must outlive this.
  Restorer(ckpt_session* session, PinnedArena& arena, RestoreBuffers& buffers,
           const Options& options)
      : session_(session), arena_(arena), buffers_(buffers), options_(options) {}
  Restorer(const Restorer&) = delete;
  Restorer& operator=(const Restorer&) = delete;

  // Takes all windows of `restore`, whose ranges are the destinations. Runs after the work queued
  // on `stream`. On success, every byte is in place and checked.
  Status run(ckpt_restore* restore, std::span<const ckpt_cuda_destination> destinations,
             CUstream_st* stream);
  Status wait_until_idle(uint32_t timeout_ms);
  const Outcome& outcome() const { return outcome_; }

 private:
  // A call of kernels::unpack whose tables are in the flight's slot.
  struct PlannedUnpack {
    kernels::PlannedPack planned;
    size_t tables_at = 0;
    size_t ranges = 0;
  };
  // State of a window with a file.
  struct Direct {
    std::vector<ckpt_restore_fragment> fragments;
    DirectPlan plan;
    std::shared_ptr<DirectReader::Job> job;
    std::vector<bool> failed;  // of the fragments
    std::string reason;        // reason of the first failed fragment
    bool abandoned = false;    // the window counts as unread; request no more windows with files
  };
  struct Flight {
    uint64_t window = 0;
    std::vector<ckpt_restore_piece> pieces;
    std::vector<UnpackCall> calls;
    size_t ranges = 0;                   // of all calls
    std::vector<PlannedUnpack> unpacks;  // by call
    RestoreSlot* slot = nullptr;
    bool unpacking = false;  // the unpack is queued
    bool released = false;
    std::optional<Direct> direct;
  };

  Status launch(const ckpt_restore_window& window,
                std::span<const ckpt_cuda_destination> destinations);
  Result<bool> unpack_in_order(std::span<const ckpt_cuda_destination> destinations);
  static RestoreSlotSize size_of(const std::vector<UnpackCall>& calls);
  Status bring_tables(Flight& flight, kernels::CudaQueue& queue);
  Status unpack(const Flight& flight);
  Result<bool> take_arrived(ckpt_restore* restore,
                            std::span<const ckpt_cuda_destination> destinations);
  void compare(ckpt_restore* restore, Flight& flight);
  std::string awaited() const;
  // restorer_direct.cc
  Status launch_direct(ckpt_restore* restore, const ckpt_restore_window& window);
  Status prepare_direct(Flight& flight, const ckpt_restore_located& located);
  Status take_read(Flight& flight, std::span<const ckpt_cuda_destination> destinations);
  Status abandon_cufile(Direct& direct, const Error& why);
  void answer_direct(ckpt_restore* restore, const Flight& flight);

  ckpt_session* const session_;
  PinnedArena& arena_;
  RestoreBuffers& buffers_;
  const Options options_;
  size_t launched_ = 0;
  std::deque<Flight> flights_;
  Outcome outcome_;
  std::shared_ptr<CuFile::File> file_;  // of the last read segment
  uint64_t file_segment_ = 0;
  uint64_t reads_done_ = 0;  // as of the last poll
  std::optional<DirectReader> reader_;
};

}  // namespace ckpt::lib

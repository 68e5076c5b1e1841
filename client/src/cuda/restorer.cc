#include "client/src/cuda/restorer.h"

#include <cuda_runtime.h>

#include <utility>

#include "client/src/deadline.h"
#include "kernels/cuda/backoff.h"
#include "kernels/cuda/queue.h"

namespace ckpt::lib {

// The size of a slot for the calls' tables and CRCs, without their window.
RestoreSlotSize Restorer::size_of(const std::vector<UnpackCall>& calls) {
  RestoreSlotSize size{.bytes = 0, .table_bytes = 0, .crcs = 1};
  for (const UnpackCall& call : calls) {
    size.table_bytes += call.table_bytes();
    size.crcs += call.ranges.size();
  }
  return size;
}

Status Restorer::run(ckpt_restore* restore, std::span<const ckpt_cuda_destination> destinations,
                     CUstream_st* stream) {
  CKPT_TRY(buffers_.begun().record(stream));
  CKPT_TRY(buffers_.begun().hold(buffers_.unpack().stream()));
  kernels::Backoff backoff;
  Deadline progress = Deadline::after_ms(options_.timeout_ms);
  for (;;) {
    CKPT_ASSIGN(bool moved, take_arrived(restore, destinations));
    if (flights_.size() < RestoreBuffers::kSlots) {
      // While work is in flight, only poll: the device's events arrive without a call.
      ckpt_restore_window window = CKPT_INIT(ckpt_restore_window);
      CKPT_TRY(session_status(
          session_,
          ckpt_restore_next(restore, flights_.empty() ? options_.timeout_ms : 0, &window)));
      if (window.complete != 0 && flights_.empty()) return ok_status();
      if (window.id != 0) {
        CKPT_TRY(window.data == nullptr ? launch_direct(restore, window)
                                        : launch(window, destinations));
        CKPT_TRY(unpack_in_order(destinations));
        moved = true;
      }
    }
    if (moved || flights_.empty()) {
      progress = Deadline::after_ms(options_.timeout_ms);
      backoff.restart();
    } else if (progress.expired()) {
      return make_error(ErrorCode::kDeadlineExceeded,
                        "CUDA device {}: a window of a restore was not {} within {} ms",
                        options_.device, awaited(), options_.timeout_ms);
    } else {
      backoff.pause();
    }
  }
}

Status Restorer::launch(const ckpt_restore_window& window,
                        std::span<const ckpt_cuda_destination> destinations) {
  RestoreSlot& slot = buffers_.slot(launched_++);
  CUstream_st* const copying = buffers_.copy().stream();
  Flight flight;
  flight.window = window.id;
  flight.pieces.assign(window.pieces, window.pieces + window.piece_count);
  flight.slot = &slot;
  UnpackPlan plan = plan_unpack(flight.pieces, destinations);
  flight.calls = std::move(plan.calls);
  flight.ranges = plan.ranges;
  for (const ckpt_restore_piece& piece : flight.pieces) outcome_.bytes_arena += piece.length;
  CKPT_TRY(arena_.pin());
  RestoreSlotSize size = size_of(flight.calls);
  size.bytes = window.bytes;
  CKPT_TRY(slot.fit(size, ckpt_slab_bytes(session_)));
  CKPT_TRY(bring_tables(flight, buffers_.copy()));
  const auto* from = static_cast<const std::byte*>(window.data) + plan.begin;
  CKPT_TRY(kernels::cuda_status(
      cudaMemcpyAsync(slot.memory.data(), from, plan.bytes, cudaMemcpyHostToDevice, copying),
      "copying out of the arena"));
  CKPT_TRY(slot.copied.record(copying));
  flights_.push_back(std::move(flight));
  return ok_status();
}

// Plans the flight's calls into its slot, and queues the copy of the tables to the device.
Status Restorer::bring_tables(Flight& flight, kernels::CudaQueue& queue) {
  const MirroredArray<std::byte>& tables = flight.slot->tables;
  size_t at = 0;
  for (const UnpackCall& call : flight.calls) {
    const size_t room = call.table_bytes();
    const kernels::PlannedPack planned = kernels::plan_unpack(
        call.pieces, call.ranges, call.expected, {tables.host.data() + at, room});
    flight.unpacks.push_back({planned, at, call.ranges.size()});
    at += room;
  }
  if (at == 0) return ok_status();
  return kernels::cuda_status(cudaMemcpyAsync(tables.device.data(), tables.host.data(), at,
                                              cudaMemcpyHostToDevice, queue.stream()),
                              "bringing tables");
}

// Queues unpacks in the order of windows. A window read by cuFile must have arrived; a copied
// window need not, since the device waits for the copy. True if any unpack was queued.
Result<bool> Restorer::unpack_in_order(std::span<const ckpt_cuda_destination> destinations) {
  bool any = false;
  for (Flight& flight : flights_) {
    if (flight.unpacking) continue;
    if (flight.direct) {
      if (flight.direct->job != nullptr && !reader_->finished(*flight.direct->job)) break;
      CKPT_TRY(take_read(flight, destinations));
    } else {
      CKPT_TRY(flight.slot->copied.hold(buffers_.unpack().stream()));
    }
    CKPT_TRY(unpack(flight));
    CKPT_TRY(flight.slot->unpacked.record(buffers_.unpack().stream()));
    flight.unpacking = true;
    any = true;
  }
  return any;
}

Status Restorer::unpack(const Flight& flight) {
  const RestoreSlot& slot = *flight.slot;
  kernels::CudaQueue& queue = buffers_.unpack();
  uint32_t* crc = slot.crc.device.data();
  uint32_t* const mismatches = crc + flight.ranges;
  for (const PlannedUnpack& one : flight.unpacks) {
    kernels::unpack(queue, one.planned, slot.tables.device.data() + one.tables_at,
                    slot.memory.data(), crc, mismatches);
    crc += one.ranges;
  }
  if (const auto& failure = queue.failed()) {
    return make_error(ErrorCode::kIo, "CUDA device {}: {}", options_.device, *failure);
  }
  if (flight.ranges == 0) return ok_status();
  return kernels::cuda_status(
      cudaMemcpyAsync(slot.crc.host.data(), slot.crc.device.data(),
                      flight.ranges * sizeof(uint32_t), cudaMemcpyDeviceToHost, queue.stream()),
      "fetching CRCs");
}

// True if any window has arrived.
Result<bool> Restorer::take_arrived(ckpt_restore* restore,
                                    std::span<const ckpt_cuda_destination> destinations) {
  const uint64_t reads = reads_done_;
  if (reader_) reads_done_ = reader_->reads_done();
  bool any = reads_done_ != reads;
  for (Flight& flight : flights_) {
    if (flight.released || flight.direct) continue;
    CKPT_ASSIGN(flight.released, flight.slot->copied.happened());
    if (!flight.released) break;  // the copy queue is in order
    ckpt_restore_release(restore, flight.window);
    any = true;
  }
  CKPT_ASSIGN(const bool queued, unpack_in_order(destinations));
  any |= queued;
  while (!flights_.empty() && flights_.front().unpacking) {
    CKPT_ASSIGN(const bool unpacked, flights_.front().slot->unpacked.happened());
    if (!unpacked) break;
    compare(restore, flights_.front());
    if (!flights_.front().released) ckpt_restore_release(restore, flights_.front().window);
    flights_.pop_front();
    any = true;
  }
  return any;
}

// The next stage of the first window, for messages.
std::string Restorer::awaited() const {
  const Flight& flight = flights_.front();
  if (flight.direct) return flight.unpacking ? "unpacked" : "read by cuFile";
  return flight.released ? "unpacked" : "copied";
}

void Restorer::compare(ckpt_restore* restore, Flight& flight) {
  const uint32_t* crc = flight.slot->crc.host.data();
  for (const UnpackCall& call : flight.calls) {
    for (size_t i = 0; i < call.numbers.size(); ++i) {
      if (*crc++ == call.expected[i]) continue;
      const size_t number = call.numbers[i];
      if (flight.direct) {
        flight.direct->failed[number] = true;
      } else {
        ckpt_restore_mismatch(restore, flight.window, &flight.pieces[number]);
      }
    }
  }
  if (flight.direct) answer_direct(restore, flight);
}

Status Restorer::wait_until_idle(uint32_t timeout_ms) {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  kernels::Backoff backoff;
  while (reader_ && !reader_->cancel_and_check_idle()) {
    if (deadline.expired()) {
      return make_error(ErrorCode::kDeadlineExceeded, "cuFileRead has not returned within {} ms",
                        timeout_ms);
    }
    backoff.pause();
  }
  CKPT_TRY(kernels::wait_until_idle(buffers_.copy(), timeout_ms));
  return kernels::wait_until_idle(buffers_.unpack(), timeout_ms);
}

}  // namespace ckpt::lib

#include "client/src/cuda/restorer.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "kernels/pack.h"

namespace ckpt::lib {

namespace {
// A window takes hundreds of these to cross to the device.
constexpr std::chrono::microseconds kAskOfWindow{5};
}  // namespace

Result<std::unique_ptr<Restorer>> Restorer::open(ckpt_session* session, PinnedArena& arena,
                                                 const Options& options) {
  std::unique_ptr<Restorer> restorer(new Restorer(session, arena, options));
  CKPT_TRY(restorer->prepare());
  return restorer;
}

Status Restorer::prepare() {
  const kernels::CudaQueueOptions queue{.device = options_.device,
                                        .timeout_ms = options_.timeout_ms};
  CKPT_ASSIGN(copy_, kernels::make_cuda_queue(queue));
  CKPT_ASSIGN(unpack_, kernels::make_cuda_queue(queue));
  for (Slot& slot : slots_) {
    CKPT_TRY(slot.copied.make());
    CKPT_TRY(slot.unpacked.make());
  }
  return begun_.make();
}

// Grows, at least to twice its size. Nothing uses the slot now; what it grows out of stays until
// the end, since CUDA waits for the whole device before it frees.
Status Restorer::Slot::fit(uint64_t bytes, size_t pieces) {
  if (memory.size() < bytes) {
    CKPT_ASSIGN(auto larger, kernels::DeviceArray<std::byte>::make(
                                 std::max<uint64_t>(bytes, 2 * memory.size())));
    registered = {};
    outgrown.push_back(std::exchange(memory, std::move(larger)));
  }
  if (crc.size() < pieces + 1) {
    CKPT_ASSIGN(auto more, kernels::DeviceArray<uint32_t>::make(2 * pieces + 1));
    CKPT_ASSIGN(auto host_more, kernels::PinnedArray<uint32_t>::make(2 * pieces + 1));
    outgrown_crc.push_back(std::exchange(crc, std::move(more)));
    outgrown_host_crc.push_back(std::exchange(host_crc, std::move(host_more)));
  }
  return ok_status();
}

Status Restorer::run(ckpt_restore* restore, std::span<const ckpt_cuda_destination> destinations,
                     CUstream_st* stream) {
  CKPT_TRY(begun_.record(stream));
  CKPT_TRY(begun_.hold(unpack_->stream()));
  Deadline progress = Deadline::after_ms(options_.timeout_ms);
  for (;;) {
    CKPT_ASSIGN(bool moved, take_arrived(restore, destinations));
    if (flights_.size() < kSlots) {
      // With something under way, only looks: the device's news come without anybody's call.
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
    } else if (progress.expired()) {
      return make_error(ErrorCode::kDeadlineExceeded,
                        "CUDA device {}: a window of a restore was not {} within {} ms",
                        options_.device, awaited(), options_.timeout_ms);
    } else {
      std::this_thread::sleep_for(kAskOfWindow);
    }
  }
}

Status Restorer::launch(const ckpt_restore_window& window,
                        std::span<const ckpt_cuda_destination> destinations) {
  Slot& slot = slots_[launched_++ % kSlots];
  Flight flight;
  flight.window = window.id;
  flight.pieces.assign(window.pieces, window.pieces + window.piece_count);
  flight.slot = &slot;
  UnpackPlan plan = plan_unpack(flight.pieces, destinations);
  flight.calls = std::move(plan.calls);
  flight.ranges = plan.ranges;
  for (const ckpt_restore_piece& piece : flight.pieces) outcome_.bytes_arena += piece.length;
  CKPT_TRY(arena_.pin());
  CKPT_TRY(slot.fit(window.bytes, flight.ranges));
  const auto* from = static_cast<const std::byte*>(window.data) + plan.begin;
  CKPT_TRY(kernels::cuda_status(cudaMemcpyAsync(slot.memory.data(), from, plan.bytes,
                                                cudaMemcpyHostToDevice, copy_->stream()),
                                "copying out of the arena"));
  CKPT_TRY(slot.copied.record(copy_->stream()));
  flights_.push_back(std::move(flight));
  return ok_status();
}

// Queues the unpacking of what may be: of windows that were read, once they are here; of those that
// are copied at once, since the device waits for the copy. True if any was queued.
Result<bool> Restorer::unpack_in_order(std::span<const ckpt_cuda_destination> destinations) {
  bool any = false;
  for (Flight& flight : flights_) {
    if (flight.unpacking) continue;
    if (flight.direct) {
      if (flight.direct->job != nullptr && !reader_->finished(*flight.direct->job)) break;
      CKPT_TRY(take_read(flight, destinations));
    } else {
      CKPT_TRY(flight.slot->copied.hold(unpack_->stream()));
    }
    CKPT_TRY(unpack(flight));
    CKPT_TRY(flight.slot->unpacked.record(unpack_->stream()));
    flight.unpacking = true;
    any = true;
  }
  return any;
}

Status Restorer::unpack(const Flight& flight) {
  Slot& slot = *flight.slot;
  uint32_t* crc = slot.crc.data();
  for (const UnpackCall& call : flight.calls) {
    kernels::unpack(*unpack_, call.pieces, call.ranges, call.expected, slot.memory.data(), crc,
                    slot.crc.data() + flight.ranges);
    crc += call.ranges.size();
  }
  if (const auto& failure = unpack_->failed()) {
    return make_error(ErrorCode::kIo, "CUDA device {}: {}", options_.device, *failure);
  }
  if (flight.ranges == 0) return ok_status();
  return kernels::cuda_status(
      cudaMemcpyAsync(slot.host_crc.data(), slot.crc.data(), flight.ranges * sizeof(uint32_t),
                      cudaMemcpyDeviceToHost, unpack_->stream()),
      "fetching CRCs");
}

// True if anything has.
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

// What the first window still has to go through.
std::string Restorer::awaited() const {
  const Flight& flight = flights_.front();
  if (flight.direct) return flight.unpacking ? "unpacked" : "read by cuFile";
  return flight.released ? "unpacked" : "copied";
}

void Restorer::compare(ckpt_restore* restore, Flight& flight) {
  const uint32_t* crc = flight.slot->host_crc.data();
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

Status Restorer::come_to_rest(uint32_t timeout_ms) {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  while (reader_ && !reader_->stop_and_look_if_idle()) {
    if (deadline.expired()) {
      return make_error(ErrorCode::kDeadlineExceeded, "cuFileRead has not returned within {} ms",
                        timeout_ms);
    }
    std::this_thread::sleep_for(kAskOfWindow);
  }
  CKPT_TRY(kernels::come_to_rest(*copy_, timeout_ms));
  return kernels::come_to_rest(*unpack_, timeout_ms);
}

}  // namespace ckpt::lib

// Windows with a file: read by cuFile, then checked and scattered like the others.
#include <algorithm>
#include <utility>

#include "client/src/cuda/restorer.h"

namespace ckpt::lib {
namespace {

// Size of one cuFile read: large enough to amortise the call, small enough that several threads
// share a window.
constexpr uint64_t kReadBytes = 4 << 20;

}  // namespace

Status Restorer::launch_direct(ckpt_restore* restore, const ckpt_restore_window& window) {
  ckpt_restore_located located = CKPT_INIT(ckpt_restore_located);
  CKPT_TRY(session_status(session_, ckpt_restore_file(restore, &located)));
  Flight flight;
  flight.window = window.id;
  flight.pieces.assign(window.pieces, window.pieces + window.piece_count);
  flight.slot = &buffers_.slot(launched_++);
  Direct& direct = flight.direct.emplace();
  direct.fragments.assign(located.fragments, located.fragments + located.fragment_count);
  direct.failed.assign(direct.fragments.size(), false);
  if (!outcome_.reason.empty()) {
    direct.abandoned = true;  // the window was sent before cuFile was abandoned
  } else if (Status ready = prepare_direct(flight, located); !ready.ok()) {
    if (ready.error().code != ErrorCode::kUnavailable) return ready;
    CKPT_TRY(abandon_cufile(direct, ready.error()));
  } else {
    direct.job = reader_->start(file_, flight.slot->memory.data(), direct.plan.reads);
  }
  flights_.push_back(std::move(flight));
  return ok_status();
}

// Prepares everything for the reads. kUnavailable: cuFile cannot read this.
Status Restorer::prepare_direct(Flight& flight, const ckpt_restore_located& located) {
  Direct& direct = *flight.direct;
  direct.plan = plan_direct(direct.fragments, kReadBytes);
  RestoreSlot& slot = *flight.slot;
  // The slot is made as large as any window, so that it is registered once.
  const uint64_t slab_bytes = ckpt_slab_bytes(session_);
  const Status fits = slot.fit(
      {.bytes = std::max(direct.plan.bytes, slab_bytes), .table_bytes = 0, .crcs = 0}, slab_bytes);
  // Another code than kUnavailable: this is no failure of cuFile.
  if (!fits.ok()) return make_error(ErrorCode::kResourceExhausted, "{}", fits.error().message);
  if (slot.registered.base() == nullptr) {
    CKPT_ASSIGN(slot.registered,
                options_.cufile->add_buffer(slot.memory.data(), slot.memory.size()));
  }
  if (file_ == nullptr || file_segment_ != located.segment) {
    CKPT_ASSIGN(file_, options_.cufile->add_file(located.file));
    file_segment_ = located.segment;
  }
  if (!reader_) reader_.emplace(options_.device);
  return ok_status();
}

// Continues the restore without cuFile, unless cuFile is required.
Status Restorer::abandon_cufile(Direct& direct, const Error& why) {
  if (options_.cufile_required) return why;
  direct.abandoned = true;
  outcome_.reason = why.message;
  return ok_status();
}

// Takes the results of the window's ended reads.
Status Restorer::take_read(Flight& flight, std::span<const ckpt_cuda_destination> destinations) {
  Direct& direct = *flight.direct;
  if (direct.job != nullptr && direct.job->cufile_error) {
    CKPT_TRY(abandon_cufile(direct, *direct.job->cufile_error));
  }
  if (direct.abandoned) return ok_status();
  direct.failed = incomplete_fragments(direct.plan, direct.fragments, direct.job->got);
  direct.reason = direct.job->read_error ? direct.job->read_error->message : "the file ends there";
  ScatterPlan scatter =
      plan_scatter(direct.plan, direct.fragments, flight.pieces, destinations, direct.failed);
  flight.calls = std::move(scatter.calls);
  flight.ranges = scatter.ranges;
  CKPT_TRY(flight.slot->fit(size_of(flight.calls), 0));
  return bring_tables(flight, buffers_.unpack());
}

// Tells the session which fragments have failed. Precondition: all checks are done.
void Restorer::answer_direct(ckpt_restore* restore, const Flight& flight) {
  const Direct& direct = *flight.direct;
  if (direct.abandoned) {
    return ckpt_restore_failed(restore, flight.window, CKPT_ALL_FRAGMENTS, outcome_.reason.c_str());
  }
  const std::vector<bool> unread =
      incomplete_fragments(direct.plan, direct.fragments, direct.job->got);
  for (size_t i = 0; i < direct.fragments.size(); ++i) {
    const ckpt_restore_fragment& fragment = direct.fragments[i];
    if (direct.failed[i]) {
      const char* reason = unread[i] ? direct.reason.c_str() : "CRC32C mismatch on the device";
      ckpt_restore_failed(restore, flight.window, i, reason);
      continue;
    }
    for (size_t k = 0; k < fragment.piece_count; ++k) {
      outcome_.bytes_direct += flight.pieces[fragment.first_piece + k].length;
    }
  }
}

}  // namespace ckpt::lib

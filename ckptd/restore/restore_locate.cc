// Fragments that the client reads itself: they are sent by their places on disk, and return to the
// queue only if the client could not read them.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/limits.h"
#include "ckptd/restore/restore_impl.h"
#include "formats/base/checked.h"

namespace ckptd {
namespace {

using ckpt::kBlockBytes;
using ckpt::base::align_down;
using ckpt::base::align_up;

// Blocks that hold the fragment.
uint64_t blocks_begin(const RestoreFragment& fragment) {
  return align_down(fragment.place.address.offset, kBlockBytes);
}
uint64_t blocks_end(const RestoreFragment& fragment) {
  return align_up(fragment.place.address.offset + fragment.stored.stored_bytes(), kBlockBytes);
}

LocatedFragment describe(const RestoreFragment& fragment) {
  const FragmentPlace& stored = fragment.stored;
  LocatedFragment out{fragment.place.address.offset, stored.length, stored.crc32c, {}};
  out.pieces.reserve(fragment.parts.size());
  for (const RestoreFragment::Part& part : fragment.parts) {
    out.pieces.push_back(
        {part.want, part.range, part.range.offset - stored.offset, 0, fragment.place.source});
  }
  return out;
}

}  // namespace

bool RestoreJob::Impl::to_locate(const RestoreFragment& fragment) const {
  // The client cannot decode: encoded fragments come in slabs.
  return locate_bytes_max > 0 && context.sources.at(fragment.place.source).traits().locates &&
         !fragment.located && fragment.stored.codec == 0 &&
         fragment.parts.size() <= limits::kPiecesPerWindowMax &&
         blocks_end(fragment) - blocks_begin(fragment) <= locate_bytes_max;
}

// Takes fragments of one container, ascending, from the front of the queue, as many as fit. Blocks
// that two of them share count once.
LocatedBatch RestoreJob::Impl::take_batch() {
  LocatedBatch batch;
  uint64_t bytes = 0;
  size_t pieces = 0;
  uint64_t end = 0;          // of the last fragment
  uint64_t blocks_read = 0;  // up to here
  for (; !queue.empty(); queue.pop_front()) {
    const std::shared_ptr<RestoreFragment>& fragment = queue.front().fragment;
    if (stale(*fragment)) continue;
    if (!to_locate(*fragment)) break;
    const Place& place = fragment->place;
    const uint64_t more = blocks_end(*fragment) - std::max(blocks_begin(*fragment), blocks_read);
    if (!batch.fragments.empty()) {
      if (place.source != batch.source || place.address.container != batch.container) break;
      if (place.address.offset < end) break;
      if (bytes + more > locate_bytes_max) break;
      if (pieces + fragment->parts.size() > limits::kPiecesPerWindowMax) break;
    }
    batch.source = place.source;
    batch.container = place.address.container;
    batch.fragments.push_back(fragment);
    bytes += more;
    pieces += fragment->parts.size();
    end = place.address.offset + fragment->stored.length;
    blocks_read = blocks_end(*fragment);
  }
  return batch;
}

void RestoreJob::Impl::locate_next() {
  LocatedBatch batch = take_batch();
  if (batch.fragments.empty()) return;
  locating = true;
  const Place at = batch.fragments.front()->place;
  // The container is opened and checked as before any other read.
  context.sources.at(at.source).open(
      at.address, [this, batch = std::move(batch)](const Result<SourceLease>& lease) {
        const Status opened = lease.ok() ? Status() : Status(lease.error());
        defer([this, batch, opened] { hand_out(batch, opened); });
      });
}

void RestoreJob::Impl::hand_out(LocatedBatch batch, const Status& opened) {
  locating = false;
  if (over || closed) return;
  std::erase_if(batch.fragments, [this](const auto& fragment) { return stale(*fragment); });
  Status ready = opened;
  Source& source = context.sources.at(batch.source);
  const bool again =
      shared && shared->source == batch.source && shared->container == batch.container;
  if (ready.ok() && !again) {
    auto fd = source.locate({batch.container, 0});
    if (fd.ok()) {
      shared.emplace(Shared{batch.source, batch.container, std::move(fd).value()});
    } else {
      ready = fd.error();
    }
  }
  if (!ready.ok()) {
    // ckptd reads the fragments instead: each one then succeeds or fails by itself.
    spdlog::warn("{} {}: its places cannot be handed out: {}", source.name(), batch.container,
                 ready.error().message);
    for (const auto& fragment : batch.fragments) read_here(*fragment, "");
  } else if (!batch.fragments.empty()) {
    Window window;
    Located& places = window.located.emplace();
    places.number = next_located++;
    places.container = batch.container;
    places.file = shared->file.get();
    places.fragments.reserve(batch.fragments.size());
    for (const auto& fragment : batch.fragments) places.fragments.push_back(describe(*fragment));
    located.emplace(places.number, std::move(batch));
    deliver(std::move(window));
  }
  pump();
}

// Without a reason the client needs no note.
void RestoreJob::Impl::read_here(RestoreFragment& fragment, const std::string& reason) {
  const auto again = again_from(fragment, fragment.place);
  again->located = true;
  add_slices(again);
  if (!reason.empty()) note_source(fragment, "read by ckptd instead of the client: " + reason);
}

// Slices of the queue were not cut to the size of a slab.
void RestoreJob::Impl::stop_locating() {
  std::deque<RestoreSlice> planned;
  planned.swap(queue);
  std::vector<bool> whole;
  whole.reserve(planned.size());
  for (const RestoreSlice& slice : planned) whole.push_back(to_locate(*slice.fragment));
  locate_bytes_max = 0;
  for (size_t i = 0; i < planned.size(); ++i) {
    if (whole[i]) {
      add_slices(planned[i].fragment);
    } else {
      queue.push_back(planned[i]);
    }
  }
}

uint64_t RestoreJob::Impl::located_read(const LocatedAnswer& answer) {
  const auto found = located.find(answer.number);
  if (over || closed || found == located.end()) return 0;
  const LocatedBatch batch = std::move(found->second);
  located.erase(found);
  if (answer.stop) stop_locating();
  std::vector<bool> failed(batch.fragments.size(), answer.stop);
  for (const uint32_t index : answer.failed) {
    if (index >= failed.size()) {
      failed.assign(failed.size(), true);
      break;
    }
    failed[index] = true;
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < batch.fragments.size(); ++i) {
    RestoreFragment& fragment = *batch.fragments[i];
    if (stale(fragment)) continue;
    if (failed[i]) {
      read_here(fragment, answer.stop ? "" : answer.reason);
      continue;
    }
    for (const RestoreFragment::Part& part : fragment.parts) bytes += part.range.length;
  }
  pump();
  return bytes;
}

}  // namespace ckptd

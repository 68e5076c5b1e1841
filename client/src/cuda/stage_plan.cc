#include "client/src/cuda/stage_plan.h"

#include <algorithm>

#include "formats/arena.h"
#include "formats/base/assert.h"
#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckpt::lib {

StageGroup next_group(std::span<const StageChunk> ready, size_t groups, size_t slot, size_t slots) {
  const size_t most = std::max<size_t>(1, slots / 4);
  size_t wanted = 1;
  for (size_t i = 0; i < groups && wanted < most; ++i) wanted *= 2;
  wanted = std::min(wanted, most);
  StageGroup group;
  for (const StageChunk& chunk : ready) {
    ++group.chunks;
    group.slots += chunk.in_slot ? 1 : 0;
    group.is_whole = group.chunks == wanted || slot + group.slots == slots;
    if (group.is_whole) break;
  }
  return group;
}

uint64_t StagePlan::room() const {
  if (!is_open_) return chunk_bytes_;
  // Assumes that a fragment starts on the next block. A chunk that does not begin on a block needs
  // one block more: too little room would cut small remainders off tensors, which must be gathered.
  const StageChunk& chunk = chunks_.back();
  const bool begins_block = reinterpret_cast<uintptr_t>(chunk.to) % kBlockBytes == 0;
  const uint64_t used = base::align_up(chunk.bytes, kBlockBytes) + (begins_block ? 0 : kBlockBytes);
  return used + kAlignedFragmentBytes <= chunk_bytes_ ? chunk_bytes_ - used : chunk_bytes_;
}

void StagePlan::add(const StagedPlace& place, std::span<const DeviceBytes> sources) {
  CKPT_ASSERT(place.to.size() <= chunk_bytes_);
  const auto offset_in = [&](const StageChunk& chunk) {
    return static_cast<uint64_t>(place.to.data() - chunk.to);
  };
  const auto follows = [&](const StageChunk& chunk) {
    const std::byte* end = chunk.to + chunk.bytes;
    return place.to.data() >= end && place.to.data() - end < static_cast<int64_t>(kBlockBytes) &&
           offset_in(chunk) + place.to.size() <= chunk_bytes_;
  };
  if (place.unit >= up_to_.size()) up_to_.resize(place.unit + size_t{1});
  if (!is_open_ || !follows(chunks_.back())) chunks_.push_back({.to = place.to.data()});
  is_open_ = true;
  StageChunk& chunk = chunks_.back();
  bytes_ += place.to.size();
  parts_before_.push_back(parts_);
  uint64_t at = offset_in(chunk);
  bool continues = false;  // the source extends the range of the previous source
  for (const DeviceBytes& source : sources) {
    if (source.bytes == 0) continue;
    const bool is_direct =
        bytes_ <= direct_.until && source.bytes >= direct_.run_bytes_min && !source.on_host;
    sources_.push_back({source, is_direct});
    if (is_direct) {
      add_direct(chunk, at, source);
    } else {
      add_gathered(chunk, at, source);
      parts_.gathered += continues ? 0 : 1;
    }
    continues = !is_direct;
    at += source.bytes;
  }
  sources_end_.push_back(sources_.size());
  places_.push_back(place);
  chunk.bytes = offset_in(chunk) + place.to.size();
  chunk.places_end = places_.size();
  chunk.copies_end = copies_.size();
  UpTo& up_to = up_to_[place.unit];
  up_to.chunks = chunks_.size();
  if (parts_.direct == parts_before_.back().direct) return;
  up_to.direct = direct_up_to_ = chunks_.size();
}

void StagePlan::add_direct(StageChunk& chunk, uint64_t at, const DeviceBytes& source) {
  copies_.push_back({.at = at, .bytes = source.bytes, .from = source.from});
  chunk.copies_end = copies_.size();
  ++parts_.direct;
}

// Extends the previous copy, also across a gap, if that copy is out of the slot.
void StagePlan::add_gathered(StageChunk& chunk, uint64_t at, const DeviceBytes& source) {
  const bool is_first = chunk.copies_end == 0;
  chunk.in_slot = true;
  if (is_first || copies_.back().from != nullptr) copies_.push_back({.at = at});
  StageCopy& copy = copies_.back();
  chunk.has_gaps = chunk.has_gaps || copy.at + copy.bytes < at;
  copy.bytes = at + source.bytes - copy.at;
  chunk.copies_end = copies_.size();
}

std::span<const StageCopy> StagePlan::copies(size_t chunk) const {
  const size_t first = chunk == 0 ? 0 : chunks_[chunk - 1].copies_end;
  return std::span(copies_).subspan(first, chunks_[chunk].copies_end - first);
}

int64_t StagePlan::last_chunk_of(UnitId unit) const {
  return unit < up_to_.size() ? static_cast<int64_t>(up_to_[unit].chunks) - 1 : -1;
}

int64_t StagePlan::last_direct_of(UnitId unit) const {
  return unit < up_to_.size() ? static_cast<int64_t>(up_to_[unit].direct) - 1 : -1;
}

void StagePlan::list(size_t first, size_t end, PackLists& lists) const {
  lists.pieces.clear();
  lists.ranges.clear();
  lists.runs.clear();
  lists.range_bytes = lists.run_bytes = 0;
  uint64_t slot = 0;
  for (size_t i = first; i < end; ++i) {
    const StageChunk& chunk = chunks_[i];
    for (size_t place = first_place(i); place < chunk.places_end; ++place) {
      uint64_t at = slot + static_cast<uint64_t>(places_[place].to.data() - chunk.to);
      bool continues = false;  // the source extends the range of the previous source
      for (size_t j = first_source(place); j < sources_end_[place]; ++j) {
        const DeviceBytes& memory = sources_[j].memory;
        if (sources_[j].is_direct) {
          lists.runs.push_back({memory.from, memory.bytes});
          lists.run_bytes += memory.bytes;
        } else {
          if (!continues) lists.ranges.push_back({at, 0});
          lists.ranges.back().bytes += memory.bytes;
          lists.range_bytes += memory.bytes;
          lists.pieces.push_back({memory.from, at, memory.bytes});
        }
        continues = !sources_[j].is_direct;
        at += memory.bytes;
      }
    }
    slot += chunk.in_slot ? chunk_bytes_ : 0;
  }
}

uint32_t StagePlan::crc_of(size_t place, const GroupCrcs& found) const {
  const Parts& before = parts_before_[place];
  const Parts& group = parts_before_[found.first_place];
  const uint32_t* gathered = found.gathered + (before.gathered - group.gathered);
  const uint32_t* direct = found.direct + (before.direct - group.direct);
  uint32_t crc = 0;
  for (size_t j = first_source(place); j < sources_end_[place];) {
    const bool is_direct = sources_[j].is_direct;
    uint64_t bytes = sources_[j++].memory.bytes;
    for (; !is_direct && j < sources_end_[place] && !sources_[j].is_direct; ++j) {
      bytes += sources_[j].memory.bytes;
    }
    const uint32_t part = is_direct ? *direct++ : *gathered++;
    // The CRC of no bytes is 0; so most places, which have one part, cost no arithmetic.
    crc = crc == 0 ? part : base::crc32c_combine(crc, part, bytes);
  }
  return crc;
}

}  // namespace ckpt::lib

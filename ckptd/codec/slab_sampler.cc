#include "ckptd/codec/slab_sampler.h"

#include <algorithm>
#include <map>

#include "ckptd/limits.h"
#include "formats/base/assert.h"
#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckptd {
namespace {

constexpr uint64_t kPlaces = 4;
constexpr uint64_t kPlaceBytes = limits::kCodecSampleBytes / kPlaces;
// Alignment that never splits an element.
constexpr uint64_t kPlaceAlignment = 64;

// Samples of one kind, as a slab of their own.
struct Taken {
  std::vector<std::byte> payload;
  std::vector<ckpt::ExtentFragment> fragments;

  void add(const ckpt::UnitRange& range, ByteView bytes) {
    fragments.push_back({.unit = range.unit,
                         .offset = range.offset,
                         .length = range.length,
                         .payload_offset = payload.size(),
                         .crc32c = ckpt::base::crc32c(bytes)});
    payload.insert(payload.end(), bytes.begin(), bytes.end());
  }

  // Wall-clock time: a snapshot would wait for a busy processor, too.
  CodecFigures measure(const UnitSpecList& units, const Stopwatch& stopwatch) const {
    std::vector<std::byte> out(payload.size());
    SlabEncoder encoder(payload, fragments, encode_all(units));
    double seconds = 0;
    while (!encoder.done()) {
      const auto began = stopwatch();
      if (!encoder.step(kPlaceBytes, out).ok()) break;  // the bytes are not valid samples
      seconds += std::chrono::duration<double>(stopwatch() - began).count();
    }
    const auto bytes = static_cast<double>(payload.size());
    return {.ratio = static_cast<double>(encoder.stored_bytes()) / bytes,
            .bytes_per_second = bytes / std::max(seconds, 1e-9)};
  }
};

}  // namespace

SlabSampler::SlabSampler(const std::vector<ckpt::ExtentFragment>& fragments, const UnitKinds& kinds,
                         const std::set<uint32_t>& wanted) {
  std::map<uint32_t, std::vector<ckpt::ExtentFragment>> of_kind;
  for (const ckpt::ExtentFragment& fragment : fragments) {
    const uint32_t kind = kinds.of(fragment.unit);
    if (wanted.contains(kind)) of_kind[kind].push_back(fragment);
  }
  for (const auto& [kind, theirs] : of_kind) choose(kind, theirs);
}

// Places at even distances in all bytes of the kind, in order.
void SlabSampler::choose(uint32_t kind, const std::vector<ckpt::ExtentFragment>& fragments) {
  uint64_t total = 0;
  for (const ckpt::ExtentFragment& fragment : fragments) total += fragment.length;
  const uint64_t places = std::clamp<uint64_t>(total / kPlaceBytes, 1, kPlaces);
  uint64_t before = 0;  // bytes of fragments before this one
  uint64_t place = 0;
  for (const ckpt::ExtentFragment& fragment : fragments) {
    const uint64_t bytes = std::min(fragment.length, kPlaceBytes);
    for (; place < places; ++place) {
      const uint64_t middle = total / (2 * places) * (2 * place + 1);
      if (middle >= before + fragment.length) break;
      const uint64_t from = middle - std::min(middle, before + kPlaceBytes / 2);
      const uint64_t at = fragment.offset + std::min(from, fragment.length - bytes);
      const uint64_t offset =
          std::max(fragment.offset, ckpt::base::align_down(at, kPlaceAlignment));
      samples_.push_back({kind, {fragment.unit, offset, bytes}, {}});
    }
    before += fragment.length;
  }
}

void SlabSampler::look(const ckpt::ExtentFragment& fragment, ByteView bytes, uint64_t to) {
  if (to < bytes.size()) return;
  for (Sample& sample : samples_) {
    const bool inside =
        sample.range.unit == fragment.unit && sample.bytes.empty() &&
        sample.range.offset >= fragment.offset &&
        sample.range.offset + sample.range.length <= fragment.offset + fragment.length;
    if (!inside) continue;
    const ByteView from = bytes.subspan(sample.range.offset - fragment.offset, sample.range.length);
    sample.bytes.assign(from.begin(), from.end());
  }
}

uint64_t SlabSampler::bytes() const {
  uint64_t bytes = 0;
  for (const Sample& sample : samples_) bytes += sample.bytes.size();
  return bytes;
}

SlabSampler::Measured SlabSampler::measure(const UnitSpecList& units, const Stopwatch& stopwatch) {
  const auto first = std::find_if(samples_.begin(), samples_.end(),
                                  [](const Sample& sample) { return !sample.bytes.empty(); });
  CKPT_ASSERT(first != samples_.end());
  const uint32_t kind = first->kind;
  Taken taken;
  for (const Sample& sample : samples_) {
    if (sample.kind == kind && !sample.bytes.empty()) taken.add(sample.range, sample.bytes);
  }
  std::erase_if(samples_, [kind](const Sample& sample) { return sample.kind == kind; });
  return {kind, taken.measure(units, stopwatch)};
}

}  // namespace ckptd

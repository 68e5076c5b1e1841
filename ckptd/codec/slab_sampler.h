// SlabSampler: samples a few bytes of a slab to measure ratio and speed of encoding such units. The
// bytes are copied while the slab is checked after its write, and encoded later, so that no write
// waits.
#pragma once

#include <chrono>
#include <functional>
#include <set>
#include <vector>

#include "ckptd/codec/encode_choice.h"
#include "ckptd/codec/slab_encoder.h"
#include "ckptd/codec/unit_kinds.h"
#include "formats/segment.h"

namespace ckptd {

using Stopwatch = std::function<std::chrono::nanoseconds()>;

class SlabSampler {
 public:
  // At most limits::kCodecSampleBytes of each of these kinds, from several places. `fragments`: of
  // a slab.
  SlabSampler(const std::vector<ckpt::ExtentFragment>& fragments, const UnitKinds& kinds,
              const std::set<uint32_t>& wanted);

  // [0, to) of the fragment's bytes were read, and are still in the CPU cache.
  void look(const ckpt::ExtentFragment& fragment, ByteView bytes, uint64_t to);

  // Size of copied samples that are not measured yet.
  uint64_t bytes() const;
  struct Measured {
    uint32_t kind = 0;
    CodecFigures figures;
  };
  // Encodes the samples of one kind, as SlabEncoder does. Precondition: bytes() > 0. Any thread.
  Measured measure(const UnitSpecList& units, const Stopwatch& stopwatch);

 private:
  struct Sample {
    uint32_t kind = 0;
    ckpt::UnitRange range;
    std::vector<std::byte> bytes;
  };
  void choose(uint32_t kind, const std::vector<ckpt::ExtentFragment>& fragments);
  std::vector<Sample> samples_;
};

}  // namespace ckptd

// Layouts of pieces and ranges, and what pack and unpack make of them on every backend: for the
// checks of pack.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "formats/base/crc32c.h"
#include "kernels/pack.h"
#include "tests/kernels/backend_memory.h"

namespace ckpt::kernels {

inline constexpr uint64_t kTile = 64 << 10;  // of the CUDA version

// Ranges and pieces; a piece's place outside the buffer is an offset into one memory of their own.
struct Layout {
  struct Piece {
    uint64_t outside;
    uint64_t offset;
    uint64_t bytes;
  };
  std::vector<Piece> pieces;
  std::vector<PackRange> ranges;
  uint64_t outside_bytes = 0;
  uint64_t buffer_bytes = 0;

  uint64_t range_bytes() const {
    uint64_t bytes = 0;
    for (const PackRange& range : ranges) bytes += range.bytes;
    return bytes;
  }
  void skip(uint64_t bytes) { buffer_bytes += bytes; }
  // Appends a range of pieces with these lengths, `gap` bytes behind each, and `shift` more bytes
  // outside than in the buffer, so that the two are aligned differently.
  void range(const std::vector<uint64_t>& lengths, uint64_t gap = 0, uint64_t shift = 0) {
    const uint64_t begin = buffer_bytes;
    for (const uint64_t bytes : lengths) {
      outside_bytes += shift;
      pieces.push_back({outside_bytes, buffer_bytes, bytes});
      outside_bytes += bytes;
      buffer_bytes += bytes + gap;
    }
    ranges.push_back({begin, buffer_bytes - begin});
  }
};

inline Layout random_layout(std::mt19937_64& random) {
  const auto below = [&](uint64_t limit) { return random() % limit; };
  const uint64_t step = std::vector<uint64_t>{1, 4, 16}[below(3)];  // all sizes are multiples
  Layout layout;
  layout.skip(below(200) / step * step);
  for (uint64_t range = below(6); range-- > 0;) {
    std::vector<uint64_t> lengths;
    for (uint64_t count = below(5); count-- > 0;) {
      const uint64_t limit = std::vector<uint64_t>{1, 40, 5000, 2 * kTile + 100}[below(4)];
      lengths.push_back(below(limit) / step * step);
    }
    layout.range(lengths, below(3) == 0 ? below(300) / step * step : 0, below(3) * step);
    layout.skip(below(2) * below(100) / step * step);
  }
  return layout;
}

// Bytes from 256 bytes of alignment.
struct Shifts {
  uint64_t outside = 0;
  uint64_t buffer = 0;
};

struct Packed {
  Bytes buffer;
  std::vector<uint32_t> crc;
};

inline Packed packed(Checker& c, const Layout& layout, const Bytes& outside, const Bytes& buffer,
                     const Shifts& shifts = {}) {
  const BackendMemory from(c, outside, shifts.outside);
  const BackendMemory to(c, buffer, shifts.buffer);
  const BackendMemory crc(c, Bytes(layout.ranges.size() * sizeof(uint32_t)), 0);
  std::vector<PackPiece> pieces;
  for (const auto& p : layout.pieces)
    pieces.push_back({from.data() + p.outside, p.offset, p.bytes});
  c.run([&](auto&... queue) { pack(queue..., pieces, layout.ranges, to.data(), crc.words()); });
  c.expect_equal(from.read(), outside, "what was gathered, afterwards");
  return {to.read(), crc.read_words()};
}

struct Unpacked {
  Bytes outside;
  std::vector<uint32_t> crc;
  uint32_t mismatches;
};

inline Unpacked unpacked(Checker& c, const Layout& layout, const Packed& packed,
                         const Bytes& outside, const Shifts& shifts = {}) {
  const BackendMemory from(c, packed.buffer, shifts.buffer);
  const BackendMemory to(c, outside, shifts.outside);
  const BackendMemory crc(c, Bytes(layout.ranges.size() * sizeof(uint32_t)), 0);
  const BackendMemory mismatches(c, Bytes(sizeof(uint32_t), std::byte{7}), 0);
  std::vector<UnpackPiece> pieces;
  for (const auto& p : layout.pieces) pieces.push_back({to.data() + p.outside, p.offset, p.bytes});
  c.run([&](auto&... queue) {
    unpack(queue..., pieces, layout.ranges, packed.crc, from.data(), crc.words(),
           mismatches.words());
  });
  c.expect_equal(from.read(), packed.buffer, "the buffer, afterwards");
  return {to.read(), crc.read_words(), mismatches.read_words()[0]};
}

// `outside` after all ranges but the `bad` ones were scattered over it.
inline Bytes scattered(const Layout& layout, const Bytes& buffer, Bytes outside,
                       const std::vector<bool>& bad) {
  for (const auto& p : layout.pieces) {
    for (size_t i = 0; i < layout.ranges.size(); ++i) {
      const PackRange& r = layout.ranges[i];
      if (p.offset < r.offset || p.offset + p.bytes > r.offset + r.bytes) continue;
      if (!bad.empty() && bad[i]) continue;
      std::copy_n(buffer.begin() + static_cast<ptrdiff_t>(p.offset), p.bytes,
                  outside.begin() + static_cast<ptrdiff_t>(p.outside));
    }
  }
  return outside;
}

}  // namespace ckpt::kernels

// pack: gathers scattered bytes into one buffer and computes the CRC32C of its ranges, in one pass
// over memory. unpack: the reverse; checks the CRCs before it scatters.
//
// Offsets and lengths are bytes of the buffer. Neither pieces nor buffer need any alignment; a
// piece moves fast if it and its place in the buffer are equally far from a multiple of 16 bytes.
// Pieces and ranges are in ascending order, each list without overlaps; either may contain empty
// ones. Pieces may not overlap the buffer, and pieces of unpack may not overlap each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/queue.h"

namespace ckpt::kernels {

// One run of bytes that moves into the buffer (PackPiece) or out of it (UnpackPiece).
struct PackPiece {
  const std::byte* from;
  uint64_t offset;
  uint64_t bytes;
};
struct UnpackPiece {
  std::byte* to;
  uint64_t offset;
  uint64_t bytes;
};
// A part of the buffer that has a CRC32C (formats/base/crc32c.h) of its own: a fragment of a unit.
struct PackRange {
  uint64_t offset;
  uint64_t bytes;
};

// Every byte of a piece lies in some range; a piece may span several ranges. Bytes of a range that
// no piece covers are unchanged and count in the range's CRC. Replaces crc [ranges].
void pack(std::span<const PackPiece> pieces, std::span<const PackRange> ranges, std::byte* buffer,
          uint32_t* crc);

// A piece lies within one range. Replaces crc [ranges] by the computed CRCs, and *mismatches by
// the number that differ from expected [ranges]. Scatters only pieces of ranges that match; the
// destinations of the others are unchanged.
void unpack(std::span<const UnpackPiece> pieces, std::span<const PackRange> ranges,
            std::span<const uint32_t> expected, const std::byte* buffer, uint32_t* crc,
            uint32_t* mismatches);

// A pack on a GPU, planned ahead: the caller chooses when and how the tables get to the device,
// and can reuse them for repeated packs.
struct PlannedPack {
  int64_t piece_count = 0;
  size_t ranges_at = 0;  // offset in the tables; pieces are at offset 0
  int64_t range_count = 0;
  size_t tiles_at = 0;
  int64_t tiles = 0;       // units of work of a block
  size_t expected_at = 0;  // 0: not of an unpack
  size_t table_bytes = 0;
};
// Alignment of the buffer's address; a planned pack works with any buffer so aligned.
inline constexpr size_t kPackBufferAlignment = 128;
// Upper bound of the table bytes of such a pack, if its ranges have `bytes` bytes in total.
// Always a multiple of 16.
size_t pack_table_bytes(size_t pieces, size_t ranges, uint64_t bytes);
// Writes the pack's tables to `tables`: host memory of at least pack_table_bytes(), aligned to
// 16 bytes.
PlannedPack plan_pack(std::span<const PackPiece> pieces, std::span<const PackRange> ranges,
                      std::span<std::byte> tables);
// `tables` is device memory, aligned to 16 bytes, with a copy of the pack's tables; it must stay
// valid while the queue works on the pack. At most `blocks_max` thread blocks run at a time; 0:
// enough to fill the device. The client uses 0: few blocks occupy their multiprocessors longer and
// slow a training step more (measured: bench/results/gpu-nvidia-h200.md). Else as pack() below.
void pack(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables, std::byte* buffer,
          uint32_t* crc, unsigned blocks_max = 0);

// Same, for unpack. Its tables also hold the expected CRCs.
size_t unpack_table_bytes(size_t pieces, size_t ranges, uint64_t bytes);
PlannedPack plan_unpack(std::span<const UnpackPiece> pieces, std::span<const PackRange> ranges,
                        std::span<const uint32_t> expected, std::span<std::byte> tables);
void unpack(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables,
            const std::byte* buffer, uint32_t* crc, uint32_t* mismatches, unsigned blocks_max = 0);

// One run of device memory whose CRC32C is computed in place, for bytes that are copied by other
// means. Any length and alignment; runs come in any order and may overlap.
struct ChecksumRun {
  const std::byte* from;
  uint64_t bytes;
};
// Plans checksums like plan_pack(). `tables` holds pack_table_bytes(0, runs, bytes of all runs).
PlannedPack plan_checksums(std::span<const ChecksumRun> runs, std::span<std::byte> tables);
// Replaces crc [runs], and writes nothing else. `tables` and `blocks_max` as for pack().
void checksum(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables, uint32_t* crc,
              unsigned blocks_max = 0);

// Loads these kernels to the current device. Otherwise CUDA loads each at its first launch, which
// may wait for the device's work. Reports no failure; the launch will.
void preload_pack();

// On a GPU: the device can access `from`, `to`, buffer, crc and mismatches. The spans are host
// memory and may change once the call returns; with tables of more than 1 MiB the call waits
// until the first of them are on the device (CudaQueue::upload).
void pack(CudaQueue& queue, std::span<const PackPiece> pieces, std::span<const PackRange> ranges,
          std::byte* buffer, uint32_t* crc);
void unpack(CudaQueue& queue, std::span<const UnpackPiece> pieces,
            std::span<const PackRange> ranges, std::span<const uint32_t> expected,
            const std::byte* buffer, uint32_t* crc, uint32_t* mismatches);

}  // namespace ckpt::kernels

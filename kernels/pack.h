// pack: gathers scattered bytes into one buffer and takes the CRC32C of ranges of it, in one pass
// over memory. unpack: the way back; checks before it scatters.
//
// Offsets and lengths are bytes of the buffer. Neither pieces nor buffer need any alignment; where
// a piece and its place in the buffer are equally far from a multiple of 16 bytes, it moves fast.
// Pieces and ranges are given in ascending order, each list without overlaps; either may hold empty
// ones. Pieces may not overlap the buffer, nor those of unpack each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/queue.h"

namespace ckpt::kernels {

// One run of bytes that moves into the buffer, and one that moves out of it.
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

// Every byte of a piece lies in some range; a piece may span several. Bytes of a range that no
// piece covers stay as they are and count in its CRC. Replaces crc [ranges].
void pack(std::span<const PackPiece> pieces, std::span<const PackRange> ranges, std::byte* buffer,
          uint32_t* crc);

// A piece lies within one range. Replaces crc [ranges] by what is found, and *mismatches by how
// many of them differ from expected [ranges]. Only pieces of ranges that agree are scattered; what
// the others would have replaced stays as it is.
void unpack(std::span<const UnpackPiece> pieces, std::span<const PackRange> ranges,
            std::span<const uint32_t> expected, const std::byte* buffer, uint32_t* crc,
            uint32_t* mismatches);

// A pack on a GPU, planned ahead: so that its tables come to the device when and as it suits the
// caller, and what is packed again and again need not bring them again.
struct PlannedPack {
  int64_t piece_count = 0;
  size_t ranges_at = 0;  // in the tables; pieces are at their beginning
  int64_t range_count = 0;
  size_t tiles_at = 0;
  int64_t tiles = 0;       // what blocks do at a time
  size_t expected_at = 0;  // 0: not of an unpack
  size_t table_bytes = 0;
};
// Of the buffer's address; a planned pack goes to any buffer that has it.
inline constexpr size_t kPackBufferAlignment = 128;
// How many bytes the tables of such a pack take at most, if its ranges have `bytes` bytes together.
// A multiple of 16.
size_t pack_table_bytes(size_t pieces, size_t ranges, uint64_t bytes);
// Writes the pack's tables to `tables`, memory of the host that has room for them and is aligned to
// 16 bytes.
PlannedPack plan_pack(std::span<const PackPiece> pieces, std::span<const PackRange> ranges,
                      std::span<std::byte> tables);
// `tables` is device memory, aligned to 16 bytes, with a copy of the pack's, as long as the queue
// works on it. At most `blocks_max` blocks of threads run at a time; 0 stands for as many as fill
// the device. The client uses 0: few blocks hold their multiprocessors for longer, and cost a
// training step more (measured: bench/results/gpu-nvidia-h200.md). Else as the pack() below.
void pack(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables, std::byte* buffer,
          uint32_t* crc, unsigned blocks_max = 0);

// The same for unpack. Its tables hold the expected CRCs, too.
size_t unpack_table_bytes(size_t pieces, size_t ranges, uint64_t bytes);
PlannedPack plan_unpack(std::span<const UnpackPiece> pieces, std::span<const PackRange> ranges,
                        std::span<const uint32_t> expected, std::span<std::byte> tables);
void unpack(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables,
            const std::byte* buffer, uint32_t* crc, uint32_t* mismatches, unsigned blocks_max = 0);

// One run of device memory whose CRC32C is taken where it lies: what is copied by other means needs
// no buffer. Of any length and alignment; runs come in any order and may overlap.
struct ChecksumRun {
  const std::byte* from;
  uint64_t bytes;
};
// As plan_pack(), with tables of pack_table_bytes(0, runs, bytes of all runs) at most.
PlannedPack plan_checksums(std::span<const ChecksumRun> runs, std::span<std::byte> tables);
// Replaces crc [runs], and writes nothing else. `tables` and `blocks_max` as for pack().
void checksum(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables, uint32_t* crc,
              unsigned blocks_max = 0);

// Brings the kernels of all of these to the current device, which CUDA else does when each is first
// launched: that may wait for what the device does. Says nothing of failures, the launch will.
void preload_pack();

// On a GPU: `from`, `to`, buffer, crc and mismatches are what the device can reach. The spans are
// host memory and may change once the call returns; tables of more than 1 MiB make the call wait
// until the first of them are on the device (CudaQueue::upload).
void pack(CudaQueue& queue, std::span<const PackPiece> pieces, std::span<const PackRange> ranges,
          std::byte* buffer, uint32_t* crc);
void unpack(CudaQueue& queue, std::span<const UnpackPiece> pieces,
            std::span<const PackRange> ranges, std::span<const uint32_t> expected,
            const std::byte* buffer, uint32_t* crc, uint32_t* mismatches);

}  // namespace ckpt::kernels

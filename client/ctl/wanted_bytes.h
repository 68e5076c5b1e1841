// WantedBytes: a range of a unit, and its place in a file. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/base/ids.h"

namespace ckptctl {

// The unit's bytes are one range. In the file they are contiguous, too, or spread: those of a block
// of a tensor (block_names.h) are one short run in each row of the tensor.
//
//   unit    aabbccdd
//   file    aa......bb......cc......dd......     run 2, step 8
struct WantedBytes {
  ckpt::UnitId unit = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t destination = 0;  // offset in the file; of the first run, if spread
  size_t tag = 0;            // index of the input file
  uint64_t run = 0;          // bytes of a run; 0: contiguous in the file
  uint64_t step = 0;         // from a run to the next one; at least `run`
  // Bytes of the first runs that belong to no part of this piece, because it was cut. Counts from
  // `destination`, so a cut may be inside a run.
  uint64_t skip = 0;

  bool spread() const { return run != 0; }
};

// Offset in the file of the piece's byte `index`, from 0 to length - 1.
uint64_t place_of(const WantedBytes& piece, uint64_t index);
// Number of the piece's bytes that lie before this offset of the file.
uint64_t bytes_before(const WantedBytes& piece, uint64_t place);
// The bytes [from, from + length) of the piece.
WantedBytes part_of(const WantedBytes& piece, uint64_t from, uint64_t length);

}  // namespace ckptctl

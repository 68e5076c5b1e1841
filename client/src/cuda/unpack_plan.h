// UnpackPlan: how the pieces of a window are scattered from a copy of the window in device memory.
// Pure.
//
// The ranges of one unpack call must not overlap. Pieces overlap if the same bytes are wanted
// twice: then the window needs several calls.
#pragma once

#include <ckpt/ckpt_cuda.h>
#include <ckpt/ckpt_windows.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/pack.h"

namespace ckpt::lib {

// Arguments of one call of kernels::unpack, and the index of each range's piece in the window.
struct UnpackCall {
  std::vector<kernels::UnpackPiece> pieces;
  std::vector<kernels::PackRange> ranges;  // offsets in the copy, like those of the pieces
  std::vector<uint32_t> expected;
  std::vector<size_t> numbers;
  // Bytes of its tables (kernels::plan_unpack).
  size_t table_bytes() const;
};

struct UnpackPlan {
  uint64_t begin = 0;  // start of the part to copy; on a block, so that the copy is fast
  uint64_t bytes = 0;
  std::vector<UnpackCall> calls;  // as few as possible
  size_t ranges = 0;              // of all calls
};

// The pieces lie inside the window and inside their destinations. Empty pieces are left out.
UnpackPlan plan_unpack(std::span<const ckpt_restore_piece> pieces,
                       std::span<const ckpt_cuda_destination> destinations);

}  // namespace ckpt::lib

// UnpackPlan: how a window's pieces get out of a copy of it in device memory. Pure.
//
// A call of unpack takes ranges that do not overlap. A window's pieces do where somebody wants the
// same bytes twice: then it takes several calls.
#pragma once

#include <ckpt/ckpt_cuda.h>
#include <ckpt/ckpt_windows.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/pack.h"

namespace ckpt::lib {

// Arguments of one call of kernels::unpack, and which of the window's pieces each range is.
struct UnpackCall {
  std::vector<kernels::UnpackPiece> pieces;
  std::vector<kernels::PackRange> ranges;  // of the copy, as the pieces
  std::vector<uint32_t> expected;
  std::vector<size_t> numbers;
  // How much room its tables take (kernels::plan_unpack).
  size_t table_bytes() const;
};

struct UnpackPlan {
  uint64_t begin = 0;  // what of the window has to be copied; on a block, where copies are fast
  uint64_t bytes = 0;
  std::vector<UnpackCall> calls;  // as few as can be
  size_t ranges = 0;              // of all calls
};

// The pieces lie inside the window and inside their destinations. Empty ones are left out.
UnpackPlan plan_unpack(std::span<const ckpt_restore_piece> pieces,
                       std::span<const ckpt_cuda_destination> destinations);

}  // namespace ckpt::lib

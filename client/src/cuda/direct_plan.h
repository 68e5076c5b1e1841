// DirectPlan: how the fragments of a window with a file get into device memory, and from there to
// their destinations. Pure.
//
//   file      ....[  A  ][ B ]..............[      C      ]...      fragments, anywhere
//   reads     |blocks of A, B|          |    blocks of C    |       whole blocks, each once
//   scratch   |blocks of A, B||    blocks of C    |
//   scatter       [  A  ][ B ]        [      C      ]               checked whole, wanted parts out
#pragma once

#include <ckpt/ckpt_cuda.h>
#include <ckpt/ckpt_direct.h>

#include <cstdint>
#include <span>
#include <vector>

#include "client/src/cuda/unpack_plan.h"

namespace ckpt::lib {

// All members are multiples of a block.
struct DirectRead {
  uint64_t file_offset = 0;
  uint64_t bytes = 0;
  uint64_t at = 0;  // in the scratch
  bool operator==(const DirectRead&) const = default;
};

struct DirectPlan {
  std::vector<DirectRead> reads;
  uint64_t bytes = 0;                 // of scratch
  std::vector<uint64_t> fragment_at;  // in the scratch, of each fragment
};

// The fragments are ascending and disjoint. No read is larger than read_bytes_max, a multiple of a
// block: parts of a large read can run concurrently.
DirectPlan plan_direct(std::span<const ckpt_restore_fragment> fragments, uint64_t read_bytes_max);

// Which fragments lack bytes. Read i returned its first got[i] bytes.
std::vector<bool> incomplete_fragments(const DirectPlan& plan,
                                       std::span<const ckpt_restore_fragment> fragments,
                                       std::span<const uint64_t> got);

// Calls of kernels::unpack on the scratch, as few as possible; their numbers are those of the
// fragments. Fragments that are left out are neither checked nor scattered.
struct ScatterPlan {
  std::vector<UnpackCall> calls;
  size_t ranges = 0;  // of all calls
};
ScatterPlan plan_scatter(const DirectPlan& plan, std::span<const ckpt_restore_fragment> fragments,
                         std::span<const ckpt_restore_piece> pieces,
                         std::span<const ckpt_cuda_destination> destinations,
                         const std::vector<bool>& left_out);

}  // namespace ckpt::lib

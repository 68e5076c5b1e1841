#include "client/src/cuda/unpack_plan.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "formats/base/checked.h"
#include "formats/base/ids.h"

namespace ckpt::lib {

size_t UnpackCall::table_bytes() const {
  uint64_t bytes = 0;
  for (const kernels::PackRange& range : ranges) bytes += range.bytes;
  return kernels::unpack_table_bytes(pieces.size(), ranges.size(), bytes);
}

UnpackPlan plan_unpack(std::span<const ckpt_restore_piece> pieces,
                       std::span<const ckpt_cuda_destination> destinations) {
  std::vector<size_t> order;
  order.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].length > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return pieces[a].at < pieces[b].at; });
  UnpackPlan plan;
  if (order.empty()) return plan;
  plan.begin = base::align_down(pieces[order.front()].at, kBlockBytes);
  plan.ranges = order.size();

  // End of each call's last range, the earliest on top: if that is too late, all are.
  using End = std::pair<uint64_t, size_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  for (const size_t number : order) {
    const ckpt_restore_piece& piece = pieces[number];
    size_t index = plan.calls.size();
    if (!ends.empty() && ends.top().first <= piece.at) {
      index = ends.top().second;
      ends.pop();
    } else {
      plan.calls.emplace_back();
    }
    ends.emplace(piece.at + piece.length, index);
    UnpackCall& call = plan.calls[index];
    const uint64_t at = piece.at - plan.begin;
    auto* to = static_cast<std::byte*>(destinations[piece.range].data) + piece.offset;
    call.pieces.push_back({to, at, piece.length});
    call.ranges.push_back({at, piece.length});
    call.expected.push_back(piece.crc32c);
    call.numbers.push_back(number);
    plan.bytes = std::max(plan.bytes, at + piece.length);
  }
  return plan;
}

}  // namespace ckpt::lib

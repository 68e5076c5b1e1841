#include "trainer/parallel/shard_layout.h"

namespace moetrain {

ShardLayout::ShardLayout(const ComputePlacement& placement, uint32_t layer, uint32_t rank,
                         uint64_t elements)
    : elements_(elements) {
  computed_.reserve(placement.ranks);
  for (uint32_t peer = 0; peer < placement.ranks; ++peer) {
    computed_.push_back(experts_of_rank(placement, layer, peer));
  }
  for (uint32_t peer = 0; peer < ranks(); ++peer) {
    const bool self = peer == rank;
    const size_t out = self ? 0 : part(rank).size() * computed_[peer].size();
    const size_t in = self ? 0 : part(peer).size() * computed_[rank].size();
    outgoing_.push_back(static_cast<int64_t>(out));
    incoming_.push_back(static_cast<int64_t>(in));
    outgoing_elements_ += out;
    incoming_elements_ += in;
  }
}

}  // namespace moetrain

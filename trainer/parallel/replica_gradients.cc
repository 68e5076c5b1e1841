#include "trainer/parallel/replica_gradients.h"

#include <algorithm>

#include "trainer/parallel/gradient_sums.h"

namespace moetrain {
namespace {

using Pieces = std::vector<GradientPiece>;

// Pieces of all peers in a row, and how many elements of each peer.
struct Side {
  Pieces pieces;
  std::vector<int64_t> sizes;
  size_t total = 0;
};

Side side_of(const Comm& comm, const ComputePlacement& placement, uint64_t elements, bool ours) {
  Side side;
  for (uint32_t peer = 0; peer < comm.size(); ++peer) {
    uint64_t size = 0;
    const uint32_t adder = ours ? comm.rank() : peer;
    for (const GradientPiece& piece :
         shared_pieces(placement, comm.rank(), peer, adder, elements)) {
      size += piece.end - piece.begin;
      side.pieces.push_back(piece);
    }
    side.sizes.push_back(static_cast<int64_t>(size));
    side.total += size;
  }
  return side;
}

// The pieces of one tensor of every expert, one after the other.
void gather(std::span<OwnedRange> owned, const Side& side, Tensor& (*of)(OwnedRange&), Tensor& to) {
  const size_t width = bytes_of(to.type());
  std::byte* at = to.data();
  for (const GradientPiece& piece : side.pieces) {
    const size_t bytes = (piece.end - piece.begin) * width;
    to.device()->copy(at, of(owned[piece.expert]).data() + piece.begin * width, bytes);
    at += bytes;
  }
}

Tensor& sum_of(OwnedRange& expert) { return expert.sum(); }
Tensor& grad_of(OwnedRange& expert) { return expert.grad; }

// Adds the pieces received from peers to those that this rank sums.
void add_pieces(std::span<OwnedRange> owned, const Side& ours, const Tensor& received) {
  uint64_t next = 0;
  for (const GradientPiece& piece : ours.pieces) {
    const uint64_t count = piece.end - piece.begin;
    add_gradients(owned[piece.expert].sum(), piece.begin, received, next, count);
    next += count;
  }
}

}  // namespace

std::vector<GradientPiece> shared_pieces(const ComputePlacement& placement, uint32_t rank,
                                         uint32_t peer, uint32_t adder, uint64_t elements) {
  CKPT_ASSERT(adder == rank || adder == peer);
  Pieces pieces;
  if (rank == peer) return pieces;
  size_t position = 0;
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    const auto holders = holders_of_experts(placement, layer);
    for (const uint32_t expert : experts_of_rank(placement, layer, rank)) {
      const std::vector<uint32_t>& ranks = holders[expert];
      if (std::ranges::binary_search(ranks, peer)) {
        const auto at =
            static_cast<uint64_t>(std::ranges::lower_bound(ranks, adder) - ranks.begin());
        const GradientPiece piece{position, elements * at / ranks.size(),
                                  elements * (at + 1) / ranks.size()};
        if (piece.begin < piece.end) pieces.push_back(piece);
      }
      ++position;
    }
  }
  return pieces;
}

Result<uint64_t> reduce_replica_gradients(Comm& comm, Device& device,
                                          const ComputePlacement& placement,
                                          std::span<OwnedRange> owned) {
  if (!has_replicas(placement)) {
    round_sums(owned);
    return uint64_t{0};
  }
  // A rank without experts shares nothing, whatever their size.
  const uint64_t elements = owned.empty() ? 0 : owned.front().elements.size();
  const Side theirs = side_of(comm, placement, elements, /*ours=*/false);
  const Side ours = side_of(comm, placement, elements, /*ours=*/true);
  Tensor send(device, device.grad_sum(), theirs.total);
  Tensor received(device, device.grad_sum(), ours.total);
  gather(owned, theirs, sum_of, send);
  CKPT_TRY(comm.all_to_all_v(send, theirs.sizes, received, ours.sizes));
  add_pieces(owned, ours, received);
  round_sums(owned);

  Tensor sums(device, Type::kFloat, ours.total);
  Tensor back(device, Type::kFloat, theirs.total);
  gather(owned, ours, grad_of, sums);
  CKPT_TRY(comm.all_to_all_v(sums, ours.sizes, back, theirs.sizes));
  const std::byte* at = back.data();
  for (const GradientPiece& piece : theirs.pieces) {
    const size_t bytes = (piece.end - piece.begin) * sizeof(float);
    device.copy(owned[piece.expert].grad.data() + piece.begin * sizeof(float), at, bytes);
    at += bytes;
  }
  return received.bytes() + back.bytes();
}

}  // namespace moetrain

#include "trainer/parallel/replica_gradients.h"

#include <algorithm>

namespace moetrain {
namespace {

using Pieces = std::vector<GradientPiece>;

// Calls visit(parameter, first element, how many) for the parts of w1, w2, w3 that pieces cover,
// in order.
template <typename Visit>
void visit_parts(std::span<Expert> owned, const Pieces& pieces, Visit visit) {
  for (const GradientPiece& piece : pieces) {
    Expert& expert = owned[piece.expert];
    uint64_t offset = 0;
    for (Parameter* parameter : {&expert.w1, &expert.w2, &expert.w3}) {
      const uint64_t size = parameter->grad.size();
      const uint64_t begin = std::clamp(piece.begin, offset, offset + size);
      const uint64_t end = std::clamp(piece.end, offset, offset + size);
      if (begin < end) visit(*parameter, begin - offset, end - begin);
      offset += size;
    }
  }
}

// Pieces of all peers in a row, and how many elements of each peer.
struct Side {
  Pieces pieces;
  std::vector<int64_t> sizes;
  size_t total = 0;
};

Side side_of(const Comm& comm, Model& model, bool ours) {
  const ExpertPlacement& placement = model.experts().placement();
  const uint64_t elements = expert_parameter_count(model.config());
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

// The pieces of one tensor of every parameter, one after the other.
void gather(Model& model, const Side& side, Tensor& (*of)(Parameter&), Tensor& to) {
  Device& device = model.device();
  std::byte* at = to.data();
  visit_parts(model.experts().owned(), side.pieces, [&](Parameter& p, uint64_t first, uint64_t n) {
    const size_t width = bytes_of(to.type());
    device.copy(at, of(p).data() + first * width, n * width);
    at += n * width;
  });
}

Tensor& sum_of(Parameter& parameter) { return parameter.sum(); }
Tensor& grad_of(Parameter& parameter) { return parameter.grad; }

// Adds what came from the peers to what is added up here.
void add_pieces(Model& model, const Side& ours, const Tensor& received) {
  size_t next = 0;
  visit_parts(model.experts().owned(), ours.pieces, [&](Parameter& p, uint64_t first, uint64_t n) {
    if (received.type() == Type::kFloat) {
      model.device().add(p.grad.as<float>() + first, received.as<float>() + next, n);
    } else {
      const std::span<const double> from = received.host<double>().subspan(next, n);
      const std::span<double> to = p.grad_sum.host<double>().subspan(first, n);
      for (size_t i = 0; i < n; ++i) to[i] += from[i];
    }
    next += n;
  });
}

// On the host: what was added up in double becomes the gradient.
void round_sums(std::span<Expert> owned) {
  for (Expert& expert : owned) {
    for (Parameter* parameter : {&expert.w1, &expert.w2, &expert.w3}) {
      if (parameter->grad_sum.empty()) continue;
      std::ranges::transform(parameter->grad_sum.host<double>(),
                             parameter->grad.host<float>().begin(),
                             [](double sum) { return static_cast<float>(sum); });
    }
  }
}

}  // namespace

std::vector<GradientPiece> shared_pieces(const ExpertPlacement& placement, uint32_t rank,
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

Status reduce_expert_gradients(Comm& comm, Model& model) {
  const bool alone = !has_replicas(model.experts().placement());
  if (alone) {
    round_sums(model.experts().owned());
    return {};
  }
  Device& device = model.device();
  const Side theirs = side_of(comm, model, /*ours=*/false);
  const Side ours = side_of(comm, model, /*ours=*/true);
  Tensor send(device, device.grad_sum(), theirs.total);
  Tensor received(device, device.grad_sum(), ours.total);
  gather(model, theirs, sum_of, send);
  CKPT_TRY(comm.all_to_all_v(send, theirs.sizes, received, ours.sizes));
  add_pieces(model, ours, received);
  round_sums(model.experts().owned());

  Tensor sums(device, Type::kFloat, ours.total);
  Tensor back(device, Type::kFloat, theirs.total);
  gather(model, ours, grad_of, sums);
  CKPT_TRY(comm.all_to_all_v(sums, ours.sizes, back, theirs.sizes));
  const std::byte* at = back.data();
  visit_parts(model.experts().owned(), theirs.pieces,
              [&](Parameter& p, uint64_t first, uint64_t n) {
                device.copy(p.grad.data() + first * sizeof(float), at, n * sizeof(float));
                at += n * sizeof(float);
              });
  return {};
}

}  // namespace moetrain

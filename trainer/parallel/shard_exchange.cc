#include "trainer/parallel/shard_exchange.h"

#include <memory>
#include <utility>
#include <vector>

#include "trainer/parallel/gradient_sums.h"

namespace moetrain {
namespace {

void copy_elements(Tensor& to, uint64_t to_begin, const Tensor& from, uint64_t from_begin,
                   uint64_t count) {
  CKPT_ASSERT(to.type() == from.type());
  CKPT_ASSERT(to_begin + count <= to.size() && from_begin + count <= from.size());
  if (count == 0) return;
  const size_t width = bytes_of(to.type());
  to.device()->copy(to.data() + to_begin * width, from.data() + from_begin * width, count * width);
}

// Copies in host memory of the bytes that an exchange sends and receives.
struct HostBytes {
  std::vector<std::byte> send;
  std::vector<std::byte> receive;
  std::vector<int64_t> send_counts;
  std::vector<int64_t> receive_counts;

  Status move(Comm& comm) {
    return comm.all_to_all_v(std::span<const std::byte>(send), send_counts,
                             std::span<std::byte>(receive), receive_counts);
  }
};

}  // namespace

void resize_exact(Device& device, Tensor& tensor, Type type, size_t size) {
  if (tensor.room_bytes() < size * bytes_of(type)) tensor = Tensor();
  tensor.reshape(device, type, size);
}

// An exchange as its two halves around the move.
struct ShardExchange::Parts {
  std::function<void()> pack;    // into send_
  std::function<void()> unpack;  // from receive_
  std::span<const int64_t> sends;
  std::span<const int64_t> receives;
  Type type = Type::kFloat;
  size_t received_elements = 0;
  uint64_t* received_bytes = nullptr;
};

Result<LayerExchange> ShardExchange::split(Parts parts, Mover mover) {
  if (mover == Mover::kRankThread || device_.is_host()) {
    auto whole = [this, parts = std::move(parts)](Comm& comm) -> Status {
      parts.pack();
      resize_exact(device_, receive_, parts.type, parts.received_elements);
      CKPT_TRY(comm.all_to_all_v(send_, parts.sends, receive_, parts.receives));
      *parts.received_bytes += receive_.bytes();
      parts.unpack();
      return {};
    };
    return LayerExchange{std::move(whole), {}};
  }
  parts.pack();
  const auto staged = std::make_shared<HostBytes>();
  staged->send.resize(send_.bytes());
  CKPT_TRY(send_.read_bytes(staged->send));
  staged->receive.resize(parts.received_elements * bytes_of(parts.type));
  staged->send_counts = counts_in_bytes(parts.sends, parts.type);
  staged->receive_counts = counts_in_bytes(parts.receives, parts.type);
  auto finish = [this, staged, parts = std::move(parts)]() -> Status {
    resize_exact(device_, receive_, parts.type, parts.received_elements);
    receive_.write_bytes(staged->receive);
    *parts.received_bytes += staged->receive.size();
    parts.unpack();
    return {};
  };
  return LayerExchange{[staged](Comm& comm) { return staged->move(comm); }, std::move(finish)};
}

Result<LayerExchange> ShardExchange::restore(const ShardLayout& layout, uint32_t rank,
                                             std::span<OwnedRange> owned, std::span<Tensor> weights,
                                             Mover mover) {
  return split({.pack = [this, &layout, rank, owned] { pack_weights(layout, rank, owned); },
                .unpack = [this, &layout, rank, owned,
                           weights] { unpack_weights(layout, rank, owned, weights); },
                .sends = layout.outgoing(),
                .receives = layout.incoming(),
                .type = device_.flow(),
                .received_elements = layout.incoming_elements(),
                .received_bytes = &traffic_.weights},
               mover);
}

Result<LayerExchange> ShardExchange::reshard(const ShardLayout& layout, uint32_t rank,
                                             std::span<const Tensor> gradients,
                                             std::span<OwnedRange> owned, Mover mover) {
  return split(
      {.pack = [this, &layout, rank, gradients] { pack_gradients(layout, rank, gradients); },
       .unpack = [this, &layout, rank, gradients,
                  owned] { add_up(layout, rank, gradients, owned); },
       .sends = layout.incoming(),
       .receives = layout.outgoing(),
       .type = device_.grad_sum(),
       .received_elements = layout.outgoing_elements(),
       .received_bytes = &traffic_.gradients},
      mover);
}

void ShardExchange::free_buffers() {
  send_ = Tensor();
  receive_ = Tensor();
}

void ShardExchange::pack_weights(const ShardLayout& layout, uint32_t rank,
                                 std::span<OwnedRange> owned) {
  const uint64_t own = layout.part(rank).size();
  resize_exact(device_, send_, device_.flow(), layout.outgoing_elements());
  uint64_t next = 0;
  for (uint32_t peer = 0; peer < layout.ranks(); ++peer) {
    if (peer == rank) continue;
    for (const uint32_t expert : layout.computed_by(peer)) {
      copy_elements(send_, next, owned[expert].weights(), 0, own);
      next += own;
    }
  }
}

void ShardExchange::unpack_weights(const ShardLayout& layout, uint32_t rank,
                                   std::span<OwnedRange> owned, std::span<Tensor> weights) {
  const ElementRange own = layout.part(rank);
  const std::span<const uint32_t> mine = layout.computed_by(rank);
  for (size_t i = 0; i < mine.size(); ++i) {
    resize_exact(device_, weights[i], device_.flow(), layout.elements());
    copy_elements(weights[i], own.begin, owned[mine[i]].weights(), 0, own.size());
  }
  uint64_t next = 0;
  for (uint32_t peer = 0; peer < layout.ranks(); ++peer) {
    if (peer == rank) continue;
    const ElementRange part = layout.part(peer);
    for (size_t i = 0; i < mine.size(); ++i) {
      copy_elements(weights[i], part.begin, receive_, next, part.size());
      next += part.size();
    }
  }
}

void ShardExchange::pack_gradients(const ShardLayout& layout, uint32_t rank,
                                   std::span<const Tensor> gradients) {
  resize_exact(device_, send_, device_.grad_sum(), layout.incoming_elements());
  uint64_t next = 0;
  for (uint32_t peer = 0; peer < layout.ranks(); ++peer) {
    if (peer == rank) continue;
    const ElementRange part = layout.part(peer);
    for (size_t i = 0; i < layout.computed_by(rank).size(); ++i) {
      copy_elements(send_, next, gradients[i], part.begin, part.size());
      next += part.size();
    }
  }
}

void ShardExchange::add_up(const ShardLayout& layout, uint32_t rank,
                           std::span<const Tensor> gradients, std::span<OwnedRange> owned) {
  const ElementRange own = layout.part(rank);
  uint64_t next = 0;
  for (uint32_t peer = 0; peer < layout.ranks(); ++peer) {
    const std::span<const uint32_t> experts = layout.computed_by(peer);
    for (size_t i = 0; i < experts.size(); ++i) {
      Tensor& sum = owned[experts[i]].sum();
      if (peer == rank) {
        add_gradients(sum, 0, gradients[i], own.begin, own.size());
      } else {
        add_gradients(sum, 0, receive_, next, own.size());
        next += own.size();
      }
    }
  }
}

}  // namespace moetrain

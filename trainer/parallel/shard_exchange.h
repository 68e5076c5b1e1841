// ShardExchange: moves the weights and gradients of one layer's sharded experts between the ranks
// that own their parts and the ranks that compute them. Packs, exchanges and unpacks; the order of
// everything is that of ShardLayout.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "trainer/model/expert_store.h"
#include "trainer/parallel/shard_layout.h"

namespace moetrain {

// Resizes the tensor to `size` elements, and allocates exactly that if it needs more memory.
// Tensor::reshape() would allocate a quarter more, beyond the bound on memory.
void resize_exact(Device& device, Tensor& tensor, Type type, size_t size);

// One exchange of a layer, in two parts.
struct LayerExchange {
  std::function<Status(Comm&)> move;  // a collective, on the thread of its communicator
  std::function<Status()> finish;     // then, on the rank's thread; empty: nothing is left
};

// The thread that moves is another one than the rank's.
enum class Mover : uint8_t { kRankThread, kOtherThread };

// One per rank. It has one send and one receive buffer, so exchanges that move in another thread
// move one at a time. On the host all of an exchange happens in `move`. Memory of a GPU is used
// from the rank's thread alone: for another thread it packs into host memory at once, and unpacks
// in `finish`. What the arguments refer to outlives the exchange.
class ShardExchange {
 public:
  explicit ShardExchange(Device& device) : device_(device) {}

  // `owned`: this rank's ranges of all experts of the layer, by expert. `weights` and `gradients`,
  // [i] of the i-th expert that `rank` computes: whole experts of the layout's elements.
  //
  // Fills `weights` with the parts of all ranks.
  Result<LayerExchange> restore(const ShardLayout& layout, uint32_t rank,
                                std::span<OwnedRange> owned, std::span<Tensor> weights,
                                Mover mover);
  // Adds the gradients of all ranks to the sums of `owned`, ranks ascending.
  Result<LayerExchange> reshard(const ShardLayout& layout, uint32_t rank,
                                std::span<const Tensor> gradients, std::span<OwnedRange> owned,
                                Mover mover);

  // Bytes received from other ranks since clear_traffic(). While nothing moves.
  ExpertTraffic traffic() const { return traffic_; }
  void clear_traffic() { traffic_ = {}; }
  // While nothing moves. The next exchange makes new ones.
  void free_buffers();
  // Bytes on the device.
  uint64_t memory_bytes() const { return send_.room_bytes() + receive_.room_bytes(); }

 private:
  struct Parts;
  Result<LayerExchange> split(Parts parts, Mover mover);
  void pack_weights(const ShardLayout& layout, uint32_t rank, std::span<OwnedRange> owned);
  void unpack_weights(const ShardLayout& layout, uint32_t rank, std::span<OwnedRange> owned,
                      std::span<Tensor> weights);
  void pack_gradients(const ShardLayout& layout, uint32_t rank, std::span<const Tensor> gradients);
  void add_up(const ShardLayout& layout, uint32_t rank, std::span<const Tensor> gradients,
              std::span<OwnedRange> owned);

  Device& device_;
  Tensor send_;
  Tensor receive_;
  ExpertTraffic traffic_;
};

}  // namespace moetrain

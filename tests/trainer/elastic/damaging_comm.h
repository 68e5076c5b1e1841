// A communicator whose last received byte is another one than was sent.
#pragma once

#include "trainer/parallel/comm.h"

namespace moetrain {

// Only bytes are damaged, not numbers. The other communicator outlives it.
class DamagingComm final : public Comm {
 public:
  explicit DamagingComm(Comm& inner) : inner_(inner) {}
  uint32_t rank() const override { return inner_.rank(); }
  uint32_t size() const override { return inner_.size(); }
  Status all_reduce_sum(std::span<float> values) override { return inner_.all_reduce_sum(values); }
  Status all_reduce_sum(std::span<double> values) override { return inner_.all_reduce_sum(values); }
  Status all_reduce_sum(std::span<int64_t> values) override {
    return inner_.all_reduce_sum(values);
  }
  Status all_reduce_max(std::span<int64_t> values) override {
    return inner_.all_reduce_max(values);
  }
  Status all_to_all_v(std::span<const float> send, std::span<const int64_t> send_counts,
                      std::span<float> recv, std::span<const int64_t> recv_counts) override {
    return inner_.all_to_all_v(send, send_counts, recv, recv_counts);
  }
  Status all_to_all_v(std::span<const int64_t> send, std::span<const int64_t> send_counts,
                      std::span<int64_t> recv, std::span<const int64_t> recv_counts) override {
    return inner_.all_to_all_v(send, send_counts, recv, recv_counts);
  }
  Status all_to_all_v(std::span<const std::byte> send, std::span<const int64_t> send_counts,
                      std::span<std::byte> recv, std::span<const int64_t> recv_counts) override {
    const Status moved = inner_.all_to_all_v(send, send_counts, recv, recv_counts);
    if (!recv.empty()) recv.back() ^= std::byte{1};
    return moved;
  }
  Status all_gather(std::span<const int64_t> send, std::span<int64_t> recv) override {
    return inner_.all_gather(send, recv);
  }
  Status broadcast(std::span<float> values, uint32_t root) override {
    return inner_.broadcast(values, root);
  }
  Status broadcast(std::span<int64_t> values, uint32_t root) override {
    return inner_.broadcast(values, root);
  }
  Status barrier() override { return inner_.barrier(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  int64_t waited_ns() const override { return inner_.waited_ns(); }

 private:
  Comm& inner_;
};

}  // namespace moetrain

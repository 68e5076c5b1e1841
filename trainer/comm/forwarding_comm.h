// ForwardingComm: a communicator that passes every collective on to another one, by way of run().
#pragma once

#include <functional>

#include "trainer/comm/comm.h"

namespace moetrain {

class ForwardingComm : public Comm {
 public:
  uint32_t rank() const override { return inner_.rank(); }
  uint32_t size() const override { return inner_.size(); }
  Status all_reduce_sum(std::span<float> values) override {
    return run([&](Comm& comm) { return comm.all_reduce_sum(values); });
  }
  Status all_reduce_sum(std::span<double> values) override {
    return run([&](Comm& comm) { return comm.all_reduce_sum(values); });
  }
  Status all_reduce_sum(std::span<int64_t> values) override {
    return run([&](Comm& comm) { return comm.all_reduce_sum(values); });
  }
  Status all_reduce_max(std::span<int64_t> values) override {
    return run([&](Comm& comm) { return comm.all_reduce_max(values); });
  }
  Status all_reduce_sum(Tensor& values) override {
    return run([&](Comm& comm) { return comm.all_reduce_sum(values); });
  }
  Status all_to_all_v(std::span<const float> send, std::span<const int64_t> send_counts,
                      std::span<float> recv, std::span<const int64_t> recv_counts) override {
    return run([&](Comm& comm) { return comm.all_to_all_v(send, send_counts, recv, recv_counts); });
  }
  Status all_to_all_v(std::span<const int64_t> send, std::span<const int64_t> send_counts,
                      std::span<int64_t> recv, std::span<const int64_t> recv_counts) override {
    return run([&](Comm& comm) { return comm.all_to_all_v(send, send_counts, recv, recv_counts); });
  }
  Status all_to_all_v(std::span<const std::byte> send, std::span<const int64_t> send_counts,
                      std::span<std::byte> recv, std::span<const int64_t> recv_counts) override {
    return run([&](Comm& comm) { return comm.all_to_all_v(send, send_counts, recv, recv_counts); });
  }
  Status all_to_all_v(const Tensor& send, std::span<const int64_t> send_counts, Tensor& recv,
                      std::span<const int64_t> recv_counts) override {
    return run([&](Comm& comm) { return comm.all_to_all_v(send, send_counts, recv, recv_counts); });
  }
  Status all_gather(std::span<const int64_t> send, std::span<int64_t> recv) override {
    return run([&](Comm& comm) { return comm.all_gather(send, recv); });
  }
  Status broadcast(std::span<float> values, uint32_t root) override {
    return run([&](Comm& comm) { return comm.broadcast(values, root); });
  }
  Status broadcast(std::span<int64_t> values, uint32_t root) override {
    return run([&](Comm& comm) { return comm.broadcast(values, root); });
  }
  Status barrier() override {
    return run([](Comm& comm) { return comm.barrier(); });
  }
  int64_t waited_ns() const override { return inner_.waited_ns(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  CommThread* comm_thread() override { return inner_.comm_thread(); }

 protected:
  using Collective = std::function<Status(Comm&)>;

  // `inner` outlives it.
  explicit ForwardingComm(Comm& inner) : inner_(inner) {}
  // Every collective comes by here.
  virtual Status run(const Collective& collective) { return collective(inner_); }
  Comm& inner() { return inner_; }

 private:
  Comm& inner_;
};

}  // namespace moetrain

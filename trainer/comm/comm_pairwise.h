// PairwiseComm: every collective written once, over one primitive that moves messages between
// pairs.
//
// Transports (gloo, local) only implement `exchange`, so they agree to the last bit. A sum is
// always x0 + x1 + ... + x(n-1), element by element, in order of rank: each rank owns an equal
// chunk, receives that chunk from everyone, adds in order of rank, and sends the sum back to
// everyone (the traffic of a ring, in two rounds). Where a buffer is cut therefore never changes a
// result: buckets of any size, or one buffer, give the same bits. Small buffers go to everyone in
// one round and are added by each rank in that same order.
//
// Thread: one thread calls collectives; abort() may come from any.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trainer/comm/comm.h"

namespace moetrain {

// Bytes [offset, offset + bytes) of the exchange's send (or recv) buffer go to (come from) `peer`.
struct Transfer {
  uint32_t peer = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// At most one transfer per peer and direction, none of zero bytes, none to oneself. Every send has
// its recv of the same size at the peer. Receives and sends touch disjoint memory.
struct Exchange {
  std::span<const std::byte> send;
  std::span<std::byte> recv;
  std::vector<Transfer> sends;
  std::vector<Transfer> recvs;
  Device* device = nullptr;  // whose memory the buffers are; null: the host's
};

class PairwiseComm : public Comm {
 public:
  using Comm::all_reduce_sum;
  using Comm::all_to_all_v;
  uint32_t rank() const final { return rank_; }
  uint32_t size() const final { return size_; }

  Status all_reduce_sum(std::span<float> values) final;
  Status all_reduce_sum(std::span<double> values) final;
  Status all_reduce_sum(std::span<int64_t> values) final;
  Status all_reduce_max(std::span<int64_t> values) final;
  Status all_reduce_sum(Tensor& values) final;
  Status all_to_all_v(std::span<const float> send, std::span<const int64_t> send_counts,
                      std::span<float> recv, std::span<const int64_t> recv_counts) final;
  Status all_to_all_v(std::span<const int64_t> send, std::span<const int64_t> send_counts,
                      std::span<int64_t> recv, std::span<const int64_t> recv_counts) final;
  Status all_to_all_v(std::span<const std::byte> send, std::span<const int64_t> send_counts,
                      std::span<std::byte> recv, std::span<const int64_t> recv_counts) final;
  Status all_to_all_v(const Tensor& send, std::span<const int64_t> send_counts, Tensor& recv,
                      std::span<const int64_t> recv_counts) final;
  Status all_gather(std::span<const int64_t> send, std::span<int64_t> recv) final;
  Status broadcast(std::span<float> values, uint32_t root) final;
  Status broadcast(std::span<int64_t> values, uint32_t root) final;
  Status barrier() final;
  int64_t waited_ns() const final { return waited_ns_; }
  void abort(const std::string& reason) final;

 protected:
  PairwiseComm(uint32_t rank, uint32_t size) : rank_(rank), size_(size) {}

  // Moves all messages of one collective; returns when the send buffer may be changed and the recv
  // buffer is filled. Errors: kAborted, kDeadlineExceeded.
  virtual Status exchange(const Exchange& exchange) = 0;
  // Whether exchange() also moves messages from device to device.
  virtual bool reaches_devices() const { return false; }
  // Makes exchanges in progress, here and as soon as possible at the peers, return. Any thread;
  // may be called more than once.
  virtual void interrupt(const std::string& reason) = 0;

  // The reason of the first failure or abort, if there was one.
  std::optional<std::string> failure() const;

 private:
  // Runs an exchange; after a failure, only refuses. Errors name the collective and the rank.
  Status run(const char* collective, const Exchange& exchange);
  template <typename T, typename Combine>
  Status all_reduce(const char* collective, std::span<T> values, Combine combine);
  template <typename T, typename Combine>
  Status all_reduce_at_once(const char* collective, std::span<T> values, Combine combine);
  // The two rounds of a sum of `count` elements. `device`: whose memory it is; null: the host's.
  Exchange scatter_parts(std::span<const std::byte> values, std::span<std::byte> parts,
                         size_t count, size_t element_bytes, Device* device = nullptr) const;
  Exchange gather_sums(std::span<std::byte> values, size_t count, size_t element_bytes,
                       Device* device = nullptr) const;
  template <typename T>
  Status all_to_all(std::span<const T> send, std::span<const int64_t> send_counts,
                    std::span<T> recv, std::span<const int64_t> recv_counts,
                    Device* device = nullptr);
  template <typename T>
  Status broadcast_from(std::span<T> values, uint32_t root);
  // Room for `bytes` from every rank; kept between calls, because fresh memory is slow to touch.
  template <typename T>
  std::span<T> scratch(size_t count);

  const uint32_t rank_;
  const uint32_t size_;
  std::vector<std::byte> scratch_;
  int64_t waited_ns_ = 0;
  mutable std::mutex failure_mutex_;
  std::optional<std::string> failure_;
};

}  // namespace moetrain

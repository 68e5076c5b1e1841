#include "trainer/comm/comm_pairwise.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "formats/base/assert.h"
#include "trainer/device/device.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Up to here one round of whole buffers is faster than two rounds of chunks: a round costs more
// than the few kilobytes it saves.
constexpr size_t kAtOnceBytesMax = 4096;

// Chunk `index` of `count` values cut into `parts` as evenly as possible: [begin, end).
struct Chunk {
  size_t begin;
  size_t end;
  size_t size() const { return end - begin; }
};
Chunk chunk_of(size_t count, uint32_t parts, uint32_t index) {
  const size_t base = count / parts;
  const size_t longer = count % parts;
  const size_t begin = index * base + std::min<size_t>(index, longer);
  return {begin, begin + base + (index < longer ? 1 : 0)};
}

void add_transfer(std::vector<Transfer>& transfers, uint32_t peer, uint64_t offset,
                  uint64_t bytes) {
  if (bytes > 0) transfers.push_back({peer, offset, bytes});
}

}  // namespace

std::optional<std::string> PairwiseComm::failure() const {
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

void PairwiseComm::abort(const std::string& reason) {
  {
    std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = reason;
  }
  interrupt(reason);
}

Status PairwiseComm::run(const char* collective, const Exchange& exchange) {
  if (auto reason = failure()) {
    return make_error(ErrorCode::kAborted, "rank {} {}: {}", rank_, collective, *reason);
  }
  const auto begin = std::chrono::steady_clock::now();
  Status status = this->exchange(exchange);
  waited_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  if (status.ok()) return status;
  // An abort is the cause; the transport's error is only its effect.
  const auto reason = failure();
  abort(status.error().message);
  const ErrorCode code = reason ? ErrorCode::kAborted : status.error().code;
  return make_error(code, "rank {} {}: {}", rank_, collective,
                    reason ? *reason : status.error().message);
}

// Collects the chunk that this rank adds up from every rank's values; into parts, by rank.
Exchange PairwiseComm::scatter_parts(std::span<const std::byte> values, std::span<std::byte> parts,
                                     size_t count, size_t element_bytes, Device* device) const {
  const uint64_t mine = chunk_of(count, size_, rank_).size() * element_bytes;
  Exchange exchange{values, parts, {}, {}, device};
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const Chunk theirs = chunk_of(count, size_, peer);
    add_transfer(exchange.sends, peer, theirs.begin * element_bytes, theirs.size() * element_bytes);
    add_transfer(exchange.recvs, peer, peer * mine, mine);
  }
  return exchange;
}

// This rank's sums to everyone, theirs from them.
Exchange PairwiseComm::gather_sums(std::span<std::byte> values, size_t count, size_t element_bytes,
                                   Device* device) const {
  const Chunk mine = chunk_of(count, size_, rank_);
  Exchange exchange{values, values, {}, {}, device};
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const Chunk theirs = chunk_of(count, size_, peer);
    add_transfer(exchange.sends, peer, mine.begin * element_bytes, mine.size() * element_bytes);
    add_transfer(exchange.recvs, peer, theirs.begin * element_bytes, theirs.size() * element_bytes);
  }
  return exchange;
}

template <typename T>
std::span<T> PairwiseComm::scratch(size_t count) {
  if (scratch_.size() < count * sizeof(T)) scratch_.resize(count * sizeof(T));
  return {reinterpret_cast<T*>(scratch_.data()), count};
}

template <typename T, typename Combine>
Status PairwiseComm::all_reduce_at_once(const char* collective, std::span<T> values,
                                        Combine combine) {
  const std::span<T> all = scratch<T>(values.size() * size_);
  Exchange exchange{std::as_bytes(values), std::as_writable_bytes(all), {}, {}};
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    add_transfer(exchange.sends, peer, 0, values.size_bytes());
    add_transfer(exchange.recvs, peer, peer * values.size_bytes(), values.size_bytes());
  }
  CKPT_TRY(run(collective, exchange));
  std::copy(values.begin(), values.end(), all.begin() + rank_ * values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    T sum = all[i];
    for (uint32_t r = 1; r < size_; ++r) sum = combine(sum, all[r * values.size() + i]);
    values[i] = sum;
  }
  return {};
}

template <typename T, typename Combine>
Status PairwiseComm::all_reduce(const char* collective, std::span<T> values, Combine combine) {
  if (size_ == 1 || values.empty()) return {};
  if (values.size_bytes() <= kAtOnceBytesMax) {
    return all_reduce_at_once(collective, values, combine);
  }
  const Chunk mine = chunk_of(values.size(), size_, rank_);
  const std::span<T> parts = scratch<T>(mine.size() * size_);
  CKPT_TRY(run(collective, scatter_parts(std::as_bytes(values), std::as_writable_bytes(parts),
                                         values.size(), sizeof(T))));

  const std::span<T> own = values.subspan(mine.begin, mine.size());
  std::copy(own.begin(), own.end(), parts.begin() + rank_ * mine.size());
  std::copy_n(parts.begin(), mine.size(), own.begin());
  for (uint32_t r = 1; r < size_; ++r) {
    const T* from = parts.data() + r * mine.size();
    for (size_t i = 0; i < own.size(); ++i) own[i] = combine(own[i], from[i]);
  }

  return run(collective, gather_sums(std::as_writable_bytes(values), values.size(), sizeof(T)));
}

template <typename T>
Status PairwiseComm::all_to_all(std::span<const T> send, std::span<const int64_t> send_counts,
                                std::span<T> recv, std::span<const int64_t> recv_counts,
                                Device* device) {
  CKPT_ASSERT(send_counts.size() == size_ && recv_counts.size() == size_);
  Exchange exchange{std::as_bytes(send), std::as_writable_bytes(recv), {}, {}, device};
  size_t sent = 0;
  size_t received = 0;
  size_t own_from = 0;
  size_t own_to = 0;
  for (uint32_t peer = 0; peer < size_; ++peer) {
    CKPT_ASSERT(send_counts[peer] >= 0 && recv_counts[peer] >= 0);
    const auto out = static_cast<size_t>(send_counts[peer]);
    const auto in = static_cast<size_t>(recv_counts[peer]);
    if (peer == rank_) {
      CKPT_ASSERT(out == in);
      own_from = sent;
      own_to = received;
    } else {
      add_transfer(exchange.sends, peer, sent * sizeof(T), out * sizeof(T));
      add_transfer(exchange.recvs, peer, received * sizeof(T), in * sizeof(T));
    }
    sent += out;
    received += in;
  }
  CKPT_ASSERT(sent <= send.size() && received <= recv.size());
  CKPT_TRY(run("all_to_all_v", exchange));
  const auto own = static_cast<size_t>(send_counts[rank_]);
  if (device != nullptr) {
    device->copy(recv.data() + own_to, send.data() + own_from, own * sizeof(T));
  } else {
    std::copy_n(send.begin() + own_from, own, recv.begin() + own_to);
  }
  return {};
}

template <typename T>
Status PairwiseComm::broadcast_from(std::span<T> values, uint32_t root) {
  CKPT_ASSERT(root < size_);
  Exchange exchange{std::as_bytes(values), std::as_writable_bytes(values), {}, {}};
  if (rank_ != root) {
    add_transfer(exchange.recvs, root, 0, values.size_bytes());
  } else {
    for (uint32_t peer = 0; peer < size_; ++peer) {
      if (peer != rank_) add_transfer(exchange.sends, peer, 0, values.size_bytes());
    }
  }
  return run("broadcast", exchange);
}

Status PairwiseComm::all_reduce_sum(std::span<float> values) {
  return all_reduce("all_reduce", values, std::plus<float>());
}
Status PairwiseComm::all_reduce_sum(std::span<double> values) {
  return all_reduce("all_reduce", values, std::plus<double>());
}
Status PairwiseComm::all_reduce_sum(std::span<int64_t> values) {
  return all_reduce("all_reduce", values, std::plus<int64_t>());
}
Status PairwiseComm::all_reduce_max(std::span<int64_t> values) {
  return all_reduce("all_reduce", values, [](int64_t a, int64_t b) { return std::max(a, b); });
}

// all_reduce() with the device's copies and additions: the same bits.
Status PairwiseComm::all_reduce_sum(Tensor& values) {
  Device* const device = values.device();
  if (size_ == 1 || values.empty() || !reaches_devices() || device->is_host()) {
    return Comm::all_reduce_sum(values);
  }
  CKPT_ASSERT(values.type() == Type::kFloat);
  const Chunk mine = chunk_of(values.size(), size_, rank_);
  Tensor parts(*device, Type::kFloat, mine.size() * size_);
  CKPT_TRY(device->synchronize());  // peers read what is there
  const std::span<std::byte> bytes(values.data(), values.bytes());
  const std::span<std::byte> part_bytes(parts.data(), parts.bytes());
  CKPT_TRY(
      run("all_reduce", scatter_parts(bytes, part_bytes, values.size(), sizeof(float), device)));
  if (mine.size() > 0) {
    float* const own = values.as<float>() + mine.begin;
    float* const from = parts.as<float>();
    const size_t own_bytes = mine.size() * sizeof(float);
    if (rank_ != 0) {
      device->copy(from + rank_ * mine.size(), own, own_bytes);
      device->copy(own, from, own_bytes);
    }
    for (uint32_t r = 1; r < size_; ++r) device->add(own, from + r * mine.size(), mine.size());
    CKPT_TRY(device->synchronize());  // peers read the sums
  }
  return run("all_reduce", gather_sums(bytes, values.size(), sizeof(float), device));
}

Status PairwiseComm::all_to_all_v(std::span<const float> send, std::span<const int64_t> send_counts,
                                  std::span<float> recv, std::span<const int64_t> recv_counts) {
  return all_to_all(send, send_counts, recv, recv_counts);
}
Status PairwiseComm::all_to_all_v(std::span<const int64_t> send,
                                  std::span<const int64_t> send_counts, std::span<int64_t> recv,
                                  std::span<const int64_t> recv_counts) {
  return all_to_all(send, send_counts, recv, recv_counts);
}

Status PairwiseComm::all_to_all_v(std::span<const std::byte> send,
                                  std::span<const int64_t> send_counts, std::span<std::byte> recv,
                                  std::span<const int64_t> recv_counts) {
  return all_to_all(send, send_counts, recv, recv_counts);
}

Status PairwiseComm::all_to_all_v(const Tensor& send, std::span<const int64_t> send_counts,
                                  Tensor& recv, std::span<const int64_t> recv_counts) {
  Device* const device = recv.device();
  if (!reaches_devices() || device == nullptr || device->is_host()) {
    return Comm::all_to_all_v(send, send_counts, recv, recv_counts);
  }
  CKPT_TRY(device->synchronize());  // peers read what is there
  const std::span<const std::byte> from(send.data(), send.bytes());
  const std::span<std::byte> to(recv.data(), recv.bytes());
  return all_to_all(from, std::span<const int64_t>(counts_in_bytes(send_counts, send.type())), to,
                    std::span<const int64_t>(counts_in_bytes(recv_counts, recv.type())), device);
}

Status PairwiseComm::all_gather(std::span<const int64_t> send, std::span<int64_t> recv) {
  CKPT_ASSERT(recv.size() == send.size() * size_);
  Exchange exchange{std::as_bytes(send), std::as_writable_bytes(recv), {}, {}};
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    add_transfer(exchange.sends, peer, 0, send.size_bytes());
    add_transfer(exchange.recvs, peer, peer * send.size_bytes(), send.size_bytes());
  }
  CKPT_TRY(run("all_gather", exchange));
  std::copy(send.begin(), send.end(), recv.begin() + rank_ * send.size());
  return {};
}

Status PairwiseComm::broadcast(std::span<float> values, uint32_t root) {
  return broadcast_from(values, root);
}
Status PairwiseComm::broadcast(std::span<int64_t> values, uint32_t root) {
  return broadcast_from(values, root);
}

Status PairwiseComm::barrier() {
  // A message from everyone to everyone: no rank leaves before all have entered.
  std::vector<std::byte> messages(size_ + 1);
  Exchange exchange{std::span(messages).first(1), std::span(messages).subspan(1), {}, {}};
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    add_transfer(exchange.sends, peer, 0, 1);
    add_transfer(exchange.recvs, peer, peer, 1);
  }
  return run("barrier", exchange);
}

}  // namespace moetrain

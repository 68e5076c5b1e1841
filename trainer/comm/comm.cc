// Collectives of device memory, by way of host memory.
#include "trainer/comm/comm.h"

#include "trainer/device/device.h"

namespace moetrain {

namespace {

std::span<std::byte> host_bytes(Tensor& tensor) { return {tensor.data(), tensor.bytes()}; }
std::span<const std::byte> host_bytes(const Tensor& tensor) {
  return {tensor.data(), tensor.bytes()};
}

}  // namespace

std::vector<int64_t> counts_in_bytes(std::span<const int64_t> counts, Type type) {
  std::vector<int64_t> bytes;
  for (const int64_t count : counts) {
    bytes.push_back(count * static_cast<int64_t>(bytes_of(type)));
  }
  return bytes;
}

Status Comm::all_reduce_sum(Tensor& values) {
  if (size() == 1 || values.empty()) return {};
  if (values.device()->is_host()) return all_reduce_sum(values.host<float>());
  CKPT_ASSERT(values.type() == Type::kFloat);
  host_send_.resize(values.bytes());
  CKPT_TRY(values.read_bytes(host_send_));
  CKPT_TRY(
      all_reduce_sum(std::span<float>(reinterpret_cast<float*>(host_send_.data()), values.size())));
  values.write_bytes(host_send_);
  return {};
}

Status Comm::all_to_all_v(const Tensor& send, std::span<const int64_t> send_counts, Tensor& recv,
                          std::span<const int64_t> recv_counts) {
  const std::vector<int64_t> sent = counts_in_bytes(send_counts, send.type());
  const std::vector<int64_t> received = counts_in_bytes(recv_counts, recv.type());
  const Device* device = send.device() != nullptr ? send.device() : recv.device();
  if (device == nullptr || device->is_host()) {
    return all_to_all_v(host_bytes(send), sent, host_bytes(recv), received);
  }
  host_send_.resize(send.bytes());
  host_recv_.resize(recv.bytes());
  CKPT_TRY(send.read_bytes(host_send_));
  CKPT_TRY(all_to_all_v(std::span<const std::byte>(host_send_), sent,
                        std::span<std::byte>(host_recv_), received));
  recv.write_bytes(host_recv_);
  return {};
}

}  // namespace moetrain

// A communicator that damages the last byte that it receives.
#pragma once

#include "trainer/comm/forwarding_comm.h"

namespace moetrain {

// Only bytes are damaged, not numbers. The other communicator outlives it.
class DamagingComm final : public ForwardingComm {
 public:
  explicit DamagingComm(Comm& other) : ForwardingComm(other) {}
  using ForwardingComm::all_to_all_v;
  Status all_to_all_v(std::span<const std::byte> send, std::span<const int64_t> send_counts,
                      std::span<std::byte> recv, std::span<const int64_t> recv_counts) override {
    const Status moved = ForwardingComm::all_to_all_v(send, send_counts, recv, recv_counts);
    if (!recv.empty()) recv.back() ^= std::byte{1};
    return moved;
  }
};

}  // namespace moetrain

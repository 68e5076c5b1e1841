#include "trainer/rank/epoch_comm.h"

namespace moetrain {

using ckpt::ErrorCode;

bool is_group_loss(const ckpt::Error& error) {
  return error.code == ErrorCode::kAborted || error.code == ErrorCode::kDeadlineExceeded ||
         error.code == ErrorCode::kUnavailable;
}

Status EpochComm::all_reduce_max(std::span<int64_t> values) {
  return lend([values](Comm& comm) { return comm.all_reduce_max(values); });
}

Status EpochComm::all_reduce_sum(std::span<int64_t> values) {
  return lend([values](Comm& comm) { return comm.all_reduce_sum(values); });
}

Status EpochComm::all_gather(std::span<const int64_t> send, std::span<int64_t> recv) {
  return lend([send, recv](Comm& comm) { return comm.all_gather(send, recv); });
}

Status EpochComm::broadcast(std::span<int64_t> values, uint32_t root) {
  return lend([values, root](Comm& comm) { return comm.broadcast(values, root); });
}

Status EpochComm::barrier() {
  return lend([](Comm& comm) { return comm.barrier(); });
}

}  // namespace moetrain

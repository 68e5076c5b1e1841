// For programs without NCCL.
#include "trainer/comm/comm_nccl.h"

namespace moetrain {

bool has_nccl() { return false; }

Result<uint64_t> nccl_gpu(Device&) {
  return ckpt::make_error(ckpt::ErrorCode::kUnavailable, "this program was built without NCCL");
}

Result<std::unique_ptr<Comm>> make_nccl_comm(std::unique_ptr<Comm> host, const NcclOptions&) {
  return host;
}

}  // namespace moetrain

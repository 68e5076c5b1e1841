// The choice of a group's collectives for GPU memory: NCCL's, or those of the host through host
// memory. The choice is agreed: each rank says which GPU it has, and all decide from the same
// answers, so no rank waits in NCCL for one that chose otherwise. NCCL can still fail to connect.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trainer/comm/comm.h"

namespace moetrain {

// The answer of a rank without a GPU for NCCL: it has none, this program or its NCCL cannot use it,
// or NCCL has failed this rank before.
inline constexpr uint64_t kNoGpuForNccl = 0;

// One value for each GPU of each machine, never kNoGpuForNccl. NCCL refuses two ranks on one GPU of
// one machine; it tells machines apart by their boot, GPUs by their place on the PCI bus. Parts of
// one GPU (MIG) have one place, and NCCL refuses them as well.
uint64_t gpu_identity(std::string_view boot_id, std::string_view pci_bus_id);

struct DeviceCollectives {
  bool nccl = false;
  // Reason why NCCL is not used, if more than one rank has a GPU. `reporting_rank` logs it: the
  // lowest rank that the reason is about.
  std::string reason;
  uint32_t reporting_rank = 0;
  bool operator==(const DeviceCollectives&) const = default;
};

// By rank. Pure.
DeviceCollectives choose_collectives(std::span<const int64_t> gpus);

// A collective of `host`, the group's communicator for what lies in host memory. Errors: its own.
Result<DeviceCollectives> agree_on_collectives(Comm& host, uint64_t my_gpu);

}  // namespace moetrain

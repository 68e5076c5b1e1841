// Which collectives a group has for what lies on its GPUs: NCCL's, or those of the host through
// host memory. Agreed, not guessed: each rank says which GPU it has, and all decide by what all
// have said, so none waits in NCCL for one that went the other way. Whether NCCL can do what is
// decided shows when it connects.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trainer/parallel/comm.h"

namespace moetrain {

// What a rank says that NCCL has no GPU of: it has none, this program or its NCCL cannot, or NCCL
// has failed it before.
inline constexpr uint64_t kNoGpuForNccl = 0;

// One value for each GPU of each machine, never kNoGpuForNccl. NCCL refuses two ranks on one GPU of
// one machine; it tells machines apart by their boot, GPUs by their place on the PCI bus. Parts of
// one GPU (MIG) have one place, and NCCL refuses them as well.
uint64_t gpu_identity(std::string_view boot_id, std::string_view pci_bus_id);

struct DeviceCollectives {
  bool nccl = false;
  // Why not, where more than one rank has a GPU to exchange with; `told_by` is the rank that says
  // it to people: the lowest of those that it is about.
  std::string reason;
  uint32_t told_by = 0;
  bool operator==(const DeviceCollectives&) const = default;
};

// By rank. Pure.
DeviceCollectives choose_collectives(std::span<const int64_t> gpus);

// A collective of `host`, the group's communicator for what lies in host memory. Errors: its own.
Result<DeviceCollectives> agree_on_collectives(Comm& host, uint64_t my_gpu);

}  // namespace moetrain

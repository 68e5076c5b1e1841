#include "trainer/comm/device_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "formats/base/hash.h"

namespace moetrain {

uint64_t gpu_identity(std::string_view boot_id, std::string_view pci_bus_id) {
  // Neither text has a line break: no other two make up the same.
  const std::string both = fmt::format("{}\n{}", boot_id, pci_bus_id);
  return std::max<uint64_t>(ckpt::base::hash128(ckpt::as_bytes(both)).low, kNoGpuForNccl + 1);
}

DeviceCollectives choose_collectives(std::span<const int64_t> gpus) {
  if (gpus.size() <= 1) return {};
  std::map<int64_t, uint32_t> taken;  // by GPU: the first rank that has it
  DeviceCollectives host;
  for (uint32_t rank = 0; rank < gpus.size(); ++rank) {
    const auto gpu = std::bit_cast<uint64_t>(gpus[rank]);
    if (gpu == kNoGpuForNccl) {
      return {.reason = fmt::format("rank {} has no GPU that NCCL can use", rank),
              .reporting_rank = rank};
    }
    const auto [first, is_new] = taken.emplace(gpus[rank], rank);
    if (is_new || !host.reason.empty()) continue;
    host.reason = fmt::format("ranks {} and {} have the same GPU", first->second, rank);
    host.reporting_rank = first->second;
  }
  if (host.reason.empty()) return {.nccl = true};
  return host;
}

Result<DeviceCollectives> agree_on_collectives(Comm& host, uint64_t my_gpu) {
  const auto mine = std::bit_cast<int64_t>(my_gpu);
  std::vector<int64_t> gpus(host.size());
  CKPT_TRY(host.all_gather(std::span(&mine, 1), gpus));
  return choose_collectives(gpus);
}

}  // namespace moetrain

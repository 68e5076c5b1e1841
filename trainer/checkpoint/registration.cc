#include "trainer/checkpoint/registration.h"

#include <algorithm>
#include <bit>

#include "formats/base/parse.h"

namespace moetrain {

namespace client = ckpt::client;

std::vector<client::UnitInfo> registration(const std::vector<StateUnit>& units) {
  std::vector<client::UnitInfo> infos;
  for (const StateUnit& unit : units) {
    client::UnitInfo info{.name = unit.name, .part = unit.part, .bytes = unit.bytes};
    if (unit.layer) info.layer = *unit.layer;
    if (unit.expert) info.expert = *unit.expert;
    for (const UnitTensor& tensor : unit.tensors) {
      info.tensors.push_back({tensor.name(), "F32", tensor.shape, tensor.offset});
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

ArenaSize arena_size(uint64_t share_bytes, bool memory_level) {
  constexpr uint64_t kSlabMin = 256u << 10;
  constexpr uint64_t kSlabMax = 64u << 20;
  constexpr uint64_t kSnapshotsAtOnce = 3;
  constexpr uint64_t kRestoreSlabs = 2;
  // About two slabs per share: one is written while the other is filled.
  const uint64_t slab = std::clamp(std::bit_ceil(share_bytes / 2), kSlabMin, kSlabMax);
  // Dense and expert fragments use different slabs, and large ones start at a block boundary.
  const uint64_t slabs = share_bytes / slab + share_bytes / 16 / slab + 3;
  if (!memory_level) return {slab, slab * (kSnapshotsAtOnce * slabs + kRestoreSlabs)};
  return {slab, slab * ((kSnapshotsAtOnce + 1) * (slabs + 1) + kRestoreSlabs)};
}

namespace {

// The reason without the run's name and ckptd's own remedy, which moetrain words as flags.
std::string_view bare_reason(std::string_view message, const std::string& run) {
  const std::string name = fmt::format("run {}: ", run);
  if (message.starts_with(name)) message.remove_prefix(name.size());
  return message.substr(0, message.find("; "));
}

}  // namespace

ckpt::Error start_refused(const std::string& run, const ckpt::Error& error) {
  if (error.detail != ckpt::ErrorDetail::kRunHasCommits) return error;
  return reworded(error, fmt::format("run {} exists already; {} ({})", run, kResumeOrRename,
                                     bare_reason(error.message, run)));
}

ckpt::Error registration_refused(const std::string& run, const ckpt::Error& error) {
  switch (error.detail) {
    case ckpt::ErrorDetail::kUnitsDiffer:
      return {ckpt::ErrorCode::kInvalidArgument,
              fmt::format("run {} exists already, with a model of another shape; {} ({})", run,
                          kResumeOrRename, error.message),
              error.detail};
    case ckpt::ErrorDetail::kRunInUse:
      return reworded(error,
                      fmt::format("run {} is in use by a job with a model of another shape; "
                                  "stop that job, or begin a new run with another --run ({})",
                                  run, error.message));
    default:
      return error;
  }
}

std::string restart_remedy(const ckpt::Error& error, uint64_t arena_bytes, uint64_t restart_bytes) {
  const bool no_room = error.detail == ckpt::ErrorDetail::kNoArenaRoom;
  if (!no_room || restart_bytes >= arena_bytes) return {};
  return fmt::format(
      "; with --on-loss continue each rank asks for {}, room for the whole model, as the last rank "
      "left saves it alone; --on-loss restart asks for {} per rank",
      ckpt::base::format_size(arena_bytes), ckpt::base::format_size(restart_bytes));
}

}  // namespace moetrain

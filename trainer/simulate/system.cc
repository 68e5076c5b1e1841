#include "trainer/simulate/system.h"

#include <algorithm>
#include <string>

#include "formats/base/printable.h"

namespace moetrain::simulate {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr System kSystems[] = {
    {.name = "ds", .steps = &CostModel::ds_steps},
    {.name = "ds-ft", .from_replicas = true, .steps = &CostModel::ds_ft_steps},
    {.name = "gemini", .in_memory = true, .to_peer = true, .steps = &CostModel::gemini_steps},
    {.name = "moc", .in_memory = true, .partial = true, .steps = &CostModel::moc_steps},
    {.name = "lazarus",
     .placement = PolicyName::kLazarus,
     .from_replicas = true,
     .steps = &CostModel::lazarus_steps},
    {.name = "ours",
     .placement = PolicyName::kFrontier,
     .from_replicas = true,
     .rolls_back = true,
     .in_memory = true,
     .to_peer = true,
     .partial = true,
     .detects = true,
     .steps = &CostModel::ours_steps},
};

}  // namespace

std::span<const System> systems() { return kSystems; }

Result<const System*> find_system(std::string_view name) {
  std::string all;
  for (const System& system : kSystems) {
    if (system.name == name) return &system;
    all += fmt::format(" {}", system.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "policy '{}': the policies are{}, or all",
                    ckpt::base::printable(name, 40), all);
}

Result<std::vector<const System*>> parse_systems(std::string_view names) {
  std::vector<const System*> found;
  if (names == "all") {
    for (const System& system : kSystems) found.push_back(&system);
    return found;
  }
  for (;;) {
    const size_t length = std::min(names.find(','), names.size());
    CKPT_ASSIGN(const System* system, find_system(names.substr(0, length)));
    if (std::ranges::find(found, system) != found.end()) {
      return make_error(ErrorCode::kInvalidArgument, "policy {}: named twice", system->name);
    }
    found.push_back(system);
    if (length == names.size()) return found;
    names.remove_prefix(length + 1);
  }
}

}  // namespace moetrain::simulate

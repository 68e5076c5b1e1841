#include "trainer/simulate/sharded/sharded_system.h"

#include <algorithm>
#include <string>

#include "formats/base/printable.h"

namespace moetrain::simulate::sharded {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr ShardedSystem kLaer{.name = "laer", .plan = PolicyName::kLaer};
constexpr ShardedSystem kFsdp{.name = "fsdp-ep"};

constexpr ShardedSystem kShardedSystems[] = {
    kLaer,
    {.name = "flexmoe", .plan = PolicyName::kFlexmoe},
    {.name = "eplb", .plan = PolicyName::kEplb, .sharing = Sharing::kAll},
    kFsdp,
    {.name = "megatron", .fully_sharded = false},
};

constexpr ShardedSystem kAblations[] = {
    kLaer,
    {.name = "laer, no even scheme",
     .plan = PolicyName::kLaer,
     .candidates = LaerCandidates::kByLoad},
    {.name = "laer, no scheme by load",
     .plan = PolicyName::kLaer,
     .candidates = LaerCandidates::kEven},
    {.name = "laer, prefetch 1",
     .plan = PolicyName::kLaer,
     .schedule = {.prefetch = 1, .delayed_reshard = true}},
    {.name = "laer, re-shard inline",
     .plan = PolicyName::kLaer,
     .schedule = {.prefetch = 2, .delayed_reshard = false}},
    {.name = "laer, neither",
     .plan = PolicyName::kLaer,
     .schedule = {.prefetch = 1, .delayed_reshard = false}},
    {.name = "laer, no prefetch, inline",
     .plan = PolicyName::kLaer,
     .schedule = {.prefetch = 0, .delayed_reshard = false}},
    kFsdp,
};

}  // namespace

std::span<const ShardedSystem> sharded_systems() { return kShardedSystems; }
std::span<const ShardedSystem> ablations() { return kAblations; }

Result<std::vector<const ShardedSystem*>> parse_sharded_systems(std::string_view names) {
  std::vector<const ShardedSystem*> found;
  std::string all;
  for (const ShardedSystem& system : kShardedSystems) {
    if (names == "all") found.push_back(&system);
    all += fmt::format(" {}", system.name);
  }
  if (names == "all") return found;
  for (;;) {
    const size_t length = std::min(names.find(','), names.size());
    const std::string_view name = names.substr(0, length);
    const auto* const system = std::ranges::find(kShardedSystems, name, &ShardedSystem::name);
    if (system == std::end(kShardedSystems)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "policy '{}': with --sharded the policies are{}, or all",
                        ckpt::base::printable(name, 40), all);
    }
    if (std::ranges::find(found, system) != found.end()) {
      return make_error(ErrorCode::kInvalidArgument, "policy {}: named twice", system->name);
    }
    found.push_back(system);
    if (length == names.size()) return found;
    names.remove_prefix(length + 1);
  }
}

}  // namespace moetrain::simulate::sharded

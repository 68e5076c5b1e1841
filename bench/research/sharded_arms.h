// The arms of ckptbench sharded, and the settings that all arms share. Values; pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace bench {

enum class ArmRole : uint8_t {
  kReference,  // the others are compared with it
  kBaseline,   // another system
  kAblation,   // the reference without one of its ingredients
};

struct ShardedArm {
  const char* name;
  const char* description;
  ArmRole role = ArmRole::kAblation;
  bool sharded = true;
  const char* policy = "laer";
  bool replans = true;       // sharded: at every step; false: once, before the window
  bool lite_routing = true;  // tokens stay on a node that has a replica of their expert
  uint32_t prefetch = 2;
  bool delayed_reshard = true;
};
inline constexpr ShardedArm kShardedArms[] = {
    {.name = "laer",
     .description = "sharded, a plan for every step, lite routing, prefetch 2, delayed re-shard",
     .role = ArmRole::kReference},
    {.name = "static-ep",
     .description = "replicated, static placement (expert parallelism)",
     .role = ArmRole::kBaseline,
     .sharded = false,
     .policy = "static"},
    {.name = "fsdp-ep",
     .description = "sharded, static placement (FSDP with expert parallelism)",
     .role = ArmRole::kBaseline,
     .policy = "static"},
    {.name = "frontier",
     .description = "replicated, frontier, planned once",
     .role = ArmRole::kBaseline,
     .sharded = false,
     .policy = "frontier",
     .replans = false},
    {.name = "eplb", .description = "laer with the policy eplb", .policy = "eplb"},
    {.name = "plan-once", .description = "laer with one plan for all steps", .replans = false},
    {.name = "no-lite-routing",
     .description = "laer without --domains: all replicas share all tokens",
     .lite_routing = false},
    {.name = "no-prefetch", .description = "laer with --prefetch 0", .prefetch = 0},
    {.name = "reshard-inline",
     .description = "laer with --reshard inline",
     .delayed_reshard = false},
    {.name = "no-schedule",
     .description = "laer with --prefetch 0 --reshard inline",
     .prefetch = 0,
     .delayed_reshard = false},
};

// Ranks, and the experts that each may compute in a layer, where 16 experts are in a layer.
struct ShardedShape {
  uint32_t ranks = 0;
  uint32_t slots = 0;
  bool operator==(const ShardedShape&) const = default;
};
inline constexpr uint32_t kShapeExperts = 16;
// "RANKSxSLOTS". kInvalidArgument unless there are 2 to 8 ranks and slots for all experts, at most
// one for each expert on a rank.
ckpt::Result<ShardedShape> parse_shape(const std::string& text);

// The steps of a run. Routing is known and every arm has its last plan before the window begins.
struct ShardedSteps {
  uint64_t plan_at = 0;  // for arms that plan once; the run ends before twice this step
  uint64_t first = 0;    // the window begins after this step ...
  uint64_t last = 0;     // ... and ends with this one
};
ShardedSteps sharded_steps(uint64_t measured);

// Routing of the runs of one workload.
struct ShardedRouting {
  double skew = 0;          // Zipf's exponent ...
  int order = 0;            // ... and which experts are popular; or
  std::string trace_file;   // a trace of token counts; each sample ...
  uint64_t trace_hold = 1;  // ... lasts this many steps
};

// Flags of `moetrain run`. domains_file: two nodes with half of the ranks each.
std::vector<std::string> sharded_flags(const ShardedArm& arm, uint32_t slots,
                                       const ShardedSteps& steps, const ShardedRouting& routing,
                                       const std::string& domains_file);

// The text of that file.
std::string two_nodes_csv(uint32_t ranks);

}  // namespace bench

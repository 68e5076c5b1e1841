#include "bench/research/sharded_arms.h"

#include <fmt/format.h>

#include <charconv>

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;

namespace {

constexpr uint32_t kShapeRanksMin = 2;
constexpr uint32_t kShapeRanksMax = 8;

}  // namespace

Result<ShardedShape> parse_shape(const std::string& text) {
  ShardedShape shape;
  const char* const end = text.data() + text.size();
  const auto ranks = std::from_chars(text.data(), end, shape.ranks);
  const bool cut = ranks.ec == std::errc() && ranks.ptr != end && *ranks.ptr == 'x';
  const auto slots = cut ? std::from_chars(ranks.ptr + 1, end, shape.slots) : ranks;
  if (!cut || slots.ec != std::errc() || slots.ptr != end) {
    return make_error(ErrorCode::kInvalidArgument, "{}: must be RANKSxSLOTS, such as 4x8", text);
  }
  if (shape.ranks < kShapeRanksMin || shape.ranks > kShapeRanksMax) {
    return make_error(ErrorCode::kInvalidArgument, "{}: must have {} to {} ranks", text,
                      kShapeRanksMin, kShapeRanksMax);
  }
  const uint32_t least = (kShapeExperts + shape.ranks - 1) / shape.ranks;
  if (shape.slots < least || shape.slots > kShapeExperts) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: {} ranks need {} to {} slots for {} experts", text, shape.ranks, least,
                      kShapeExperts, kShapeExperts);
  }
  return shape;
}

ShardedSteps sharded_steps(uint64_t measured) {
  const uint64_t plan_at = measured + 2;
  return {.plan_at = plan_at, .first = plan_at + 1, .last = plan_at + 1 + measured};
}

std::vector<std::string> sharded_flags(const ShardedArm& arm, uint32_t slots,
                                       const ShardedSteps& steps, const ShardedRouting& routing,
                                       const std::string& domains_file) {
  std::vector<std::string> flags = {"--checkpoint-every", "0",
                                    "--expert-state",     arm.sharded ? "sharded" : "replicated",
                                    "--placement",        arm.policy};
  const auto add = [&](std::initializer_list<std::string> more) {
    flags.insert(flags.end(), more);
  };
  const bool moves = std::string_view(arm.policy) != "static";
  if (moves) add({"--slots", std::to_string(slots)});
  if (moves && !arm.sharded) add({"--min-replicas", "1", "--replan-if", "better"});
  if (moves && !arm.replans) add({"--replan-every", std::to_string(steps.plan_at)});
  if (arm.sharded) {
    add({"--prefetch", std::to_string(arm.prefetch), "--reshard",
         arm.delayed_reshard ? "delayed" : "inline"});
    if (arm.lite_routing) add({"--domains", domains_file});
  }
  if (routing.trace_file.empty()) {
    add({"--router-skew", fmt::format("{}", routing.skew), "--router-skew-order",
         std::to_string(routing.order)});
  } else {
    add({"--router-trace", routing.trace_file, "--router-trace-hold",
         std::to_string(routing.trace_hold)});
  }
  return flags;
}

std::string two_nodes_csv(uint32_t ranks) {
  std::string text = "rank,node\n";
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    text += fmt::format("{},{}\n", rank, rank < ranks / 2 ? 0 : 1);
  }
  return text;
}

}  // namespace bench

#include <chrono>

#include "formats/base/parse.h"
#include "trainer/cli/run_parts.h"
#include "trainer/cli/values.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Number of experts of each layer in a checkpoint or snapshot.
struct ExpertCount {
  bool automatic = false;
  uint32_t count = kAllExperts;
};

Result<ExpertCount> parse_expert_count(std::string_view flag, const std::string& text,
                                       std::string_view taker) {
  if (text == "all") return ExpertCount{};
  if (text == "auto") return ExpertCount{.automatic = true};
  const uint32_t count = whole_number<uint32_t>(text).value_or(0);
  if (count != 0) return ExpertCount{.count = count};
  return make_error(ErrorCode::kInvalidArgument,
                    "{} {}: must be 'all', 'auto' or how many of each layer's experts a {} takes, "
                    "at least 1",
                    flag, text, taker);
}

Result<PartialOptions> parse_partial(const RunSpec& spec) {
  const RunSpec::Checkpoints& asked = spec.checkpoints;
  PartialOptions options{.staleness_max = asked.staleness_max, .plt_budget = asked.plt_budget};
  CKPT_ASSIGN(const ExpertCount written,
              parse_expert_count("--experts-per-checkpoint", asked.experts, "checkpoint"));
  options.k_auto = written.automatic;
  if (written.count != kAllExperts) options.k = written.count;
  if (!asked.experts_in_snapshot.empty()) {
    CKPT_ASSIGN(
        const ExpertCount copied,
        parse_expert_count("--experts-per-snapshot", asked.experts_in_snapshot, "snapshot"));
    options.k_snapshot_auto = copied.automatic;
    options.k_snapshot = copied.count;
  }
  CKPT_ASSIGN(options.selector, parse_selector(asked.selector));
  CKPT_ASSIGN(options.parts, parse_partial_parts(asked.parts));
  CKPT_ASSIGN(options.dense, parse_dense_sharding(asked.dense_sharding));
  return options;
}

Status parse_interval(const RunSpec& spec, RankOptions& rank) {
  const std::string& text = spec.checkpoints.every;
  rank.checkpoint_turns = spec.checkpoints.turns;
  rank.checkpoint_auto = text == "auto";
  if (rank.checkpoint_auto) return {};
  const auto steps = whole_number<uint64_t>(text);
  if (!steps) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--checkpoint-every {}: must be 'auto' or a number of steps", text);
  }
  rank.checkpoint_every = *steps;
  return {};
}

// A number of steps, or a time with its unit.
Result<UnsavedOptions> parse_unsaved(const RunSpec& spec) {
  const std::string& text = spec.checkpoints.unsaved_max;
  UnsavedOptions options{.stop = spec.checkpoints.on_unsaved == "stop"};
  if (text.empty()) return options;
  if (const uint64_t steps = whole_number<uint64_t>(text).value_or(0); steps > 0) {
    options.steps_max = steps;
    return options;
  }
  const auto time = ckpt::base::parse_duration(text);
  if (time.ok() && *time >= std::chrono::milliseconds(1)) {
    options.ms_max = static_cast<uint64_t>(*time / std::chrono::milliseconds(1));
    return options;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "--unsaved-max {}: must be a number of steps, at least 1, or a time with its "
                    "unit, like 30s or 10m",
                    text);
}

}  // namespace

Status resolve_checkpoints(const RunSpec& spec, RunOptions& options) {
  RankOptions& rank = options.rank;
  CKPT_ASSIGN(rank.partial, parse_partial(spec));
  // With sharded experts every loss takes all ranks back to one view, as a restart does.
  rank.partial.survivors_continue = spec.survivors_continue() && !spec.experts_sharded();
  CKPT_TRY(parse_interval(spec, rank));
  rank.skip_when_out_of_slabs = spec.checkpoints.out_of_slabs == "skip";
  rank.wait_durable = spec.checkpoints.wait == "durable";
  CKPT_ASSIGN(options.unsaved, parse_unsaved(spec));
  return {};
}

}  // namespace moetrain

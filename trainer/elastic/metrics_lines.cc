#include "trainer/elastic/metrics_lines.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/base/json_dump.h"

namespace moetrain {

namespace {

using Line = nlohmann::ordered_json;

// JSON has no number for a value that is not finite.
template <typename Number>
Line finite_or_null(Number value) {
  return std::isfinite(value) ? Line(value) : Line();
}

}  // namespace

std::string step_metrics(const EventHeader& at, const StepEvent& step, uint64_t tokens) {
  Line line;
  line["step"] = at.step;
  line["loss"] = finite_or_null(std::bit_cast<float>(step.loss_bits));
  line["loss_bits"] = fmt::format("{:08x}", step.loss_bits);
  line["tokens"] = tokens;
  line["ms"] = step.ms;
  line["stall_ms"] = step.stall_ms;
  line["learning_rate"] = step.learning_rate;
  line["gradient_norm"] = finite_or_null(step.gradient_norm);
  line["applied"] = step.applied;
  line["plt"] = step.plt;
  line["plt_rollback"] = step.plt_rollback;
  line["busiest_tokens"] = step.busiest_rows;
  line["max_over_mean"] = step.max_over_mean;
  const ExpertExchange& experts = step.experts;
  line["token_bytes"] = experts.token_bytes;
  line["restore_bytes"] = experts.restore_bytes;
  line["reshard_bytes"] = experts.reshard_bytes;
  line["exposed_ms"] = experts.exposed_ms;
  line["hidden_ms"] = experts.hidden_ms;
  if (experts.memory_bound > 0) {
    line["plan_wait_ms"] = experts.plan_wait_ms;
    line["expert_memory_bytes"] = experts.memory_bytes;
  }
  // PLT follows from these (docs/reference/moetrain.md).
  if (step.resumed_at >= 0) {
    line["resumed_at"] = step.resumed_at;
    line["resumed_versions"] = step.resumed_versions;
  }
  if (!step.rolled_back.empty()) {
    line["rolled_back"] = step.rolled_back;
    line["versions"] = step.rolled_back_to;
  }
  line["routed"] = step.routed;
  return ckpt::base::dump_json(line);
}

std::string snapshot_metrics(const EventHeader& at, const TakingEvent& taking) {
  const double mean = taking.rank_bytes_mean;
  Line line{{"snapshot", at.step}, {"experts", taking.experts}};
  if (!taking.memory_experts.empty()) line["memory_experts"] = taking.memory_experts;
  line["bytes"] = taking.bytes;
  if (taking.bytes_kept > 0) line["bytes_kept"] = taking.bytes_kept;
  line["rank_bytes_max"] = taking.rank_bytes_max;
  line["rank_bytes_mean"] = mean;
  line["rank_bytes_max_over_mean"] =
      mean > 0 ? static_cast<double>(taking.rank_bytes_max) / mean : 1;
  return ckpt::base::dump_json(line);
}

std::string replan_metrics(const EventHeader& at, const ReplannedEvent& replanned) {
  const Line line{{"replan", at.step},
                  {"moved", replanned.moved},
                  {"max_over_mean_before", replanned.balance_before},
                  {"max_over_mean_after", replanned.balance_after},
                  {"gain_ms", replanned.gain_ms},
                  {"cost_ms", replanned.cost_ms},
                  {"bytes", replanned.relayout.bytes_moved},
                  {"plan_ms", replanned.relayout.plan_ms},
                  {"migrate_ms", replanned.relayout.migrate_ms}};
  return ckpt::base::dump_json(line);
}

}  // namespace moetrain

#include <fmt/format.h>

#include <iterator>
#include <optional>

#include "formats/base/unix_address.h"
#include "trainer/cli/run_parts.h"
#include "trainer/cli/values.h"

namespace moetrain {

namespace {

using Reason = std::optional<std::string>;

// A rule on a flag that was given. Says why its value cannot be used with the rest of the spec;
// nothing if it can. The message is "FLAG VALUE: REASON".
struct FlagRule {
  std::string_view flag;
  Reason (*reason)(const RunSpec& spec, const RunFacts& facts);
};

// The supervisor checks five times a second; a lower limit would mistake a busy machine for a hang.
constexpr uint32_t kSilenceMinMs = 1000;
constexpr uint32_t kGraceMaxMs = 120'000;  // ckptd allows no more

Reason if_broken(bool broken, std::string_view reason) {
  return broken ? Reason(reason) : std::nullopt;
}

Reason no_ranks(const RunSpec& spec, const RunFacts&) {
  return if_broken(spec.ranks == 0, "at least 1 is needed");
}

Reason no_steps(const RunSpec& spec, const RunFacts&) {
  return if_broken(spec.steps == 0, "nothing to do; at least 1 is needed");
}

Reason only_with_resume(const RunSpec& spec, const RunFacts&) {
  return if_broken(!spec.resumes(), "only with --resume; a new run takes any --data");
}

// The socket may come from a variable that was set long ago.
Reason only_with_own_daemon(const RunSpec& spec, const RunFacts& facts) {
  if (spec.socket.empty()) return std::nullopt;
  const std::string socket =
      spec.socket == facts.socket_variable
          ? fmt::format("CKPTD_SOCKET={} in the environment: unset it", spec.socket)
          : fmt::format("--socket {}", spec.socket);
  return fmt::format("only for a ckptd of the run's own, not with {}", socket);
}

// moetrain speaks to unix sockets only: waiting for another address would never end.
Reason not_a_unix_socket(const RunSpec& spec, const RunFacts& facts) {
  if (!ckpt::base::is_network_address(spec.socket)) return std::nullopt;
  if (spec.socket != facts.socket_variable) return Reason(kOnlyUnixSockets);
  return fmt::format("{} (CKPTD_SOCKET in the environment)", kOnlyUnixSockets);
}

Reason turns_and_interval(const RunSpec& spec, const RunFacts&) {
  const uint64_t turns = spec.checkpoints.turns;
  if (turns == 0) return std::nullopt;
  if (spec.checkpoints.every == "auto") {
    return "not with --checkpoint-every auto, which measures what checkpoints cost by itself";
  }
  // A turn with checkpoints has at least one.
  const auto every = whole_number<uint64_t>(spec.checkpoints.every);
  if (!every || (*every != 0 && *every <= turns)) return std::nullopt;
  return fmt::format("must be at least --checkpoint-every ({}), which must not be 0", *every);
}

// A limit that every interval exceeds says nothing. Without an interval (0, auto) it is the only
// bound. The number of steps also limits what can be unsaved; a resumed run has fewer left, as many
// as its checkpoint says.
Reason limit_below_interval(const RunSpec& spec, const RunFacts&) {
  const auto limit = whole_number<uint64_t>(spec.checkpoints.unsaved_max);
  const auto every = whole_number<uint64_t>(spec.checkpoints.every);
  if (!limit || *limit == 0 || !every || *every <= *limit || spec.steps <= *limit ||
      spec.resumes()) {
    return std::nullopt;
  }
  return fmt::format(
      "fewer steps than --checkpoint-every {}, so that every interval would exceed it; give at "
      "least {}, or checkpoint more often",
      *every, *every);
}

Reason stop_without_limit(const RunSpec& spec, const RunFacts&) {
  const bool stops = spec.checkpoints.on_unsaved == "stop";
  return if_broken(stops && spec.checkpoints.unsaved_max.empty(),
                   "needs --unsaved-max STEPS or TIME, like 100 or 10m");
}

Reason all_experts_saved(const RunSpec& spec, const RunFacts&) {
  return if_broken(spec.checkpoints.experts == "all",
                   "without effect, as every checkpoint takes all experts; see "
                   "--experts-per-checkpoint");
}

Reason fewer_than_slots(const RunSpec& spec, const RunFacts&) {
  const RunSpec::Placement& placement = spec.placement;
  if (placement.slots_max == 0 || placement.slots_max >= placement.slots) return std::nullopt;
  return fmt::format("fewer than --slots {}", placement.slots);
}

Reason replan_that_never_moves(const RunSpec& spec, const RunFacts&) {
  const RunSpec::Placement& placement = spec.placement;
  if (placement.replan_every.value_or(0) == 0) return std::nullopt;
  if (placement.policy == "static") {
    return "--placement static never moves an expert; choose another";
  }
  // Sharded experts take every plan. The compute time of a rank's experts is measured on the CPU.
  if (spec.experts_sharded() || spec.device == "cpu") return std::nullopt;
  if (placement.replan_if == "better") return std::nullopt;
  return fmt::format(
      "whether a move pays is known on the CPU only; with --device {} only --replan-if better",
      spec.device);
}

Reason only_if_survivors_continue(const RunSpec& spec, const RunFacts&) {
  return if_broken(!spec.survivors_continue(),
                   "only with --on-loss continue, here it is restart (as asked for)");
}

Reason placed_for_safety(const RunSpec& spec, const RunFacts&) {
  const std::string& policy = spec.placement.policy;
  return if_broken(spec.experts_sharded() && (policy == "lazarus" || policy == "flexmoe"),
                   "places replicas that hold state, and --expert-state sharded has none; use "
                   "static, eplb, laer or frontier");
}

Reason only_with_replicas(const RunSpec& spec, const RunFacts&) {
  return if_broken(spec.experts_sharded(),
                   "only with replicas that hold state; --expert-state sharded has none");
}

Reason prefetch_out_of_bounds(const RunSpec& spec, const RunFacts&) {
  if (spec.placement.prefetch <= kPrefetchMax) return std::nullopt;
  return fmt::format("must be 0 to {} layers", kPrefetchMax);
}

Reason only_with_shards(const RunSpec& spec, const RunFacts&) {
  return if_broken(!spec.experts_sharded(),
                   "only with --expert-state sharded; replicated experts are not exchanged");
}

Reason only_if_a_move_costs(const RunSpec& spec, const RunFacts&) {
  return if_broken(spec.experts_sharded(),
                   "--expert-state sharded takes every plan, as a new one moves no state");
}

Reason skew_and_trace(const RunSpec& spec, const RunFacts&) {
  return if_broken(!spec.router_trace.empty(),
                   "not with --router-trace, which says how popular experts are");
}

Reason order_of_no_skew(const RunSpec& spec, const RunFacts&) {
  return if_broken(spec.config.router_skew.value_or(0) == 0 && !spec.resumes(),
                   "only with --router-skew");
}

Reason no_hold(const RunSpec& spec, const RunFacts&) {
  if (spec.router_trace.empty()) return "only with --router-trace";
  return if_broken(spec.config.router_trace_hold == 0u, "at least 1");
}

Reason grace_out_of_bounds(const RunSpec& spec, const RunFacts&) {
  const uint32_t ms = spec.changes.grace_ms;
  if (ms >= 1 && ms <= kGraceMaxMs) return std::nullopt;
  return fmt::format("must be 1 to {}", kGraceMaxMs);
}

Reason no_collective_timeout(const RunSpec& spec, const RunFacts&) {
  return if_broken(spec.changes.collective_timeout_ms == 0, "at least 1");
}

Reason too_short_silence(uint32_t ms) {
  if (ms == 0 || ms >= kSilenceMinMs) return std::nullopt;
  return fmt::format("at least {}, or 0 for never", kSilenceMinMs);
}

Reason short_heartbeat(const RunSpec& spec, const RunFacts&) {
  return too_short_silence(spec.changes.heartbeat_timeout_ms);
}

Reason short_daemon_timeout(const RunSpec& spec, const RunFacts&) {
  return too_short_silence(spec.own_daemon.timeout_ms);
}

// The first rule that is broken, in this order, is the error.
constexpr FlagRule kRefusals[] = {
    {"--ranks", no_ranks},
    {"--steps", no_steps},
    {"--new-data", only_with_resume},
    {"--socket", not_a_unix_socket},
    {"--data-dir", only_with_own_daemon},
    {"--kill-daemon", only_with_own_daemon},
    {"--checkpoint-turns", turns_and_interval},
    {"--unsaved-max", limit_below_interval},
    {"--on-unsaved", stop_without_limit},
    {"--prefetch", only_with_shards},
    {"--prefetch", prefetch_out_of_bounds},
    {"--reshard", only_with_shards},
    {"--schedule-trace", only_with_shards},
    {"--placement", placed_for_safety},
    {"--min-replicas", only_with_replicas},
    {"--check-replicas", only_with_replicas},
    {"--slots-max", only_with_replicas},
    {"--replan-if", only_if_a_move_costs},
    {"--slots-max", fewer_than_slots},
    {"--replan-every", replan_that_never_moves},
    {"--join", only_if_survivors_continue},
    {"--kill-in", only_if_survivors_continue},
    {"--leave", only_if_survivors_continue},
    {"--router-skew", skew_and_trace},
    {"--router-skew-order", order_of_no_skew},
    {"--router-trace-hold", no_hold},
    {"--loss-grace-ms", grace_out_of_bounds},
    {"--collective-timeout-ms", no_collective_timeout},
    {"--heartbeat-timeout-ms", short_heartbeat},
    {"--daemon-timeout-ms", short_daemon_timeout},
};

// Harmless, but probably a slip.
constexpr FlagRule kNotes[] = {
    {"--keep", only_with_own_daemon},
    {"--io", only_with_own_daemon},
    {"--daemon-timeout-ms", only_with_own_daemon},
    {"--selector", all_experts_saved},
    {"--partial-parts", all_experts_saved},
    {"--staleness-max", all_experts_saved},
};

// The rule's sentence, if the flag was given and breaks it.
std::optional<std::string> sentence_of(const FlagRule& rule, const RunSpec& spec,
                                       const RunFacts& facts) {
  const auto given = spec.given.find(rule.flag);
  if (given == spec.given.end()) return std::nullopt;
  const Reason reason = rule.reason(spec, facts);
  if (!reason) return std::nullopt;
  const auto& [flag, value] = *given;
  return fmt::format("{}{}{}: {}", flag, value.empty() ? "" : " ", value, *reason);
}

}  // namespace

Status check_flag_rules(const RunSpec& spec, const RunFacts& facts) {
  for (const FlagRule& rule : kRefusals) {
    if (const auto sentence = sentence_of(rule, spec, facts)) {
      return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "{}", *sentence);
    }
  }
  return {};
}

std::vector<std::string> notes_on_flags(const RunSpec& spec, const RunFacts& facts) {
  std::vector<std::string> notes;
  for (const FlagRule& rule : kNotes) {
    if (auto sentence = sentence_of(rule, spec, facts)) notes.push_back(*std::move(sentence));
  }
  return notes;
}

std::vector<std::string_view> flags_with_rules() {
  std::vector<std::string_view> flags;
  flags.reserve(std::size(kRefusals) + std::size(kNotes));
  for (const FlagRule& rule : kRefusals) flags.push_back(rule.flag);
  for (const FlagRule& rule : kNotes) flags.push_back(rule.flag);
  return flags;
}

}  // namespace moetrain

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "trainer/cli/run_parts.h"
#include "trainer/cli/values.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr uint32_t kJoinersMax = 1024;  // of one --join

// The texts before and after the first @.
std::pair<std::string, std::string> split_at(const std::string& text) {
  const size_t at = std::min(text.find('@'), text.size());
  return {text.substr(0, at), text.substr(std::min(at + 1, text.size()))};
}

struct NumberAtStep {
  uint32_t number = 0;
  uint64_t step = 0;  // at least 1
};

std::optional<NumberAtStep> parse_at_step(const std::string& text) {
  const auto [number, step] = split_at(text);
  const auto parsed = whole_number<uint32_t>(number);
  const uint64_t at = whole_number<uint64_t>(step).value_or(0);
  if (!parsed || at == 0) return std::nullopt;
  return NumberAtStep{*parsed, at};
}

// One of --kill or --leave.
Result<RankAt> parse_rank_at(std::string_view flag, const std::string& text,
                             std::string_view example) {
  if (const auto parsed = parse_at_step(text)) return RankAt{parsed->number, parsed->step};
  return make_error(ErrorCode::kInvalidArgument, "{} {}: must be RANK@STEP, like {}", flag, text,
                    example);
}

Result<RankJoin> parse_join(const std::string& text) {
  const auto parsed = parse_at_step(text);
  if (parsed && parsed->number >= 1 && parsed->number <= kJoinersMax) {
    return RankJoin{parsed->number, parsed->step};
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "--join {}: must be COUNT@STEP, like 2@50, with a COUNT of 1 to {}", text,
                    kJoinersMax);
}

Result<PhaseKill> parse_phase_kill(const std::string& text) {
  const auto [number, phase] = split_at(text);
  const auto rank = whole_number<uint32_t>(number);
  const bool known = std::find(std::begin(kPhases), std::end(kPhases), phase) != std::end(kPhases);
  if (rank && known) return PhaseKill{*rank, phase};
  return make_error(ErrorCode::kInvalidArgument,
                    "--kill-in {}: must be RANK@PHASE, where PHASE is one of {}", text,
                    fmt::join(kPhases, ", "));
}

}  // namespace

Status resolve_changes(const RunSpec& spec, RunOptions& options) {
  const RunSpec::Changes& asked = spec.changes;
  RankOptions& rank = options.rank;
  rank.elastic = spec.survivors_continue();
  rank.grace_ms = asked.grace_ms;
  rank.collective_timeout_ms = asked.collective_timeout_ms;
  options.on_loss_reason = "the default";
  if (asked.on_loss) options.on_loss_reason = "as asked for";
  options.heartbeat_timeout_ms = asked.heartbeat_timeout_ms;
  options.restarts_max = asked.restarts_max;
  options.daemon_kills = asked.daemon_kills;
  for (const std::string& text : asked.kills) {
    CKPT_ASSIGN(const RankAt kill, parse_rank_at("--kill", text, "2@33"));
    options.kills.push_back(kill);
  }
  for (const std::string& text : asked.kills_in) {
    CKPT_ASSIGN(PhaseKill kill, parse_phase_kill(text));
    options.phase_kills.push_back(std::move(kill));
  }
  for (const std::string& text : asked.joins) {
    CKPT_ASSIGN(const RankJoin join, parse_join(text));
    options.joins.push_back(join);
  }
  for (const std::string& text : asked.leaves) {
    CKPT_ASSIGN(const RankAt leave, parse_rank_at("--leave", text, "2@50"));
    options.leaves.push_back(leave);
  }
  return {};
}

namespace {

// Ranks that the run has had when it does this step: the first ones and earlier joiners.
uint64_t ranks_in(const RunOptions& options, uint64_t step) {
  uint64_t ranks = options.rank.ranks;
  for (const RankJoin& join : options.joins) {
    if (join.step < step) ranks += join.count;
  }
  return ranks;
}

Status check_rank(const RunOptions& options, const std::string& flag, uint32_t rank,
                  uint64_t step) {
  const uint64_t ranks = ranks_in(options, step);
  if (rank < ranks) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: there are only ranks 0 to {}{}", flag,
                    ranks - 1, ranks < ranks_in(options, UINT64_MAX) ? " by then" : "");
}

Status check_step(const RunOptions& options, const std::string& flag, uint64_t first_step,
                  uint64_t step) {
  if (step >= first_step && step <= options.rank.steps) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: the run does steps {} to {}", flag,
                    first_step, options.rank.steps);
}

// A change after a step needs a step that follows.
Status check_followed(const RunOptions& options, const std::string& flag, uint64_t step) {
  if (step < options.rank.steps) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: the run ends with this step: nothing follows",
                    flag);
}

struct Departure {
  RankAt at;
  const char* flag;
  std::string text() const { return fmt::format("{} {}@{}", flag, at.rank, at.step); }
};

std::vector<Departure> departures_by_step(const RunOptions& options) {
  std::vector<Departure> departures;
  departures.reserve(options.kills.size() + options.leaves.size());
  for (const RankAt& kill : options.kills) departures.push_back({kill, "--kill"});
  for (const RankAt& leave : options.leaves) departures.push_back({leave, "--leave"});
  std::ranges::stable_sort(departures, {}, [](const Departure& one) { return one.at.step; });
  return departures;
}

// Refuses a rank that departs twice. If survivors continue, a lost rank is not restarted until the
// last rank is lost: then all first ranks restart. With --kill-in the remaining ranks at a step are
// unknown beforehand.
Status check_departs_once(const RunOptions& options) {
  if (!options.rank.elastic || !options.phase_kills.empty()) return {};
  const std::vector<Departure> departures = departures_by_step(options);
  std::map<uint32_t, const Departure*> gone;
  for (size_t i = 0; i < departures.size(); ++i) {
    const Departure& now = departures[i];
    const auto [before, first] = gone.emplace(now.at.rank, &now);
    if (!first) {
      // --on-loss restart allows --kill, but neither --leave nor --join.
      const char* remedy = options.leaves.empty() && options.joins.empty()
                               ? "; --on-loss restart brings it back"
                               : "";
      return make_error(ErrorCode::kInvalidArgument, "{}: rank {} is gone by then ({}){}",
                        now.text(), now.at.rank, before->second->text(), remedy);
    }
    const bool last_of_step = i + 1 == departures.size() || departures[i + 1].at.step > now.at.step;
    if (!last_of_step || gone.size() < ranks_in(options, now.at.step)) continue;
    std::erase_if(gone, [&](const auto& one) { return one.first < options.rank.ranks; });
  }
  return {};
}

}  // namespace

Status check_changes(const RunOptions& options, uint64_t first_step) {
  for (const RankAt& kill : options.kills) {
    const std::string flag = fmt::format("--kill {}@{}", kill.rank, kill.step);
    CKPT_TRY(check_step(options, flag, first_step, kill.step));
    CKPT_TRY(check_rank(options, flag, kill.rank, kill.step));
  }
  for (const RankAt& leave : options.leaves) {
    const std::string flag = fmt::format("--leave {}@{}", leave.rank, leave.step);
    CKPT_TRY(check_step(options, flag, first_step, leave.step));
    CKPT_TRY(check_followed(options, flag, leave.step));
    CKPT_TRY(check_rank(options, flag, leave.rank, leave.step));
  }
  for (const RankJoin& join : options.joins) {
    const std::string flag = fmt::format("--join {}@{}", join.count, join.step);
    CKPT_TRY(check_step(options, flag, first_step, join.step));
    CKPT_TRY(check_followed(options, flag, join.step));
  }
  for (const PhaseKill& kill : options.phase_kills) {
    const std::string flag = fmt::format("--kill-in {}@{}", kill.rank, kill.phase);
    CKPT_TRY(check_rank(options, flag, kill.rank, UINT64_MAX));
  }
  for (const uint64_t step : options.daemon_kills) {
    CKPT_TRY(check_step(options, fmt::format("--kill-daemon {}", step), first_step, step));
  }
  return check_departs_once(options);
}

}  // namespace moetrain

#include "trainer/main_elastic.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// The supervisor looks five times a second; less would take a busy machine for a hanging rank.
constexpr uint32_t kSilenceMinMs = 1000;
constexpr uint32_t kGraceMaxMs = 120'000;  // ckptd allows no more

std::optional<uint32_t> parse_count(std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// What is before and after the first @.
std::pair<std::string, std::string> split(const std::string& text) {
  const size_t at = std::min(text.find('@'), text.size());
  return {text.substr(0, at), text.substr(std::min(at + 1, text.size()))};
}

Result<PhaseKill> parse_phase_kill(const std::string& text) {
  const auto [number, phase] = split(text);
  const std::optional<uint32_t> rank = parse_count(number);
  const bool known = std::find(std::begin(kPhases), std::end(kPhases), phase) != std::end(kPhases);
  if (rank && known) return PhaseKill{*rank, phase};
  return make_error(ErrorCode::kInvalidArgument,
                    "--kill-in {}: must be RANK@PHASE, where PHASE is one of {}", text,
                    fmt::join(kPhases, ", "));
}

Result<RankAt> parse_leave(const std::string& text) {
  const auto [number, step] = split(text);
  const std::optional<uint32_t> rank = parse_count(number);
  const uint32_t after = parse_count(step).value_or(0);
  if (rank && after != 0) return RankAt{*rank, after};
  return make_error(ErrorCode::kInvalidArgument, "--leave {}: must be RANK@STEP, like 2@50", text);
}

Result<RankJoin> parse_join(const std::string& text) {
  constexpr uint32_t kCountMax = 1024;
  const auto [number, step] = split(text);
  const uint32_t count = parse_count(number).value_or(0);
  const uint32_t after = parse_count(step).value_or(0);
  if (count != 0 && count <= kCountMax && after != 0) return RankJoin{count, after};
  return make_error(ErrorCode::kInvalidArgument, "--join {}: must be COUNT@STEP, like 2@50", text);
}

}  // namespace

void ElasticFlags::add_to(CLI::App& command, RunOptions& options) {
  RankOptions& rank = options.rank;
  command
      .add_option("--on-loss", on_loss,
                  "restart: all resume from the newest checkpoint; continue: the others go on, "
                  "experts that only the lost rank had come back older. Default: continue")
      ->check(CLI::IsMember({"restart", "continue"}));
  command.add_option("--kill-in", kills_in,
                     "RANK@PHASE: this rank kills itself in a phase of a membership change");
  command.add_option("--join", joins, "COUNT@STEP: so many more ranks are started after this step");
  command.add_option("--leave", leaves,
                     "RANK@STEP: this rank is asked to leave after this step, as by SIGTERM");
  command
      .add_option("--loss-grace-ms", rank.grace_ms,
                  "With continue: for survivors to follow each other, 1 to 120000; who does not is "
                  "left out")
      ->capture_default_str();
  command
      .add_option("--collective-timeout-ms", rank.collective_timeout_ms,
                  "Without a rank's part in a collective for so long the group is given up")
      ->capture_default_str();
  command
      .add_option("--heartbeat-timeout-ms", options.heartbeat_timeout_ms,
                  "A rank whose process gives no sign of life for so long is killed, like one that "
                  "is stopped; 0: never")
      ->capture_default_str();
  command
      .add_option("--daemon-timeout-ms", options.daemon_timeout_ms,
                  "Our own ckptd is killed and started again if it has not answered for so long; "
                  "0: never")
      ->capture_default_str();
  command.add_option("--unsaved-max", unsaved_max,
                     "Act when more than so many steps (100), or so much time (10m), have no "
                     "checkpoint; default: never");
  command
      .add_option("--on-unsaved", on_unsaved,
                  "Beyond --unsaved-max: warn, and train on; or stop: save if ckptd answers within "
                  "60 s, then exit 1")
      ->check(CLI::IsMember({"warn", "stop"}))
      ->capture_default_str();
}

namespace {

Status check_times(const RunOptions& options) {
  for (const auto& [flag, ms] : {std::pair("--heartbeat-timeout-ms", options.heartbeat_timeout_ms),
                                 std::pair("--daemon-timeout-ms", options.daemon_timeout_ms)}) {
    if (ms == 0 || ms >= kSilenceMinMs) continue;
    return make_error(ErrorCode::kInvalidArgument, "{} {}: at least {}, or 0 for never", flag, ms,
                      kSilenceMinMs);
  }
  return {};
}

}  // namespace

void ElasticFlags::choose(RunOptions& options) const {
  RankOptions& rank = options.rank;
  rank.elastic = on_loss.value_or("continue") == "continue";
  rank.partial.survivors_go_on = rank.elastic;
  options.on_loss_reason = on_loss ? "as asked for" : "the default";
}

Status ElasticFlags::apply(RunOptions& options) const {
  RankOptions& rank = options.rank;
  choose(options);
  CKPT_ASSIGN(options.unsaved, parse_unsaved(unsaved_max, on_unsaved));
  for (const auto& [flag, given] : {std::pair("--join", &joins), std::pair("--kill-in", &kills_in),
                                    std::pair("--leave", &leaves)}) {
    if (rank.elastic || given->empty()) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "{} {}: only with --on-loss continue, here it is restart ({})", flag,
                      given->front(), options.on_loss_reason);
  }
  if (rank.collective_timeout_ms == 0) {
    return make_error(ErrorCode::kInvalidArgument, "--collective-timeout-ms 0: at least 1");
  }
  CKPT_TRY(check_times(options));
  if (rank.grace_ms == 0 || rank.grace_ms > kGraceMaxMs) {
    return make_error(ErrorCode::kInvalidArgument, "--loss-grace-ms {}: must be 1 to {}",
                      rank.grace_ms, kGraceMaxMs);
  }
  return parse_changes(options);
}

Status ElasticFlags::parse_changes(RunOptions& options) const {
  for (const std::string& kill : kills_in) {
    CKPT_ASSIGN(const PhaseKill parsed, parse_phase_kill(kill));
    options.phase_kills.push_back(parsed);
  }
  for (const std::string& join : joins) {
    CKPT_ASSIGN(const RankJoin parsed, parse_join(join));
    options.joins.push_back(parsed);
  }
  for (const std::string& leave : leaves) {
    CKPT_ASSIGN(const RankAt parsed, parse_leave(leave));
    options.leaves.push_back(parsed);
  }
  return {};
}

namespace {

// Those of the beginning, and whoever joins after an earlier step than this one.
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

// Of those that go on nobody is started again, until the last one is lost: then all first ones are.
// When a phase is that somebody is to die in nobody can tell beforehand.
Status check_there(const RunOptions& options) {
  if (!options.rank.elastic || !options.phase_kills.empty()) return {};
  std::vector<Departure> departures;
  departures.reserve(options.kills.size() + options.leaves.size());
  for (const RankAt& kill : options.kills) departures.push_back({kill, "--kill"});
  for (const RankAt& leave : options.leaves) departures.push_back({leave, "--leave"});
  std::ranges::stable_sort(departures, {}, [](const Departure& one) { return one.at.step; });
  std::map<uint32_t, const Departure*> gone;
  for (size_t i = 0; i < departures.size(); ++i) {
    const Departure& now = departures[i];
    const auto [before, first] = gone.emplace(now.at.rank, &now);
    if (!first) {
      // Where all that is asked for are kills, there is another way.
      const char* instead = options.leaves.empty() && options.joins.empty()
                                ? "; --on-loss restart brings it back"
                                : "";
      return make_error(ErrorCode::kInvalidArgument, "{}: rank {} is gone by then ({}){}",
                        now.text(), now.at.rank, before->second->text(), instead);
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
  return check_there(options);
}

}  // namespace moetrain

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "formats/base/parse.h"
#include "trainer/cli/run_parts.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

Status check_run_name(const std::string& name) {
  const bool letters = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  });
  if (!name.empty() && name.size() <= 128 && letters && name[0] != '.' && name[0] != '-') return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "--run '{}': 1 to 128 of [A-Za-z0-9._-], not beginning with . or -", name);
}

// The flag of a field of TrainConfig's JSON; empty: it has none.
std::string_view flag_of(std::string_view field) {
  static constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
      {"seed", "--seed"},
      {"micro_batches", "--micro-batches"},
      {"batch", "--batch"},
      {"seq_len", "--seq"},
      {"aux_coef", "--aux"},
      {"weight_decay", "--weight-decay"},
      {"clip_norm", "--clip"},
      {"learning_rate", "--lr"},
      {"warmup_steps", "--warmup"},
      {"schedule_steps", "--lr-steps"},
      {"idle_experts", "--idle-experts"},
      {"precision", "--precision"},
      {"router_skew", "--router-skew"},
      {"router_skew_order", "--router-skew-order"},
      {"router_trace_hold", "--router-trace-hold"},
      {"num_hidden_layers", "--layers"},
      {"hidden_size", "--hidden"},
      {"num_attention_heads", "--heads"},
      {"num_key_value_heads", "--kv-heads"},
      {"head_dim", "--head-dim"},
      {"intermediate_size", "--intermediate"},
      {"num_local_experts", "--experts"},
      {"num_experts_per_tok", "--top-k"},
  };
  const auto* found =
      std::ranges::find(kFlags, field, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kFlags) ? std::string_view() : found->second;
}

// Names the flag that asks for another value than the commit `name` was trained with.
ckpt::Error contradiction(const RunSpec& spec, const std::string& name,
                          const ConfigDifference& differs) {
  const std::string_view flag = flag_of(differs.field);
  const std::string was = differs.was.empty() ? fmt::format("without {}", flag)
                                              : fmt::format("with {} {}", flag, differs.was);
  if (const auto given = spec.given.find(flag); given != spec.given.end()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} {}: {} was trained {}; leave the flag out to resume it", flag,
                      given->second, name, was);
  }
  if (spec.config.preset && !flag.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--preset {}: {} was trained {}, the preset has {}; leave the flag out to "
                      "resume it",
                      *spec.config.preset, name, was, differs.is.empty() ? "none" : differs.is);
  }
  if (differs.was.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "{} was trained without {}, not with {}", name,
                      differs.field, differs.is);
  }
  return make_error(ErrorCode::kInvalidArgument, "{} was trained with {} {}, not {}", name,
                    differs.field, differs.was,
                    differs.is.empty() ? std::string("without") : differs.is);
}

}  // namespace

Status resolve_commit_name(const RunSpec& spec, ResolvedRun& run) {
  RankOptions& rank = run.options.rank;
  rank.run = spec.run_name;
  CKPT_TRY(check_run_name(rank.run));
  if (!spec.resumes()) return {};
  const auto commit = ckpt::parse_commit_name(spec.resume, rank.run);
  if (!commit.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "--resume {}: {}", spec.resume,
                      commit.error().message);
  }
  if (commit->run != rank.run && spec.is_given("--run")) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--resume {}: the run is {} (--run or CKPTD_RUN), and resumes from its own "
                      "commits only",
                      spec.resume, rank.run);
  }
  rank.run = commit->run;
  const bool newest = commit->kind == ckpt::Selector::Kind::kLatest && commit->lineage == 0;
  rank.resume = newest ? CKPT_RESUME_LATEST : CKPT_RESUME_AT_STEP;
  run.commit = *commit;
  return {};
}

Status adopt_commit(const RunSpec& spec, const RunFacts& facts, ResolvedRun& run) {
  RankOptions& rank = run.options.rank;
  const SavedRun& commit = *facts.commit;
  CKPT_TRY(check_same_trace(spec, facts, run));
  CKPT_ASSIGN(const TrainConfig wanted, config_flags(spec, facts).apply(commit.config));
  if (const auto differs = first_difference(commit.config, wanted)) {
    return contradiction(spec, fmt::format("run {} step {}", rank.run, commit.step), *differs);
  }
  if (commit.step > rank.steps) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "--steps {}: run {} is already at step {}; give more steps to train on, or an "
        "earlier commit with --resume",
        rank.steps, rank.run, commit.step);
  }
  rank.config = commit.config;
  rank.resume_lineage = commit.lineage;
  rank.resume_step = commit.step;
  // The newest commit is not done as long as some of its experts are older than it: the run has to
  // save them first.
  const bool newest = run.commit.kind == ckpt::Selector::Kind::kLatest;
  run.done = commit.step == rank.steps && !(newest && commit.stale);
  return {};
}

Status check_same_data(const RunSpec& spec, const RunFacts& facts, const ResolvedRun& run) {
  const DataFacts& now = *facts.data;
  const CommitState& then = *facts.commit_state;
  const bool same = then.data_crc32c == now.crc32c && then.data_bytes == now.bytes;
  if (same || spec.new_data) return {};
  if (spec.data.empty()) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "run {} step {} was trained on other data: {} with CRC32C {:08x}. Without --data a run "
        "trains on the project's own sources, which change with the checkout: they now have {} "
        "with {:08x}. Resume with --data FILE if it began with that data, or with --new-data to "
        "continue with these; a run that begins with --data FILE does not depend on the checkout",
        run.options.rank.run, facts.commit->step, ckpt::base::format_size(then.data_bytes),
        then.data_crc32c, ckpt::base::format_size(now.bytes), now.crc32c);
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      "run {} step {} was trained on other data: {} with CRC32C {:08x}, --data now has {} with "
      "{:08x}; give the same --data, or --new-data to continue with this",
      run.options.rank.run, facts.commit->step, ckpt::base::format_size(then.data_bytes),
      then.data_crc32c, ckpt::base::format_size(now.bytes), now.crc32c);
}

}  // namespace moetrain

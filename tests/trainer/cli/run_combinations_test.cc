// Combinations of flags: every one is either refused, or gives options that supervisor and ranks
// accept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/cli/command_line.h"

namespace moetrain::test {
namespace {

using testing::HasSubstr;

class RunCombinationsTest : public testing::Test {
 protected:
  RunCombinationsTest() { clear_environment(); }
};

// Calls `visit` with every way to take one of the alternatives of each group.
template <typename Visit>
void for_each_combination(const std::vector<std::vector<Flags>>& groups, const Visit& visit) {
  size_t combinations = 1;
  for (const auto& group : groups) combinations *= group.size();
  for (size_t number = 0; number < combinations; ++number) {
    Flags flags;
    size_t rest = number;
    for (const auto& group : groups) {
      const Flags& chosen = group[rest % group.size()];
      flags.insert(flags.end(), chosen.begin(), chosen.end());
      rest /= group.size();
    }
    visit(flags);
  }
}

bool has(const Flags& flags, const std::string& flag, const std::string& value) {
  for (size_t i = 0; i + 1 < flags.size(); ++i) {
    if (flags[i] == flag && flags[i + 1] == value) return true;
  }
  return false;
}

// The rules on placements and losses as a user reads them in the help.
std::string expected_refusal(const Flags& flags) {
  const bool replans = has(flags, "--replan-every", "5");
  const bool is_static = has(flags, "--placement", "static");
  if (replans && is_static) return "--replan-every 5: --placement static never moves";
  if (replans && has(flags, "--device", "cuda") && !has(flags, "--replan-if", "better")) {
    return "--replan-every 5: whether a move pays";
  }
  if (has(flags, "--on-loss", "restart")) {
    if (has(flags, "--join", "1@5")) return "--join 1@5: only with --on-loss continue";
    if (has(flags, "--leave", "1@7")) return "--leave 1@7: only with --on-loss continue";
  }
  return {};
}

TEST_F(RunCombinationsTest, PlacementDeviceAndLossPolicies) {
  const std::vector<std::vector<Flags>> groups = {
      {{"--placement", "static"},
       {"--placement", "eplb"},
       {"--placement", "lazarus"},
       {"--placement", "frontier"}},
      {{"--device", "cpu"}, {"--device", "cuda"}},
      {{}, {"--replan-every", "0"}, {"--replan-every", "5"}},
      {{}, {"--replan-if", "better"}},
      {{}, {"--on-loss", "continue"}, {"--on-loss", "restart"}},
      {{}, {"--join", "1@5"}, {"--leave", "1@7"}},
      {{}, {"--min-replicas", "2", "--slots", "8"}},
  };
  size_t accepted = 0;
  for_each_combination(groups, [&](Flags flags) {
    flags.insert(flags.end(), {"--ranks", "2"});
    if (has(flags, "--placement", "static") && has(flags, "--min-replicas", "2")) return;
    const auto resolved = spec_of(flags).resolve(machine_facts());
    const std::string refusal = expected_refusal(flags);
    const std::string line = testing::PrintToString(flags);
    ASSERT_EQ(resolved.ok(), refusal.empty())
        << line << (resolved.ok() ? "" : resolved.error().message);
    if (!resolved.ok()) {
      EXPECT_THAT(resolved.error().message, HasSubstr(refusal)) << line;
      return;
    }
    ++accepted;
    const RankOptions& rank = resolved->options.rank;
    const bool cpu = rank.device == "cpu";
    const bool by_itself = rank.elastic && cpu && !has(flags, "--placement", "static") &&
                           !has(flags, "--replan-every", "0") && !has(flags, "--replan-every", "5");
    EXPECT_EQ(rank.replan_every, by_itself                           ? 200u
                                 : has(flags, "--replan-every", "5") ? 5u
                                                                     : 0u)
        << line;
  });
  EXPECT_GT(accepted, 200u);
}

// The checks of a rank, which are internal ones, never refuse what resolve() has accepted.
TEST_F(RunCombinationsTest, RankAcceptsAllResolvedOptions) {
  const std::vector<std::vector<Flags>> groups = {
      {{}, {"--placement", "eplb"}, {"--placement", "frontier", "--slots", "8"}},
      {{"--ranks", "1"}, {"--ranks", "3"}},
      {{}, {"--experts-per-checkpoint", "2"}, {"--experts-per-checkpoint", "auto"}},
      {{}, {"--experts-per-snapshot", "all"}, {"--experts-per-snapshot", "auto"}},
      {{}, {"--checkpoint-every", "auto"}, {"--checkpoint-turns", "20"}},
      {{}, {"--on-loss", "restart"}, {"--expert-state", "sharded"}},
      {{}, {"--resume", "latest"}},
  };
  size_t accepted = 0;
  for_each_combination(groups, [&](const Flags& flags) {
    const bool resumes = flags.back() == "latest";
    const auto resolved = spec_of(flags).resolve(resumes ? resumed_facts() : machine_facts());
    const std::string line = testing::PrintToString(flags);
    if (!resolved.ok()) {
      EXPECT_THAT(resolved.error().message, HasSubstr("--experts-per-snapshot auto")) << line;
      return;
    }
    ++accepted;
    const RankOptions& sent = resolved->options.rank;
    const auto parsed = parse_rank_options(to_json(sent));
    ASSERT_TRUE(parsed.ok()) << line << parsed.error().message;
    EXPECT_EQ(to_json(*parsed), to_json(sent)) << line;
    EXPECT_TRUE(first_placement(*parsed).ok()) << line;
    EXPECT_TRUE(validate(parsed->config, parsed->ranks).ok()) << line;
    EXPECT_TRUE(validate(parsed->partial, parsed->config.model.experts).ok()) << line;
  });
  EXPECT_GT(accepted, 300u);
}

TEST_F(RunCombinationsTest, ShardedExpertsContinueAndReplanEveryStep) {
  const auto options_of = [](Flags flags) {
    flags.insert(flags.end(), {"--ranks", "2", "--expert-state", "sharded"});
    const auto resolved = spec_of(flags).resolve(machine_facts());
    EXPECT_TRUE(resolved.ok()) << resolved.error().message;
    return resolved->options;
  };
  const RunOptions even = options_of({});
  EXPECT_EQ(even.rank.expert_state, ExpertState::kSharded);
  EXPECT_TRUE(even.rank.elastic);
  EXPECT_TRUE(even.rank.moves_experts()) << "the last survivor saves all of them";
  EXPECT_FALSE(even.rank.partial.survivors_continue) << "every loss takes all ranks to one view";
  EXPECT_EQ(even.rank.replan_every, 0u) << "static never changes";
  EXPECT_EQ(even.on_loss_reason, "the default");
  const RunOptions by_load = options_of({"--placement", "laer", "--on-loss", "restart"});
  EXPECT_EQ(by_load.rank.replan_every, 1u);
  EXPECT_FALSE(by_load.rank.elastic);
  EXPECT_FALSE(by_load.rank.moves_experts());
  EXPECT_EQ(options_of({"--join", "1@5", "--leave", "0@7"}).joins.size(), 1u);
  EXPECT_EQ(options_of({"--placement", "laer", "--replan-every", "4"}).rank.replan_every, 4u);
  // More ranks than experts: a rank owns a part of each, and computes at least one.
  Flags many = {"--experts", "4", "--ranks", "8", "--expert-state", "sharded"};
  EXPECT_TRUE(spec_of(many).resolve(machine_facts()).ok());
}

TEST_F(RunCombinationsTest, RankOfKilledGroupCanBeKilledAgain) {
  const auto resolves = [](const Flags& flags) { return spec_of(flags).resolve(machine_facts()); };
  EXPECT_TRUE(resolves({"--ranks", "2", "--kill", "0@3", "--kill", "1@3", "--kill", "0@9"}).ok())
      << "all died in step 3, so rank 0 is there again";
  EXPECT_FALSE(resolves({"--ranks", "2", "--kill", "0@3", "--kill", "0@9"}).ok());
  EXPECT_TRUE(
      resolves({"--ranks", "2", "--kill", "0@3", "--kill", "0@9", "--on-loss", "restart"}).ok());
  EXPECT_TRUE(
      resolves({"--ranks", "2", "--kill", "0@3", "--kill", "0@9", "--kill-in", "1@plan"}).ok())
      << "nobody knows when rank 1 dies, so rank 0 may be there again";
}

}  // namespace
}  // namespace moetrain::test

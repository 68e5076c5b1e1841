// The facts that resolve() asks for, one after the other, and what each of them decides.
#include "trainer/cli/run_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/cli/command_line.h"
#include "trainer/cli/resume_remedy.h"

namespace moetrain::test {
namespace {

using testing::IsEmpty;

class RunFactsTest : public testing::Test {
 protected:
  RunFactsTest() { clear_environment(); }

  static ResolvedRun resolve(const Flags& flags, const RunFacts& facts) {
    auto resolved = spec_of(flags).resolve(facts);
    EXPECT_TRUE(resolved.ok()) << resolved.error().message;
    return *std::move(resolved);
  }
};

TEST_F(RunFactsTest, NewRunNeedsOnlyData) {
  RunFacts facts;
  ResolvedRun run = resolve({"--data", "a.txt"}, facts);
  EXPECT_EQ(run.needs, Fact::kData);
  EXPECT_THAT(run.options.rank.placement, IsEmpty());
  EXPECT_EQ(run.options.rank.data, Flags{"a.txt"});
  facts.data = machine_facts().data;
  run = resolve({"--data", "a.txt"}, facts);
  EXPECT_EQ(run.needs, Fact::kNone);
  EXPECT_FALSE(run.options.rank.placement.empty());
}

TEST_F(RunFactsTest, AsksForGpusBeforeData) {
  RunFacts facts;
  EXPECT_EQ(resolve({"--device", "cuda"}, facts).needs, Fact::kGpus);
  facts.gpus = GpuFacts{.count = 1};
  EXPECT_EQ(resolve({"--device", "cuda:0"}, facts).needs, Fact::kData);
}

TEST_F(RunFactsTest, AResumeNeedsCommitAndStateFromCkptd) {
  RunFacts facts;
  EXPECT_EQ(resolve({"--resume", "latest"}, facts).needs, Fact::kData);
  facts.data = machine_facts().data;
  ResolvedRun run = resolve({"--resume", "latest"}, facts);
  EXPECT_EQ(run.needs, Fact::kCommit);
  EXPECT_EQ(run.commit.run, "moetrain");
  EXPECT_EQ(run.options.rank.resume, CKPT_RESUME_LATEST);
  facts.commit = saved_run();
  facts.commit->config.seed = 9;
  run = resolve({"--resume", "latest"}, facts);
  EXPECT_EQ(run.needs, Fact::kCommitState);
  EXPECT_EQ(run.options.rank.config.seed, 9u) << "the run's own configuration counts";
  facts.commit_state = commit_state();
  run = resolve({"--resume", "latest"}, facts);
  EXPECT_EQ(run.needs, Fact::kNone);
  EXPECT_EQ(run.options.rank.resume_step, 40u);
  EXPECT_EQ(run.options.rank.resume_lineage, 3u);
  EXPECT_FALSE(run.options.rank.placement.empty());
}

TEST_F(RunFactsTest, ARunAtItsLastStepIsDone) {
  RunFacts facts = resumed_facts();
  facts.commit_state.reset();
  ResolvedRun run = resolve({"--resume", "latest", "--steps", "40"}, facts);
  EXPECT_TRUE(run.done);
  EXPECT_EQ(run.needs, Fact::kNone) << "nothing more is read of it";
  EXPECT_EQ(run.options.rank.resume_step, 40u);
  facts.commit->stale = true;
  EXPECT_FALSE(resolve({"--resume", "latest", "--steps", "40"}, facts).done)
      << "experts older than the commit have to be saved first";
  EXPECT_TRUE(resolve({"--resume", "40", "--steps", "40"}, facts).done);
}

TEST_F(RunFactsTest, ResumeFlagNamesRun) {
  RunFacts facts = machine_facts();
  const ResolvedRun run = resolve({"--resume", "books~2@30"}, facts);
  EXPECT_EQ(run.options.rank.run, "books");
  EXPECT_EQ(run.options.rank.resume, CKPT_RESUME_AT_STEP);
  EXPECT_EQ(run.commit.step, 30u);
  EXPECT_EQ(run.commit.lineage, 2u);
  EXPECT_EQ(resolve({"--resume", "30", "--run", "mine"}, facts).commit.run, "mine");
  EXPECT_EQ(resolve({"--resume", "mine@30", "--run", "mine"}, facts).commit.run, "mine");
}

// `static` stays where it is; the other policies follow what the run has routed so far.
TEST_F(RunFactsTest, AResumedPlacementFollowsRoutedTokens) {
  RunFacts facts = resumed_facts();
  const ModelConfig& model = facts.commit->config.model;
  std::vector<int64_t>& routed = facts.commit_state->routed_tokens;
  routed.assign(size_t{model.layers} * model.experts, 1);
  for (size_t layer = 0; layer < model.layers; ++layer) routed[layer * model.experts] = 1000;
  RunFacts equal = resumed_facts();
  const auto placement = [&](const std::string& policy, const RunFacts& of) {
    return resolve({"--resume", "latest", "--ranks", "4", "--placement", policy}, of)
        .options.rank.placement;
  };
  EXPECT_EQ(placement("static", facts), placement("static", equal));
  EXPECT_NE(placement("eplb", facts), placement("eplb", equal));
}

TEST_F(RunFactsTest, FailedResumeNamesRemedy) {
  EXPECT_EQ(resume_remedy(ckpt::ErrorDetail::kNoCommit), "; leave --resume out to begin it");
  EXPECT_EQ(resume_remedy(ckpt::ErrorDetail::kNoSuchRun),
            "; leave --resume out to begin it, or name another with --run: `ckptctl runs` lists "
            "them");
  EXPECT_EQ(resume_remedy(ckpt::ErrorDetail::kNone), "");
}

TEST_F(RunFactsTest, FailedReadNamesListOfRuns) {
  EXPECT_EQ(read_remedy(ckpt::ErrorDetail::kNoSuchRun), "; `ckptctl runs` lists them");
  EXPECT_EQ(read_remedy(ckpt::ErrorDetail::kNoCommit), "");
}

}  // namespace
}  // namespace moetrain::test

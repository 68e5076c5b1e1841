// Runs whose ranks can hold a limited number of experts: they end when too few ranks are left, and
// resume with more ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class ElasticSlotsTest : public ContinueTest {
 protected:
  // For eight experts: two ranks hold each expert once, four ranks hold each twice.
  const Flags four_slots_ = saved_ + Flags{"--placement", "lazarus", "--slots", "4"};
  const Flags no_more_ = four_slots_ + Flags{"--slots-max", "4"};
  const Flags kept_ = {"--data-dir", folder_ / "data"};

  // Resumes to the last step; the losses must equal those of an undisturbed run.
  json resume(const std::string& ranks) {
    const json report =
        run_continued("resumed.json", ranks, no_more_ + kept_ + Flags{"--resume", "latest"});
    EXPECT_EQ(report.at("losses").back().at("step"), 12) << last_error_output_;
    const auto baseline = undisturbed(kModel, 12);
    for (const auto& [step, loss] : bits(report)) EXPECT_EQ(loss, baseline.at(step)) << step;
    return report;
  }
};

TEST_F(ElasticSlotsTest, RunWithTooFewRanksEndsAndResumes) {
  const Ended ended = run(
      program_,
      continue_flags("first.json", "4", "12",
                     no_more_ + kept_ + Flags{"--kill", "3@3", "--kill", "2@5", "--kill", "1@7"}));
  EXPECT_EQ(ended.code(), 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("continuing after step 4 with 2 ranks"))
      << "they hold every expert once";
  EXPECT_THAT(ended.err, HasSubstr("run tiny step 6: 1 rank with --slots-max 4 can hold 4 of the 8 "
                                   "experts of a layer: at least 2 ranks are needed, or 8 slots"));
  EXPECT_THAT(ended.err, HasSubstr("--resume latest continues from the last checkpoint"));
  const json first = read_report("first.json");
  EXPECT_EQ(first.at("losses").back().at("step"), 6);
  EXPECT_EQ(first.at("failures").size(), 3u) << "the one that ended the run, too";
  expect_undisturbed(first);

  EXPECT_EQ(resume("2").at("losses").front().at("step"), 7);
}

// A rank that is asked to leave still has its state: all ranks save, and no expert is lost.
TEST_F(ElasticSlotsTest, RunSavesAndStopsWhenNeededRankLeaves) {
  const Ended ended = run(
      program_,
      continue_flags("first.json", "2", "12", kept_ + Flags{"--slots-max", "4", "--leave", "1@3"}));
  EXPECT_EQ(ended.code(), 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("stopped by itself after step "));
  EXPECT_THAT(ended.err,
              HasSubstr("moetrain: 1 rank with --slots-max 4 can hold 4 of the 8 experts "
                        "of a layer: at least 2 ranks are needed, or 8 slots"));
  const json first = read_report("first.json");
  ASSERT_EQ(first.at("checkpoints").at("count"), 1) << "the last, of what they had come to";
  const auto step = first["losses"].back().at("step").get<uint64_t>();
  EXPECT_EQ(first["checkpoints"].at("each")[0].at("step"), step);
  expect_undisturbed(first);

  EXPECT_EQ(resume("3").at("losses").front().at("step"), step + 1);
}

TEST_F(ElasticSlotsTest, LastRankHoldsAllExpertsWithoutSlotLimit) {
  const json report =
      run_continued("last.json", "3", four_slots_ + Flags{"--kill", "2@3", "--kill", "1@5"});
  ASSERT_EQ(report.at("failures").size(), 2u) << last_error_output_;
  EXPECT_EQ(report["failures"][1].at("group"), 1);
  EXPECT_THAT(last_error_output_, Not(HasSubstr("--slots-max")));
  expect_undisturbed(report);
}

TEST_F(ElasticSlotsTest, RefusesTooSmallSlotLimit) {
  const Ended few = run(program_, continue_flags("few.json", "2", "12", {"--slots-max", "3"}));
  EXPECT_EQ(few.code(), 2);
  EXPECT_THAT(few.err, HasSubstr("2 ranks with --slots-max 3 can hold 6 of the 8 experts of a layer"
                                 ": at least 3 ranks are needed, or 4 slots"));
  const Ended less =
      run(program_, continue_flags("less.json", "4", "12",
                                   {"--placement", "lazarus", "--slots", "4", "--slots-max", "3"}));
  EXPECT_EQ(less.code(), 2);
  EXPECT_THAT(less.err, HasSubstr("--slots-max 3: fewer than --slots 4"));
}

}  // namespace
}  // namespace systemtest

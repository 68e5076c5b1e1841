// The gate's tokens and its waiting activities, one by one. All interleavings:
// run_gate_model_test.cc.
#include "ckptd/history/run_gate.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ckptd {
namespace {

constexpr ckpt::RunId kRun = 7;

TEST(RunGate, TokenExcludesUntilReleased) {
  RunGate gate;
  RunGate::Token deleting = gate.begin(RunActivity::kDelete, kRun);
  EXPECT_TRUE(gate.busy(RunActivity::kDelete, kRun));
  EXPECT_FALSE(gate.may(RunActivity::kHold, kRun));
  deleting.release();
  EXPECT_FALSE(gate.busy(RunActivity::kDelete, kRun));
  EXPECT_TRUE(gate.may(RunActivity::kHold, kRun));
}

TEST(RunGate, OtherRunsAreNotExcluded) {
  RunGate gate;
  const RunGate::Token removing = gate.begin(RunActivity::kRemove, kRun);
  EXPECT_TRUE(gate.may(RunActivity::kDelete, kRun + 1));
  EXPECT_TRUE(gate.may(RunActivity::kDelete, kRun - 1));
}

TEST(RunGate, AdministrationExcludesOnlyAdministration) {
  RunGate gate;
  const RunGate::Token administering = gate.begin(RunActivity::kAdminister);
  EXPECT_FALSE(gate.may(RunActivity::kAdminister));
  EXPECT_TRUE(gate.may(RunActivity::kDelete, kRun)) << "it is what administers";
}

TEST(RunGate, MovedTokenReleasesOnce) {
  RunGate gate;
  {
    RunGate::Token first = gate.begin(RunActivity::kRegister, kRun);
    RunGate::Token second = std::move(first);
    first.release();  // NOLINT(bugprone-use-after-move): a moved token holds nothing
    EXPECT_TRUE(gate.busy(RunActivity::kRegister, kRun));
    second = gate.begin(RunActivity::kRegister, kRun + 1);
    EXPECT_FALSE(gate.busy(RunActivity::kRegister, kRun)) << "assigned over";
    EXPECT_TRUE(gate.busy(RunActivity::kRegister, kRun + 1));
  }
  EXPECT_FALSE(gate.busy(RunActivity::kRegister, kRun + 1));
}

TEST(RunGate, EqualTokensAreCounted) {
  RunGate gate;
  RunGate::Token first = gate.begin(RunActivity::kRegister, kRun);
  RunGate::Token second = gate.begin(RunActivity::kRegister, kRun);
  first.release();
  EXPECT_FALSE(gate.may(RunActivity::kRemove, kRun));
  second.release();
  EXPECT_TRUE(gate.may(RunActivity::kRemove, kRun));
}

TEST(RunGate, WakesInTheOrderOfArrival) {
  RunGate gate;
  std::string woken;
  RunGate::Token deleting = gate.begin(RunActivity::kDelete, kRun);
  gate.wait(RunActivity::kWriteEpoch, kRun, [&] { woken += "epoch "; });
  gate.wait(RunActivity::kHold, kRun, [&] { woken += "hold "; });
  EXPECT_EQ(woken, "");
  deleting.release();
  EXPECT_EQ(woken, "epoch hold ");
}

TEST(RunGate, WakesOnlyOnce) {
  RunGate gate;
  int woken = 0;
  RunGate::Token deleting = gate.begin(RunActivity::kDelete, kRun);
  gate.wait(RunActivity::kWriteEpoch, kRun, [&] { ++woken; });
  gate.wait(RunActivity::kWriteEpoch, kRun, [&] { ++woken; });
  deleting.release();
  deleting = gate.begin(RunActivity::kDelete, kRun);
  deleting.release();
  EXPECT_EQ(woken, 1);
}

TEST(RunGate, WakesAfterTheLastExcludingActivity) {
  RunGate gate;
  bool woken = false;
  RunGate::Token registering = gate.begin(RunActivity::kRegister, kRun);
  RunGate::Token writing = gate.begin(RunActivity::kWriteEpoch, kRun);
  gate.wait(RunActivity::kRemove, kRun, [&] { woken = true; });
  registering.release();
  EXPECT_FALSE(woken);
  writing.release();
  EXPECT_TRUE(woken);
}

TEST(RunGate, WokenActivityMayExcludeTheNext) {
  RunGate gate;
  std::vector<RunGate::Token> tokens;
  bool epoch_woken = false;
  RunGate::Token removing = gate.begin(RunActivity::kRemove, kRun);
  gate.wait(RunActivity::kDelete, kRun,
            [&] { tokens.push_back(gate.begin(RunActivity::kDelete, kRun)); });
  gate.wait(RunActivity::kWriteEpoch, kRun, [&] { epoch_woken = true; });
  removing.release();
  EXPECT_EQ(tokens.size(), 1u);
  EXPECT_FALSE(epoch_woken);
  tokens.clear();
  EXPECT_TRUE(epoch_woken);
}

TEST(RunGate, ClosedGateWakesNobody) {
  RunGate gate;
  bool woken = false;
  RunGate::Token first = gate.begin(RunActivity::kDelete, kRun);
  gate.wait(RunActivity::kWriteEpoch, kRun, [&] { woken = true; });
  gate.close();
  gate.wait(RunActivity::kHold, kRun, [&] { woken = true; });
  first.release();
  EXPECT_FALSE(woken);
}

TEST(RunGateDeathTest, TokenMustNotOutliveItsGate) {
  auto gate = std::make_unique<RunGate>();
  RunGate::Token token = gate->begin(RunActivity::kWriteEpoch, kRun);
  EXPECT_DEATH(gate.reset(), "a change of a run outlives its gate");
  token.release();
}

TEST(RunGateDeathTest, ExcludedActivityMustNotBegin) {
  RunGate gate;
  const RunGate::Token deleting = gate.begin(RunActivity::kDelete, kRun);
  EXPECT_DEATH((void)gate.begin(RunActivity::kWriteEpoch, kRun), "another one excludes");
}

}  // namespace
}  // namespace ckptd

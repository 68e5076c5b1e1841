// Whole runs of moetrain on a GPU, or on the emulated one: a killed rank restarts, restores into
// device memory, and continues with the same bits.
#include <algorithm>

#include "tests/system/training.h"
#include "trainer/device/cuda_device.h"

namespace systemtest {
namespace {

class CudaTrainingTest : public TrainingTest {
 protected:
  void SetUp() override {
    std::string reason;
    if (moetrain::count_cuda_devices(&reason) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    }
  }
  // Smallest possible: an emulated thread costs as much as thousands of real ones.
  nlohmann::json train_on_gpu(const std::string& report, std::vector<std::string> more) {
    const std::vector<std::string> small = {"--device", "cuda:0",          "--layers",
                                            "1",        "--micro-batches", "1"};
    more.insert(more.begin(), small.begin(), small.end());
    if (std::ranges::find(more, "--ranks") == more.end()) more.insert(more.end(), {"--ranks", "2"});
    const Ended ended = run(MOETRAIN_ON_GPU, arguments(report, more));
    EXPECT_EQ(ended.code(), 0) << ended.err;
    return read_report(report);
  }
};

TEST_F(CudaTrainingTest, RestartedRankContinuesWithSameBits) {
  const auto whole = train_on_gpu("whole.json", {"--steps", "6", "--checkpoint-every", "2"});
  const auto killed = train_on_gpu("killed.json", {"--steps", "6", "--checkpoint-every", "2",
                                                   "--kill", "1@4", "--on-loss", "restart"});
  EXPECT_EQ(bits(whole).size(), 6u);
  EXPECT_EQ(bits(killed), bits(whole));
  EXPECT_EQ(killed.at("failures").size(), 1u) << "nobody died";
}

// Saves a snapshot at every step: each is gathered while the next step computes, before that step
// writes. Then a run resumes from the last snapshot.
TEST_F(CudaTrainingTest, ResumesFromSnapshotStagedDuringTraining) {
  const std::string store = folder_ / "store";
  const auto whole = train_on_gpu(
      "whole.json", {"--steps", "6", "--checkpoint-every", "0", "--precision", "bf16"});
  train_on_gpu("first.json", {"--checkpoint-every", "1", "--precision", "bf16", "--steps", "4",
                              "--data-dir", store});
  const auto rest = train_on_gpu("rest.json", {"--steps", "6", "--checkpoint-every", "1",
                                               "--resume", "3", "--data-dir", store});
  for (const auto& [step, loss_bits] : bits(rest)) EXPECT_EQ(loss_bits, bits(whole)[step]) << step;
  EXPECT_EQ(bits(rest).size(), 3u);
}

// Survivors continue with their state on the device, while snapshots are being staged. One rank is
// lost, and later another leaves on request.
TEST_F(CudaTrainingTest, SurvivorsContinueWithTheirState) {
  const std::vector<std::string> same = {
      "--ranks", "3", "--steps", "5", "--placement", "lazarus", "--checkpoint-every", "1"};
  const auto whole = train_on_gpu("whole.json", same);
  std::vector<std::string> losing = same;
  for (const char* flag : {"--kill", "1@3", "--leave", "2@4"}) losing.emplace_back(flag);
  const auto report = train_on_gpu("losing.json", losing);
  EXPECT_EQ(report.at("on_loss"), "continue");
  EXPECT_EQ(report.at("on_loss_reason"), "the default");
  EXPECT_EQ(report.at("failures").size(), 1u) << "nobody died";
  EXPECT_EQ(losses(report).size(), 5u);
  for (const auto& [step, loss] : losses(report)) {
    EXPECT_NEAR(loss, losses(whole)[step], 1e-5) << "step " << step;
  }
}

// Experts migrate with the load, through host memory, while snapshots are being staged.
TEST_F(CudaTrainingTest, ExpertsFollowTheLoad) {
  const std::vector<std::string> skewed = {
      "--ranks",       "3",   "--steps", "5", "--experts",          "6", "--batch",     "6",
      "--router-skew", "1.5", "--slots", "3", "--checkpoint-every", "1", "--placement", "frontier"};
  const auto baseline = train_on_gpu("stays.json", skewed);
  for (const char* on_loss : {"continue", "restart"}) {
    SCOPED_TRACE(on_loss);
    std::vector<std::string> moving = skewed;
    for (const char* flag :
         {"--replan-every", "2", "--replan-if", "better", "--on-loss", on_loss}) {
      moving.emplace_back(flag);
    }
    const auto report = train_on_gpu("moves.json", moving);
    ASSERT_EQ(report.at("replans").size(), 2u) << "after steps 2 and 4";
    const auto& first = report["replans"][0];
    EXPECT_EQ(first.at("moved"), true) << first.dump();
    EXPECT_GT(first.at("bytes"), 0);
    EXPECT_EQ(first.at("gain_ms"), 0) << "nothing measures it";
    EXPECT_EQ(losses(report).size(), 5u);
    for (const auto& [step, loss] : losses(report)) {
      EXPECT_NEAR(loss, losses(baseline)[step], 1e-5) << "step " << step;
    }
  }
}

TEST_F(CudaTrainingTest, MissingDeviceIsNamed) {
  const Ended ended =
      run(MOETRAIN_ON_GPU, arguments("r.json", {"--device", "cuda:77", "--steps", "1"}));
  EXPECT_EQ(ended.code(), 1);
  EXPECT_NE(ended.err.find("device cuda:77"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace systemtest

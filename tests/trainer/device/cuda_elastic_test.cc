// Membership changes with one GPU per rank: each epoch connects NCCL again. The GPUs are emulated
// and NCCL is a test double. The double adds in the order of ranks, as the host does: a run with it
// has the same bits as a run without NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <bit>
#include <cstdlib>
#include <map>

#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class CudaElasticTest : public ContinueTest {
 protected:
  CudaElasticTest() {
    program_ = MOETRAIN_ON_GPU;
    // Smallest possible: an emulated thread costs as much as thousands of real ones.
    model_ = {"--device", "cuda", "--layers", "1", "--micro-batches", "1", "--seq", "8"};
    ::setenv("NCCL_DOUBLE_FOLDER", folder_.path().c_str(), /*overwrite=*/1);
  }
  ~CudaElasticTest() override {
    for (const char* name : {"NCCL_DOUBLE_FOLDER", "NCCL_DOUBLE_ERROR", "CUDA_EMULATOR_DEVICES"}) {
      ::unsetenv(name);
    }
  }
  // Number of GPUs that programs started from here on see.
  static void set_gpus(int count) {
    ::setenv("CUDA_EMULATOR_DEVICES", std::to_string(count).c_str(), /*overwrite=*/1);
  }
  static void make_nccl_fail(int with) {
    ::setenv("NCCL_DOUBLE_ERROR", std::to_string(with).c_str(), /*overwrite=*/1);
  }
  // The groups that have trained: number of ranks, and the transport of their collectives.
  using Groups = std::vector<std::pair<uint32_t, std::string>>;
  static Groups groups_of(const std::vector<json>& events) {
    std::map<uint64_t, std::pair<uint32_t, std::string>> groups;  // by epoch
    for (const json& event : events) {
      if (event.value("event", "") != "training") continue;
      const auto of_rank =
          std::pair(event.value("group", 0u), event.value("collectives", std::string("?")));
      const auto [known, is_new] = groups.emplace(event.value("epoch", 0), of_rank);
      EXPECT_EQ(known->second, of_rank) << "ranks go different ways: " << event.dump();
    }
    Groups all;
    for (const auto& [epoch, group] : groups) all.push_back(group);
    return all;
  }
  Groups groups() const { return groups_of(read_lines(events_)); }
};

TEST_F(CudaElasticTest, ALossAndADepartureChangeNoBit) {
  const Flags changes = twice_ + Flags{"--kill", "1@3", "--leave", "3@6"};
  set_gpus(4);
  const json over_nccl = run_continued("nccl.json", "4", changes);
  EXPECT_THAT(last_error_output_, Not(HasSubstr("without NCCL")));
  EXPECT_EQ(groups(), (Groups{{4, "nccl"}, {3, "nccl"}, {2, "nccl"}}));
  EXPECT_EQ(over_nccl.at("failures").size(), 1u);
  EXPECT_EQ(over_nccl.at("plt"), 0);
  set_gpus(1);
  const json over_host = run_continued("host.json", "4", changes);
  EXPECT_EQ(groups(), (Groups{{4, "host"}, {3, "host"}, {2, "host"}}));
  EXPECT_THAT(last_error_output_, HasSubstr("without NCCL: ranks 0 and 1 have the same GPU"));
  EXPECT_EQ(bits(over_nccl).size(), 12u);
  EXPECT_EQ(bits(over_nccl), bits(over_host));
}

// The first joining rank gets the GPU of the lost rank. The second finds no free GPU, so all ranks
// go without NCCL until it has left.
TEST_F(CudaElasticTest, JoiningRankWithoutFreeGpuDisablesNccl) {
  set_gpus(3);
  WatchedRun run =
      watch("joins.json", "3", twice_ + Flags{"--kill", "1@3", "--join", "1@4", "--join", "1@12"});
  ASSERT_TRUE(run.await_group(4));
  ASSERT_TRUE(run.signal_rank(4, SIGTERM));
  EXPECT_TRUE(run.await([](const json& event) {
    return event.value("event", "") == "training" && event.value("group", 0) == 3 &&
           event.value("epoch", 0) == 5;
  }));
  const Ended ended = run.stop();
  EXPECT_EQ(groups_of(run.events()),
            (Groups{{3, "nccl"}, {2, "nccl"}, {3, "nccl"}, {4, "host"}, {3, "nccl"}}))
      << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("without NCCL: ranks 0 and "));
  EXPECT_EQ(read_report("joins.json").at("plt"), 0);
}

// SIGSTOP, not SIGKILL: the others' waits on their GPUs end with the timeout of a collective.
TEST_F(CudaElasticTest, StoppedRankIsExcludedThenRejoins) {
  set_gpus(3);
  WatchedRun run = watch("hangs.json", "3",
                         twice_ + Flags{"--heartbeat-timeout-ms", "0", "--collective-timeout-ms",
                                        "3000", "--loss-grace-ms", "1000"});
  ASSERT_TRUE(run.await_step(2));
  ASSERT_TRUE(run.signal_rank(2, SIGSTOP));
  EXPECT_TRUE(run.await_group(2));
  ASSERT_TRUE(run.signal_rank(2, SIGCONT));
  EXPECT_TRUE(run.await_group(3)) << "it joins again, as a new one";
  const Ended ended = run.stop();
  const Groups all = groups_of(run.events());
  EXPECT_EQ(all.front(), Groups::value_type(3, "nccl"));
  EXPECT_THAT(all, testing::Contains(Groups::value_type(2, "nccl"))) << ended.err;
  EXPECT_EQ(all.back(), Groups::value_type(3, "nccl")) << ended.err;
}

// An error that a peer may have caused is retried, three tries in all; other errors are not.
TEST_F(CudaElasticTest, NcclFailureWithoutLossFallsBackToHost) {
  constexpr int kInternalError = 3;
  constexpr int kRemoteError = 6;
  set_gpus(2);
  for (const int error : {kInternalError, kRemoteError}) {
    SCOPED_TRACE(error);
    make_nccl_fail(error);
    const json report = run_continued("fails.json", "2", {});
    EXPECT_EQ(groups(), (Groups{{2, "host"}}));
    EXPECT_THAT(last_error_output_, HasSubstr("has no GPU that NCCL can use: "));
    EXPECT_THAT(last_error_output_, HasSubstr("connecting: NCCL: "));
    EXPECT_EQ(bits(report).size(), 12u);
  }
  EXPECT_THAT(last_error_output_, HasSubstr("failed 3 times in a row, though nobody was lost"));
  make_nccl_fail(kInternalError);
  const Ended ended = run(
      program_, arguments("ends.json",
                          model_ + Flags{"--ranks", "2", "--steps", "2", "--on-loss", "restart"}));
  EXPECT_EQ(ended.code(), 1);
  EXPECT_THAT(ended.err, HasSubstr("connecting: NCCL: ")) << "it promises the same bits";
}

// Sharded experts: the rank's thread uses collectives over NCCL or the host, the communication
// thread over the host.
class CudaShardedTest : public CudaElasticTest {
 protected:
  CudaShardedTest() { model_[3] = "2"; }  // two layers: one is restored before the other

  const Flags sharded_ = {"--expert-state", "sharded", "--placement",    "laer",
                          "--slots",        "4",       "--replan-every", "2"};
};

TEST_F(CudaShardedTest, LossRollsBackToOneViewAndRecuts) {
  const Flags changes = sharded_ + saved_ + Flags{"--kill", "1@5", "--leave", "3@8"};
  set_gpus(4);
  const json over_nccl = run_continued("nccl.json", "4", changes);
  EXPECT_EQ(groups(), (Groups{{4, "nccl"}, {3, "nccl"}, {2, "nccl"}}));
  EXPECT_THAT(last_error_output_, HasSubstr("all 3 ranks return to step "));
  ASSERT_EQ(over_nccl.at("failures").size(), 1u);
  EXPECT_LE(over_nccl.at("failures")[0].at("steps_lost"), 2) << "a snapshot is sealed a step later";
  EXPECT_EQ(over_nccl.at("failures")[0].at("stale_units"), 0);
  set_gpus(1);
  const json over_host = run_continued("host.json", "4", changes);
  EXPECT_EQ(groups(), (Groups{{4, "host"}, {3, "host"}, {2, "host"}}));
  EXPECT_EQ(bits(over_nccl).size(), 12u);
  EXPECT_EQ(bits(over_nccl), bits(over_host));
}

TEST_F(CudaShardedTest, ScheduleAndRestartChangeNoBit) {
  set_gpus(3);
  for (const Flags& precision : {Flags{}, Flags{"--precision", "bf16"}}) {
    SCOPED_TRACE(precision.size());
    const Flags flags = sharded_ + precision;
    const json delayed = run_continued("delayed.json", "3", flags);
    EXPECT_GT(delayed.at("exchange").at("restore_bytes"), 0);
    EXPECT_LE(delayed.at("exchange").at("memory_bytes"), delayed.at("exchange").at("memory_bound"));
    const json at_once =
        run_continued("inline.json", "3", flags + Flags{"--prefetch", "0", "--reshard", "inline"});
    EXPECT_EQ(at_once.at("exchange").at("hidden_ms"), 0);
    EXPECT_EQ(bits(at_once), bits(delayed));
    const Flags restart = {"--ranks",   "3",       "--steps", "12",
                           "--on-loss", "restart", "--kill",  "2@6"};
    const Ended ended = run(program_, arguments("killed.json", model_ + flags + restart));
    ASSERT_EQ(ended.code(), 0) << ended.err;
    const json killed = read_report("killed.json");
    EXPECT_EQ(killed.at("failures").size(), 1u);
    EXPECT_EQ(bits(killed), bits(delayed));
  }
}

// Each mode resumes from what the other saved, with the losses of a run that was not interrupted:
// only the order of fp32 sums differs.
TEST_F(CudaShardedTest, CheckpointResumesInOtherMode) {
  set_gpus(2);
  const Flags replicated = {"--slots", "4"};
  const auto train = [&](const Flags& mode, const std::string& steps, const Flags& more) {
    const Ended ended = run(program_, continue_flags("r.json", "2", steps, mode + more));
    EXPECT_EQ(ended.code(), 0) << ended.err;
    return bits(read_report("r.json"));
  };
  const auto loss_of = [](const std::string& hex) {
    return std::bit_cast<float>(static_cast<uint32_t>(std::stoul(hex, nullptr, 16)));
  };
  const auto whole = train(replicated, "12", {});
  const Flags store = {"--data-dir", folder_ / "store", "--run", "both"};
  const Flags resume = store + Flags{"--resume", "latest"};
  std::map<uint64_t, std::string> losses = train(sharded_, "4", store);
  losses.merge(train(replicated, "8", resume));
  losses.merge(train(sharded_, "12", resume));
  ASSERT_EQ(losses.size(), 12u);
  ASSERT_EQ(whole.size(), 12u);
  for (const auto& [step, loss] : losses) {
    const float expected = loss_of(whole.at(step));
    EXPECT_NEAR(loss_of(loss), expected, 1e-4 * expected) << step;
  }
}

}  // namespace
}  // namespace systemtest

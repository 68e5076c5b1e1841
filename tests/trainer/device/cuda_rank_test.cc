// A rank on the emulated device, whose streams run early or late as configured. The content of a
// snapshot must not depend on that. A missing wait shows as a resumed run with other losses.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/support/cuda_emulator/control.h"
#include "tests/support/daemon_process.h"
#include "trainer/rank/rank.h"

namespace moetrain {
namespace {

using ckpt::test::DaemonProcess;

// Streams in order of creation: the trainer's, then those that gather and drain snapshots.
constexpr uint64_t kTrainerEarly = 0b001;
constexpr uint64_t kCopiesEarly = 0b110;

class CudaRankTest : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    std::ofstream text(text_, std::ios::binary);
    for (int i = 0; i < 1000; ++i) text << "step " << i * i % 97 << '\n';
  }
  RankOptions options() const {
    RankOptions options;
    options.config.model = {.hidden = 16,
                            .layers = 1,
                            .heads = 2,
                            .kv_heads = 1,
                            .head_dim = 8,
                            .intermediate = 24,
                            .experts = 2,
                            .top_k = 1,
                            .seq_len = 8,
                            .rope_theta = 1e4};
    options.config.micro_batches = 1;
    options.config.batch = 2;
    options.data = {text_};
    options.run = "streams";
    options.socket = daemon_.socket();
    options.device = "cuda:0";
    options.steps = 4;
    options.checkpoint_every = 1;
    return options;
  }
  // The bits of the loss, by step.
  std::map<uint64_t, uint32_t> run(const RankOptions& options) {
    const std::string path = daemon_.folder().path("events");
    const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    EXPECT_GE(fd, 0);
    EventWriter events(fd, 0);
    const std::atomic<bool> stop = false;
    EXPECT_EQ(run_rank(options, events, stop, stop), 0);
    ::close(fd);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    EventReader reader;
    reader.append(text.str());
    std::map<uint64_t, uint32_t> bits;
    for (const RankEvent& event : reader.take()) {
      if (const auto* step = event.as<StepEvent>()) bits[event.header.step] = step->loss_bits;
      const auto* snapshot = event.as<SnapshotEvent>();
      EXPECT_TRUE(snapshot == nullptr || snapshot->durable) << snapshot->reason;
      const auto* fatal = event.as<FatalEvent>();
      EXPECT_EQ(fatal, nullptr) << (fatal == nullptr ? "" : fatal->reason);
    }
    return bits;
  }

  DaemonProcess daemon_;
  const std::string text_ = daemon_.folder().path("text");
};

TEST_P(CudaRankTest, ResumeFromSnapshotKeepsLosses) {
  cuda_emulator::make_eager(GetParam());
  const auto whole = run(options());
  RankOptions again = options();
  again.resume = CKPT_RESUME_AT_STEP;
  again.resume_step = 2;
  const auto rest = run(again);
  ASSERT_EQ(whole.size(), 4u);
  ASSERT_EQ(rest.size(), 2u);
  for (const auto& [step, loss_bits] : rest) EXPECT_EQ(loss_bits, whole.at(step)) << step;
}

std::string early_name(const testing::TestParamInfo<uint64_t>& early) {
  return early.param == kTrainerEarly ? "TrainerEarly" : "CopiesEarly";
}
INSTANTIATE_TEST_SUITE_P(Streams, CudaRankTest, testing::Values(kTrainerEarly, kCopiesEarly),
                         early_name);

}  // namespace
}  // namespace moetrain

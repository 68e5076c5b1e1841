// Runs that resume from damaged checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>

#include "tests/support/damaged_files.h"
#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class DamageTest : public TrainingTest {
 protected:
  // The first saved bytes of tensor `name` of a view; few enough to lie in one fragment.
  std::vector<std::byte> bytes_of(const std::string& view, const std::string& name) const {
    const std::string out = folder_ / "hf";
    const Ckptd daemon(store_);
    EXPECT_EQ(daemon.ctl({"export", view, "--out", out}).code(), 0);
    const std::string file = read_file(out + "/model.safetensors");
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
    const json header = json::parse(file.substr(sizeof header_bytes, header_bytes));
    const std::vector<size_t> range = header.at(name).at("data_offsets");
    const auto* const data =
        reinterpret_cast<const std::byte*>(&file[sizeof header_bytes + header_bytes]);
    EXPECT_LE(range[0] + kBytes, range[1]);
    return {data + range[0], data + range[0] + kBytes};
  }

  static constexpr size_t kBytes = 64;
  const std::string store_ = folder_ / "store";
};

// Dense units of different steps do not fit together. Both ranks need the unit, so both roll back
// to the newest step at which every dense unit can be read.
TEST_F(DamageTest, UnreadableDenseUnitRollsBackAllRanks) {
  const std::vector<std::string> base = {"--ranks", "2",          "--checkpoint-every",
                                         "4",       "--data-dir", store_};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  const auto first = bits(train("first.json", with({"--steps", "12"})));
  const auto damaged = bytes_of("tiny@12", "model.layers.0.self_attn.q_proj.weight");
  ASSERT_EQ(ckpt::test::flip_a_bit(store_ + "/segments", damaged), 1u);
  const auto again = bits(train("again.json", with({"--steps", "16", "--resume", "latest"})));
  EXPECT_THAT(last_error_output_, HasSubstr("unit layers.0.attention is from step 8"));
  EXPECT_THAT(last_error_output_, HasSubstr("run tiny step 12: unit layers.0.attention cannot be "
                                            "read as of this step: all go back to step 8"));
  EXPECT_EQ(again.begin()->first, 9u);
  for (uint64_t step = 9; step <= 12; ++step) {
    EXPECT_EQ(again.at(step), first.at(step)) << step;
  }
  const Ckptd daemon(store_);
  EXPECT_EQ(daemon.ctl({"show", "tiny@16"}).code(), 0);
}

// The newest view, to which all ranks roll back after the loss, cannot be read as a whole. The two
// survivors start another epoch from an older view.
TEST_F(DamageTest, ShardedSurvivorsRollBackToCompleteView) {
  const Flags base = {"--expert-state", "sharded", "--ranks", "3", "--data-dir", store_};
  train("first.json", base + Flags{"--steps", "12", "--checkpoint-every", "4"});
  const auto damaged = bytes_of("tiny@12", "model.layers.0.self_attn.q_proj.weight");
  const std::string events = folder_ / "events";
  WatchedRun run(
      "moetrain",
      arguments("again.json", base + Flags{"--steps", "1000000", "--checkpoint-every", "0",
                                           "--resume", "latest", "--events", events}),
      events);
  ASSERT_TRUE(run.await_step(14));
  ASSERT_EQ(ckpt::test::flip_a_bit(store_ + "/segments", damaged), 1u);
  ASSERT_TRUE(run.signal_rank(1, SIGKILL));
  ASSERT_TRUE(run.await([](const json& event) {
    return event.value("event", "") == "training" && event.value("group", 0) == 2 &&
           event.value("step", 0) == 8;
  }));
  ASSERT_TRUE(run.await_steps(2));
  const Ended ended = run.stop();
  EXPECT_THAT(ended.err, HasSubstr("all go back to step 8"));
  EXPECT_THAT(ended.err, HasSubstr("resumed at step 8 (2 ranks, "));
  const auto again = bits(read_report("again.json"));
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again.begin()->first, 9u);
  const auto expected = undisturbed({}, again.rbegin()->first);
  for (const auto& [step, loss_bits] : again) EXPECT_EQ(loss_bits, expected.at(step)) << step;
}

}  // namespace
}  // namespace systemtest

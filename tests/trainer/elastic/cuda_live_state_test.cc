// Membership changes during training on the emulated GPU. The bits of sums depend on the ranks that
// compute them, so losses are close to those of an unchanged group, not equal.
#include <gmock/gmock.h>

#include "kernels/cuda/event.h"
#include "kernels/cuda/queue.h"
#include "tests/support/cuda_emulator/control.h"
#include "tests/trainer/elastic/live_state_ranks.h"
#include "trainer/device/cuda_device.h"

namespace moetrain {
namespace {

using testing::FloatNear;
using testing::IsEmpty;
using testing::Pointwise;

constexpr float kNear = 1e-5f;

class CudaLiveStateTest : public LiveStateRanks {
 protected:
  std::unique_ptr<Device> make_device() override {
    auto device = make_cuda_device({});
    CKPT_ASSERT_MSG(device.ok(), device.error().message);
    return std::move(*device);
  }
  void TearDown() override { cuda_emulator::make_eager(0); }
};

TEST_F(CudaLiveStateTest, GroupsShrinkAndGrow) {
  const std::vector<float> expected = undisturbed(4);
  Group group = start(3, twice_);
  train(group, 1);
  group.erase(group.begin() + 1);
  change(group);
  EXPECT_THAT(group[0]->live.lost(), IsEmpty());
  train(group, 1);
  group.push_back(make(3, 2, twice_));  // joins without state
  change(group);
  EXPECT_GT(group[0]->bytes_moved, 0u);
  train(group, 2);
  EXPECT_THAT(group[0]->losses, Pointwise(FloatNear(kNear), expected));
  EXPECT_EQ(group[2]->losses.back(), group[0]->losses.back());
  EXPECT_EQ(group[2]->progress, group[0]->progress);
}

TEST_F(CudaLiveStateTest, LossInAnyPhaseKeepsReplicatedExperts) {
  const std::vector<float> expected = undisturbed(2);
  for (int phase = 0; phase <= 4; ++phase) {
    const auto victim = static_cast<size_t>(phase % 3);
    SCOPED_TRACE(testing::Message() << "rank " << victim << " in phase " << phase);
    Group group = start(4, {.policy = PolicyName::kLazarus, .slots = 5, .replicas_min = 3});
    train(group, 1);
    group.erase(group.begin() + 3);
    (void)all(group, [&](Rank& rank, Comm& comm) {
      return rank.change(comm, &rank == group[victim].get() ? phase : -1);
    });
    group.erase(group.begin() + static_cast<ptrdiff_t>(victim));
    change(group);
    EXPECT_THAT(group[0]->live.lost(), IsEmpty());
    train(group, 1);
    EXPECT_THAT(group[0]->losses, Pointwise(FloatNear(kNear), expected));
  }
}

TEST_F(CudaLiveStateTest, LostExpertsRestartFromSeedAlone) {
  Group group = start(3, {});
  train(group, 2);
  const std::vector<uint32_t> lost = group[2]->placement.slots[0][2];
  group.pop_back();
  change(group);
  ASSERT_FALSE(lost.empty());
  for (const auto& rank : group) {
    EXPECT_GT(rank->lost_tokens, 0);
    EXPECT_EQ(rank->versions, std::vector<int64_t>(kLayers * lost.size(), -1)) << "from the seed";
    EXPECT_EQ(rank->progress.step, 2u) << "nobody rewinds";
  }
  train(group, 1);
  EXPECT_EQ(group[0]->losses, group[1]->losses);
}

// Models the gathering of a snapshot: copies of each expert's weights on a stream of their own that
// runs late, while the ranks' streams run early. The memory of a migrated expert is used again.
TEST_F(CudaLiveStateTest, MigrationKeepsMemoryOfExpertsBeingRead) {
  cuda_emulator::make_eager(0b111);  // the streams of three ranks; the next stream runs late
  Group group = start(3, twice_);
  train(group, 1);
  Rank& reader = *group[0];
  const auto gather = ckpt::kernels::make_cuda_queue({});
  ASSERT_TRUE(gather.ok()) << gather.error().message;
  std::vector<Tensor> copies;
  std::vector<std::vector<float>> expected;
  for (OwnedRange& expert : reader.model->experts().owned()) {
    const Tensor& weights = expert.value;
    const auto values = weights.read<float>();
    ASSERT_TRUE(values.ok()) << values.error().message;
    expected.push_back(*values);
    copies.emplace_back(*reader.device, Type::kFloat, weights.size());
    ckpt::kernels::copy(**gather, copies.back().data(), weights.data(), weights.bytes());
  }
  ckpt::kernels::CudaEvent gathered;
  ASSERT_TRUE(gathered.make().ok());
  ASSERT_TRUE(gathered.record((*gather)->stream()).ok());
  reader.before_change = [&] {
    EXPECT_TRUE(gathered.hold(cuda_queue(*reader.device).stream()).ok());
  };
  for (const Status& status : all(group, [](Rank&r, Comm&c) { return r.rotate(c); })) {
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  train(group, 1);
  ASSERT_TRUE(synchronize(**gather).ok());
  for (size_t i = 0; i < copies.size(); ++i) {
    const auto values = copies[i].read<float>();
    ASSERT_TRUE(values.ok()) << values.error().message;
    EXPECT_EQ(*values, expected[i]) << i;
  }
}

}  // namespace
}  // namespace moetrain

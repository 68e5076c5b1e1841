// State of device memory through the real daemon and back.
#include <cuda_runtime.h>

#include <thread>

#include "tests/client/cuda_daemon_fixture.h"

namespace ckpt::test {
namespace {

TEST_F(CudaDaemonTest, StagedUnitsRestoreFromMemoryAndDisk) {
  save(1);
  save(2);
  for (const bool from_disk : {false, true}) {
    if (from_disk) daemon_.crash_and_restart();
    for (const uint64_t step : {1u, 2u}) {
      client::RestoreOptions options;
      options.step = step;
      const auto restored = restore(options);
      ASSERT_OK(restored);
      for (uint32_t unit = 0; unit < units_.size(); ++unit) {
        EXPECT_EQ((*restored)[2 * unit].version.step, step);
        EXPECT_EQ((*restored)[2 * unit].note, "");
        EXPECT_TRUE(!from_disk || (*restored)[2 * unit].bytes_memory == 0);
        expect_unit(unit, step);
      }
    }
  }
}

TEST_F(CudaDaemonTest, DamagedUnitFallsBackAsOnHost) {
  save(1);
  save(2);
  daemon_.kill();
  damage(2, 3);
  daemon_.start();
  client::RestoreOptions options;
  options.step = 2;
  const auto restored = restore(options);
  ASSERT_OK(restored);
  for (uint32_t unit = 0; unit < units_.size(); ++unit) {
    const uint64_t step = unit == 3 ? 1 : 2;
    EXPECT_EQ((*restored)[2 * unit].version.step, step) << "unit " << unit;
    EXPECT_EQ((*restored)[2 * unit].note.empty(), unit != 3);
    expect_unit(unit, step);
  }
  options.exact = true;
  const auto exact = restore(options);
  ASSERT_FALSE(exact);
  std::vector<char> on_host(run_.unit_bytes[3]);
  const auto by_host = session_->restore(options, {{3, 0, on_host.size(), on_host.data()}});
  ASSERT_FALSE(by_host);
  EXPECT_EQ(exact.error().status, by_host.error().status);
  EXPECT_NE(exact.error().message.find("layers.3"), std::string::npos) << exact.error().message;
}

// 8-bit floats: all 256 patterns, NaN and infinities among them.
class CudaFp8Test : public CudaDaemonTest, public testing::WithParamInterface<const char*> {
 protected:
  CudaFp8Test() { run_.dtype = GetParam(); }
  static constexpr uint64_t kShift = 3;  // no address is aligned
  std::vector<char> patterns(uint32_t unit) const {
    std::vector<char> bytes(run_.unit_bytes[unit]);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(5 * i + unit);
    return bytes;
  }
};

TEST_P(CudaFp8Test, EveryPatternRoundTripsWithoutAlarm) {
  std::vector<DeviceArray<std::byte>> tensors;
  std::vector<ckpt_cuda_piece> pieces;
  std::vector<ckpt_cuda_destination> into;
  for (uint32_t unit = 0; unit < units_.size(); ++unit) {
    const std::vector<char> bytes = patterns(unit);
    auto array = DeviceArray<std::byte>::make(bytes.size() + kShift);
    ASSERT_TRUE(array.ok());
    std::byte* const at = array->data() + kShift;
    tensors.push_back(std::move(array).value());
    trainer_->upload(at, bytes.data(), bytes.size());
    pieces.push_back({unit, 0, at, bytes.size()});
    into.push_back({unit, 0, at, bytes.size()});
  }
  auto snapshot = session_->begin(run_.plan(1, 1));
  ASSERT_OK(snapshot);
  ASSERT_OK(cuda_->stage(*snapshot, pieces, trainer_->stream()));
  ASSERT_OK(cuda_->drain(20'000));
  ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
  EXPECT_EQ(snapshot->info().alarms, "");
  daemon_.crash_and_restart();
  for (const auto& to : into) {
    cudaMemsetAsync(to.data, 0x11, to.length, trainer_->stream());
  }
  client::RestoreOptions options;
  options.step = 1;
  ASSERT_OK(cuda_->restore(options, into, trainer_->stream()));
  for (const auto& from : into) {
    std::vector<char> found(from.length);
    ASSERT_TRUE(kernels::download(*trainer_, found.data(), from.data, found.size()).ok());
    EXPECT_TRUE(found == patterns(from.unit)) << "unit " << from.unit;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaFp8Test, testing::Values("F8_E4M3", "F8_E5M2"));

// An arena of eight slabs, some of them for restores, and a state of forty slabs.
class CudaStreamsTest : public CudaDaemonTest {
 protected:
  CudaStreamsTest() {
    run_.unit_bytes = {9'000'000, 5, 70'000, 1'000'000};
    run_.arena_bytes = 2 << 20;
    streams_ = true;
  }
};

TEST_F(CudaStreamsTest, ASnapshotMayBeLargerThanTheArena) {
  save(1);
  save(2);
  client::RestoreOptions options;
  options.step = 2;
  ASSERT_OK(restore(options));
  for (uint32_t unit = 0; unit < units_.size(); ++unit) expect_unit(unit, 2);
}

// The daemon is gone when more slabs are needed. Slabs leased at the beginning are already filled.
TEST_F(CudaStreamsTest, StagingSurvivesDaemonRestart) {
  const std::vector<ckpt_cuda_piece> pieces = upload_state(1);
  client::SnapshotOptions plan = run_.plan(1, 1);
  plan.streams = streams_;
  auto snapshot = session_->begin(plan);
  ASSERT_OK(snapshot);
  daemon_.kill();
  std::thread starter([this] { daemon_.start(); });
  const auto staged = cuda_->stage(*snapshot, pieces, trainer_->stream());
  starter.join();
  ASSERT_OK(staged);
  ASSERT_OK(cuda_->drain(20'000));
  ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
  client::RestoreOptions options;
  options.step = 1;
  ASSERT_OK(restore(options));
  for (uint32_t unit = 0; unit < units_.size(); ++unit) expect_unit(unit, 1);
}

}  // namespace
}  // namespace ckpt::test

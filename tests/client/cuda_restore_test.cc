// Restores into device memory, against a daemon that refills a window as soon as it is released.
#include <ckpt/client_cuda.hpp>

#include "tests/client/cuda_client_fixture.h"
#include "tests/client/restoring_daemon.h"

namespace ckpt::test {
namespace {

constexpr uint64_t kFragmentBytes = 50'000;

class CudaRestoreTest : public CudaClientTest {
 protected:
  void start_restoring(RestoringDaemon::Bend bend = {}) {
    restoring_.emplace(data_, kFragmentBytes, std::move(bend));
    start({}, restoring_->answers(daemon_));
  }
  // Device memory for [offset, offset + length) of the unit, shift bytes off its alignment.
  void want(uint32_t unit, uint64_t offset, uint64_t length, uint64_t shift = 0) {
    auto array = DeviceArray<std::byte>::make(length + shift + kGuardBytes);
    ASSERT_TRUE(array.ok());
    std::byte* to = array->data() + shift;
    const std::vector<char> sentinel(length + kGuardBytes, '\x5a');
    trainer_->upload(to, sentinel.data(), sentinel.size());
    wanted_.push_back({unit, offset, to, length});
    tensors_.push_back(std::move(array).value());
  }
  void want_everything() {
    for (uint32_t unit = 0; unit < data_.size(); ++unit) {
      want(unit, 0, data_[unit].size(), unit % 3);
    }
  }
  // Damages a byte in the second or the last window of the first `restores` restores.
  static RestoringDaemon::Bend spoil_until(uint64_t restores, bool last = false) {
    return [restores, last](FakeDaemon::Peer&, RestoringDaemon::Window& window) {
      if (window.restore <= restores && (last ? window.message.last : window.number == 1)) {
        window.slab[window.message.pieces[0].slab_offset() + 7] ^= std::byte{1};
      }
      return true;
    };
  }
  ckpt_status restore(uint32_t timeout_ms = 20'000) {
    ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
    options.step = 1200;
    options.timeout_ms = timeout_ms;
    options.restored_size = sizeof(ckpt_restored);
    restored_.assign(wanted_.size(), {});
    return ckpt_cuda_restore(cuda_, &options, wanted_.data(), wanted_.size(), restored_.data(),
                             trainer_->stream());
  }
  std::string error() const { return ckpt_cuda_error(cuda_); }
  std::vector<char> read(const ckpt_cuda_destination& from) {
    std::vector<char> bytes(from.length + kGuardBytes);
    EXPECT_TRUE(kernels::download(*trainer_, bytes.data(), from.data, bytes.size()).ok());
    EXPECT_EQ(std::string(bytes.end() - kGuardBytes, bytes.end()),
              std::string(kGuardBytes, '\x5a'));
    bytes.resize(from.length);
    return bytes;
  }
  void expect_restored() {
    for (const ckpt_cuda_destination& one : wanted_) {
      const auto* from = data_[one.unit].data() + one.offset;
      EXPECT_TRUE(read(one) == std::vector<char>(from, from + one.length))
          << "unit " << one.unit << " from " << one.offset;
    }
  }

  static constexpr ptrdiff_t kGuardBytes = 64;
  std::optional<RestoringDaemon> restoring_;
  std::vector<ckpt_cuda_destination> wanted_;
  std::vector<ckpt_restored> restored_;
};

TEST_F(CudaRestoreTest, EveryByteReachesItsDestination) {
  start_restoring();
  // Slabs of 256 KiB: five windows in two slabs, pieces of all sizes and shifts.
  open_with_cuda({100, 70'000, 3, 600'000, 65'536, 1, 300'001, 64, 64, 4097}, kSmall);
  want_everything();
  want(3, 123'457, 300'000);  // some bytes twice
  want(3, 200'000, 1, 7);
  want(4, 0, 0);
  ASSERT_EQ(restore(), CKPT_OK) << error();
  expect_restored();
  EXPECT_EQ(restored_[3].version_step, 1200u);
  EXPECT_EQ(restored_[3].bytes_disk, 600'000u);
  EXPECT_EQ(restored_[3].note, nullptr);
  daemon_->wait_for(fb::MessageBody::CloseRestore, 1);
}

// Work queued on the trainer's stream before the restore must not overwrite restored bytes.
TEST_F(CudaRestoreTest, RestoreRunsAfterWorkQueuedBefore) {
  start_restoring();
  open_with_cuda({200'000}, kSmall);
  want_everything();
  cudaMemsetAsync(wanted_[0].data, 0x77, wanted_[0].length, trainer_->stream());
  ASSERT_EQ(restore(), CKPT_OK) << error();
  expect_restored();
}

TEST_F(CudaRestoreTest, WrongByteIsReread) {
  start_restoring(spoil_until(1));
  open_with_cuda({100, 600'000, 5}, kSmall);
  want_everything();
  ASSERT_EQ(restore(), CKPT_OK) << error();
  expect_restored();
  EXPECT_EQ(daemon_->wait_for(fb::MessageBody::OpenRestore, 2).size(), 2u);
}

TEST_F(CudaRestoreTest, WrongByteInLastWindowIsReread) {
  start_restoring(spoil_until(1, true));
  open_with_cuda({100, 600'000, 5}, kSmall);
  want_everything();
  ASSERT_EQ(restore(), CKPT_OK) << error();
  expect_restored();
}

TEST_F(CudaRestoreTest, PersistentlyWrongByteIsReportedWithUnit) {
  start_restoring(spoil_until(2));
  open_with_cuda({100, 600'000, 5}, kSmall);
  want_everything();
  EXPECT_EQ(restore(), CKPT_E_CORRUPT);
  EXPECT_NE(error().find("unit unit1: bytes ["), std::string::npos) << error();
  EXPECT_EQ(daemon_->wait_for(fb::MessageBody::OpenRestore, 2).size(), 2u);
  // The failed restore leaves nothing behind.
  ASSERT_EQ(restore(), CKPT_OK) << error();
  expect_restored();
}

TEST_F(CudaRestoreTest, OlderVersionReplacesEarlierBytes) {
  start_restoring();
  open_with_cuda({100, 600'000, 5}, kSmall);
  std::vector<std::vector<char>> newer;
  for (const auto& unit : data_) newer.emplace_back(unit.size(), '\x33');
  restoring_->fall_back(newer, 2);
  want_everything();
  ASSERT_EQ(restore(), CKPT_OK) << error();
  expect_restored();
  EXPECT_EQ(restored_[1].version_step, 1100u);
  EXPECT_STREQ(restored_[1].note, "step 1200 is damaged");
  EXPECT_EQ(restored_[1].bytes_disk, 600'000u);
}

TEST_F(CudaRestoreTest, StartsOverWithTheNextConnection) {
  start_restoring([](FakeDaemon::Peer& peer, RestoringDaemon::Window& window) {
    if (window.restore == 1 && window.number == 2) peer.hang_up();
    return window.restore != 1 || window.number != 2;
  });
  open_with_cuda({100, 900'000, 5}, kSmall);
  want_everything();
  ASSERT_EQ(restore(), CKPT_OK) << error();
  expect_restored();
  EXPECT_EQ(restored_[1].bytes_disk, 900'000u);
}

TEST_F(CudaRestoreTest, RestoreReturnsErrorOfLaterWindow) {
  start_restoring([this](FakeDaemon::Peer& peer, RestoringDaemon::Window& window) {
    if (window.number < 2) return true;
    fb::ErrorReplyT reply;
    reply.request = restoring_->request();
    reply.code = static_cast<int>(ErrorCode::kCorrupt);
    reply.message = "run tiny step 1200 unit unit1: no version holds";
    peer.send(std::move(reply));
    return false;
  });
  open_with_cuda({100, 900'000, 5}, kSmall);
  want_everything();
  EXPECT_EQ(restore(), CKPT_E_CORRUPT);
  EXPECT_EQ(error(), "run tiny step 1200 unit unit1: no version holds");
}

TEST_F(CudaRestoreTest, SilenceEndsAtTheTimeout) {
  start_restoring(
      [](FakeDaemon::Peer&, RestoringDaemon::Window& window) { return window.number < 2; });
  open_with_cuda({900'000}, kSmall);
  want_everything();
  EXPECT_EQ(restore(100), CKPT_E_DEADLINE_EXCEEDED);
  EXPECT_NE(error().find("nothing came for 100 ms"), std::string::npos) << error();
}

TEST_F(CudaRestoreTest, UnrequestedBytesAreRefused) {
  start_restoring([](FakeDaemon::Peer&, RestoringDaemon::Window& window) {
    const fb::RestoredPiece good = window.message.pieces[0];
    window.message.pieces[0] =
        fb::RestoredPiece(good.want(), good.unit(), good.offset() + 1'000'000, good.length(),
                          good.slab_offset(), good.crc32c(), 0);
    return true;
  });
  open_with_cuda({1000}, kSmall);
  want_everything();
  EXPECT_EQ(restore(), CKPT_E_CORRUPT);
  EXPECT_NE(error().find("unit unit0: the daemon sent bytes that were not requested"),
            std::string::npos)
      << error();
}

TEST_F(CudaRestoreTest, MissingDestinationIsRefusedBeforeRequest) {
  start_restoring();
  open_with_cuda({1000}, kSmall);
  wanted_.push_back({0, 0, nullptr, 1000});
  EXPECT_EQ(restore(), CKPT_E_INVALID_ARGUMENT);
  EXPECT_EQ(ckpt_cuda_restore(cuda_, nullptr, nullptr, 1, nullptr, nullptr),
            CKPT_E_INVALID_ARGUMENT);
  for (const fb::MessageBody type : daemon_->types()) {
    EXPECT_NE(type, fb::MessageBody::OpenRestore);
  }
}

// A destination in host memory that no device reaches is refused, with its unit.
TEST_F(CudaRestoreTest, UnreachableDestinationIsRefusedNamingUnit) {
  start_restoring();
  open_with_cuda({1000, 1000}, kSmall);
  std::vector<char> on_host(600);
  want(0, 0, 1000);
  wanted_.push_back({1, 400, on_host.data(), on_host.size()});
  EXPECT_EQ(restore(), CKPT_E_INVALID_ARGUMENT);
  EXPECT_NE(error().find("unit 1: bytes [400, 1000)"), std::string::npos) << error();
}

TEST_F(CudaRestoreTest, RunsWhileSnapshotIsStaged) {
  start_restoring();
  open_with_cuda({200'000, 100}, kSmall);
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << error();
  want_everything();
  ASSERT_EQ(restore(), CKPT_OK) << error();
  expect_restored();
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << error();
  EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_OPEN);
}

// The C++ wrapper of these calls.
TEST_F(CudaRestoreTest, CppWrapperStagesAndRestores) {
  start_restoring();
  open({200'000, 100});
  client::CudaOptions small;
  small.gather_bytes = kSmall.gather_bytes;
  small.chunk_bytes = 100;
  const auto refused = client::Cuda::open(*session_, small);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("gather buffer"), std::string::npos);
  small.chunk_bytes = kSmall.chunk_bytes;
  auto cuda = client::Cuda::open(*session_, small);
  ASSERT_OK(cuda);
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_OK(cuda->stage(snapshot, pieces, trainer_->stream()));
  const auto open = cuda->poll();
  ASSERT_OK(open);
  EXPECT_LE(*open, 1u);
  ASSERT_OK(cuda->wait_gathered(CKPT_CUDA_ALL_UNITS, trainer_->stream()));
  ASSERT_OK(cuda->drain(20'000));
  expect_payload(seals(1));
  want_everything();
  client::RestoreOptions view;
  view.step = 1200;
  const auto restored = cuda->restore(view, wanted_, trainer_->stream());
  ASSERT_OK(restored);
  EXPECT_EQ((*restored)[0].version.step, 1200u);
  EXPECT_EQ((*restored)[0].bytes_disk, 200'000u);
  expect_restored();
  view.run = "no such name";
  const auto wrong = cuda->restore(view, wanted_, trainer_->stream());
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("no such name"), std::string::npos) << wrong.error().message;
}

}  // namespace
}  // namespace ckpt::test

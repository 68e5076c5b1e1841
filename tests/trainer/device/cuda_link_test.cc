// Time at which a DeviceLink runs the work given to when_busy(), on the emulated device.
#include "tests/support/daemon_process.h"
#include "tests/trainer/device/cuda_fixture.h"
#include "trainer/checkpoint/device_link.h"

namespace moetrain {
namespace {

namespace client = ckpt::client;

class CudaLinkTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    client::OpenOptions options;
    options.socket = daemon_.socket();
    options.run = "link";
    options.arena_bytes = 1 << 20;
    options.slab_bytes = 64 << 10;
    auto session = client::Session::open(options);
    ASSERT_TRUE(session.ok()) << session.error().message;
    session_.emplace(std::move(session).value());
    device_ = make_device();
    auto link = make_cuda_link(*session_, *device_, 5000);
    ASSERT_TRUE(link.ok()) << link.error().message;
    link_ = std::move(*link);
    ASSERT_TRUE(device_->synchronize().ok());
    link_->when_busy([this] { ++runs_; });
  }

  ckpt::test::DaemonProcess daemon_;
  std::optional<client::Session> session_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceLink> link_;
  int runs_ = 0;
};

TEST_F(CudaLinkTest, WorkRunsOnceWhenThreadWaits) {
  Tensor tensor(*device_, Type::kByte, 1);
  tensor.zero();
  EXPECT_EQ(runs_, 0);
  ASSERT_TRUE(device_->synchronize().ok());
  EXPECT_EQ(runs_, 1);
  ASSERT_TRUE(device_->synchronize().ok());
  ASSERT_TRUE(link_->poll().ok());
  EXPECT_EQ(runs_, 1);
}

TEST_F(CudaLinkTest, EveryWaitRunsPendingWork) {
  const std::function<void()> calls[] = {
      [&] { link_->wait_gathered(0); }, [&] { link_->wait_all_gathered(); },
      [&] { EXPECT_TRUE(link_->poll().ok()); }, [&] { EXPECT_TRUE(link_->drain(1000).ok()); }};
  int expected = 0;
  for (const auto& call : calls) {
    link_->when_busy([this] { ++runs_; });
    call();
    EXPECT_EQ(runs_, ++expected);
  }
}

TEST_F(CudaLinkTest, CancelledWorkNeverRuns) {
  link_->when_busy({});
  ASSERT_TRUE(device_->synchronize().ok());
  ASSERT_TRUE(link_->poll().ok());
  EXPECT_EQ(runs_, 0);
}

}  // namespace
}  // namespace moetrain

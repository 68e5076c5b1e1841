// libckpt_cuda beside captures of CUDA graphs: the capture stays valid whatever is called, and what
// cannot be captured is refused. Runs on a GPU, or on the emulated one.
#include "client/src/cuda/capture_scope.h"
#include "kernels/cuda/event.h"
#include "tests/client/cuda_round_trip.h"

namespace ckpt::test {
namespace {

class CudaCaptureTest : public RoundTripTest {
 protected:
  void SetUp() override {
    RoundTripTest::SetUp();
    if (IsSkipped()) return;
    auto queue = kernels::make_cuda_queue({});
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    graphs_ = std::move(queue).value();
    auto array = DeviceArray<std::byte>::make(1);
    ASSERT_TRUE(array.ok());
    byte_ = std::move(array).value();
  }
  // The global mode, which PyTorch and most others use, forbids the most calls.
  void begin_capture() {
    ASSERT_EQ(cudaStreamBeginCapture(graphs_->stream(), cudaStreamCaptureModeGlobal), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(byte_.data(), 0x42, 1, graphs_->stream()), cudaSuccess);
  }
  bool is_valid() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(graphs_->stream(), &status), cudaSuccess);
    return status == cudaStreamCaptureStatusActive;
  }
  // The capture was valid to its end, and the graph does the captured work.
  void end_capture() {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(graphs_->stream(), &graph), cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(exec, graphs_->stream()), cudaSuccess);
    char found = 0;
    ASSERT_TRUE(kernels::download(*graphs_, &found, byte_.data(), 1).ok());
    EXPECT_EQ(found, 0x42);
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  void drop_capture() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(graphs_->stream(), &graph), cudaErrorStreamCaptureInvalidated);
    (void)cudaGetLastError();
  }
  void expect_refused(ckpt_status status, const std::string& call) {
    EXPECT_EQ(status, CKPT_E_FAILED_PRECONDITION);
    const std::string error = ckpt_cuda_error(cuda_);
    EXPECT_NE(error.find(call + ": "), std::string::npos) << error;
    EXPECT_NE(error.find("before"), std::string::npos) << "no remedy: " << error;
  }
  // Each call that takes a stream.
  void expect_all_refused(CUstream_st* stream) {
    ++plan_.attempt;
    Snapshot snapshot = begin();
    expect_refused(
        ckpt_cuda_stage(cuda_, snapshot.handle(), pieces_.data(), pieces_.size(), stream),
        "ckpt_cuda_stage");
    EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
    expect_refused(ckpt_cuda_wait_gathered(cuda_, CKPT_CUDA_ALL_UNITS, stream),
                   "ckpt_cuda_wait_gathered");
    ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
    options.step = 1200;
    expect_refused(ckpt_cuda_restore(cuda_, &options, into_.data(), into_.size(), nullptr, stream),
                   "ckpt_cuda_restore");
  }

  std::unique_ptr<kernels::CudaQueue> graphs_;
  DeviceArray<std::byte> byte_;
};

TEST_F(CudaCaptureTest, NoCallInvalidatesTheCaptureOfAnotherStream) {
  ahead_bytes_ = 1;  // so that polls and waits queue work, too
  connect(200'000);
  begin_capture();
  ASSERT_EQ(open_cuda(), CKPT_OK);
  EXPECT_TRUE(is_valid()) << "open";
  ASSERT_TRUE(save()) << ckpt_cuda_error(cuda_);  // stage, advance, wait_gathered, drain
  EXPECT_TRUE(is_valid()) << "save";
  expect_saved();
  size_t open = 1;
  EXPECT_EQ(ckpt_cuda_poll(cuda_, &open), CKPT_OK);
  EXPECT_EQ(open, 0u);
  spoil_destinations();
  ASSERT_TRUE(restore()) << ckpt_cuda_error(cuda_);
  EXPECT_TRUE(is_valid()) << "restore";
  EXPECT_EQ(ckpt_cuda_trim(cuda_), CKPT_OK);
  EXPECT_TRUE(is_valid()) << "trim";
  EXPECT_EQ(ckpt_cuda_close(std::exchange(cuda_, nullptr)), CKPT_OK);
  EXPECT_TRUE(is_valid()) << "close";
  end_capture();
  expect_restored();
}

// Only the scope keeps a capture valid, and it leaves nothing behind.
TEST_F(CudaCaptureTest, OnlyScopeKeepsCaptureValid) {
  kernels::CudaEvent event;
  ASSERT_TRUE(event.make().ok());
  ASSERT_TRUE(event.record(trainer_->stream()).ok());
  begin_capture();
  {
    const lib::CaptureScope scope;
    {
      const lib::CaptureScope within;
      EXPECT_TRUE(event.happened().ok());
    }
    EXPECT_TRUE(event.happened().ok());
  }
  EXPECT_TRUE(is_valid());
  EXPECT_FALSE(event.happened().ok());
  EXPECT_FALSE(is_valid());
  drop_capture();
  EXPECT_TRUE(event.happened().ok());
}

TEST_F(CudaCaptureTest, CallsOnCapturedStreamAreRefused) {
  connect(50'000);
  ASSERT_EQ(open_cuda(), CKPT_OK);
  begin_capture();
  expect_all_refused(graphs_->stream());
  EXPECT_TRUE(is_valid());
  end_capture();
  EXPECT_TRUE(save()) << ckpt_cuda_error(cuda_);
  expect_saved();
}

TEST_F(CudaCaptureTest, DefaultStreamIsRefusedDuringBlockingCapture) {
  connect(50'000);
  ASSERT_EQ(open_cuda(), CKPT_OK);
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal), cudaSuccess);
  expect_all_refused(nullptr);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaStreamIsCapturing(blocking, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

}  // namespace
}  // namespace ckpt::test

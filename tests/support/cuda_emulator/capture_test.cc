// Captures of streams on the emulated device: what CUDA forbids beside them, and what a graph does.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cuda_emulator/control.h"

namespace cuda_emulator {
namespace {

class EmulatedCaptureTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, 0), cudaSuccess);
  }
  void TearDown() override {
    (void)cudaGetLastError();
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  }
  bool ends_valid() {
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    EXPECT_TRUE(ended == cudaSuccess || ended == cudaErrorStreamCaptureInvalidated);
    (void)cudaGraphDestroy(graph);
    return ended == cudaSuccess;
  }
  static void set_mode(cudaStreamCaptureMode mode) {
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  }

  cudaStream_t stream_ = nullptr;
  cudaStream_t other_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

TEST_F(EmulatedCaptureTest, GraphRunsCapturedWorkAtEachLaunch) {
  std::vector<char> memory(4, 0);
  begin();
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 7, 4, stream_), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
  for (int launch = 0; launch < 2; ++launch) {
    EXPECT_EQ(memory[3], 0) << "nothing runs before it is launched";
    ASSERT_EQ(cudaGraphLaunch(exec, other_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
    EXPECT_EQ(memory[3], 7);
    memory[3] = 0;
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(EmulatedCaptureTest, OnlyRelaxedThreadMayQueryAllocateAndCopy) {
  char from = 1;
  char to = 0;
  void* at = nullptr;
  size_t bytes = 0;
  cudaStream_t made = nullptr;
  const std::vector<std::function<cudaError_t()>> calls = {
      [&] { return cudaEventQuery(event_); },
      [&] { return cudaStreamQuery(other_); },
      [&] { return cudaMemcpy(&to, &from, 1, cudaMemcpyDefault); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaMemGetInfo(&bytes, &bytes); },
      [&] {
        const cudaError_t taken = cudaMalloc(&at, 1);
        return taken == cudaSuccess ? cudaFree(at) : taken;
      },
      [&] {
        const cudaError_t pinned = cudaHostRegister(&from, 1, 0);
        return pinned == cudaSuccess ? cudaHostUnregister(&from) : pinned;
      },
      [&] {
        const cudaError_t done = cudaStreamCreateWithFlags(&made, 0);
        return done == cudaSuccess ? cudaStreamDestroy(made) : done;
      },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "call " << i);
    begin();
    std::thread([&] { EXPECT_EQ(calls[i](), cudaErrorStreamCaptureUnsupported); }).join();
    EXPECT_FALSE(ends_valid());
    begin();
    std::thread([&] {
      set_mode(cudaStreamCaptureModeRelaxed);
      EXPECT_EQ(calls[i](), cudaSuccess);
    }).join();
    EXPECT_TRUE(ends_valid());
  }
}

TEST_F(EmulatedCaptureTest, ThreadLocalCaptureBindsOwnThreadOnly) {
  begin(cudaStreamCaptureModeThreadLocal);
  std::thread([&] { EXPECT_EQ(cudaEventQuery(event_), cudaSuccess); }).join();
  EXPECT_TRUE(ends_valid());
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorStreamCaptureUnsupported);
  EXPECT_FALSE(ends_valid());
}

TEST_F(EmulatedCaptureTest, EveryModeRefusesCallsOnCapturedWork) {
  set_mode(cudaStreamCaptureModeRelaxed);
  begin();
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  EXPECT_TRUE(ends_valid());
  ASSERT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_), cudaErrorStreamCaptureIsolation);
  EXPECT_FALSE(ends_valid());
  begin();
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_FALSE(ends_valid());
  set_mode(cudaStreamCaptureModeGlobal);
}

TEST_F(EmulatedCaptureTest, DefaultStreamIsUnusableDuringBlockingCapture) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed), cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaStreamIsCapturing(nullptr, &status), cudaErrorStreamCaptureImplicit);
  ASSERT_EQ(cudaStreamIsCapturing(blocking, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive) << "to ask changes nothing";
  EXPECT_EQ(cudaEventRecord(event_, nullptr), cudaErrorStreamCaptureImplicit);
  ASSERT_EQ(cudaStreamIsCapturing(blocking, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST(EmulatedRegistrationTest, ACopyMayNotReachIntoAnotherRegistration) {
  std::vector<char> host(8, 1);
  char device[8] = {};
  ASSERT_EQ(cudaHostRegister(host.data(), 4, 0), cudaSuccess);
  ASSERT_EQ(cudaHostRegister(host.data() + 4, 4, 0), cudaSuccess);
  const auto copy = [&](size_t at, size_t bytes) {
    return cudaMemcpyAsync(device, host.data() + at, bytes, cudaMemcpyHostToDevice, nullptr);
  };
  EXPECT_EQ(copy(0, 4), cudaSuccess);
  EXPECT_EQ(copy(4, 4), cudaSuccess);
  EXPECT_EQ(copy(3, 2), cudaErrorInvalidValue);
  ASSERT_EQ(cudaHostUnregister(host.data() + 4), cudaSuccess);
  EXPECT_EQ(copy(3, 2), cudaErrorInvalidValue) << "half of it is pageable";
  ASSERT_EQ(cudaHostUnregister(host.data()), cudaSuccess);
  EXPECT_EQ(copy(3, 2), cudaSuccess);
  (void)cudaGetLastError();
}

}  // namespace
}  // namespace cuda_emulator

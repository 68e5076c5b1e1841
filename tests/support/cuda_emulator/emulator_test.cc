// Errors that the emulated device must detect, and how code above CUDA's run time uses devices.
#include "tests/support/cuda_emulator/emulator.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "kernels/cuda/queue.h"
#include "tests/support/cuda_emulator/control.h"

namespace cuda_emulator {
namespace {

using ckpt::kernels::CudaDeviceScope;

void shuffle_after_some_have_left(int lanes_that_leave, float* out) {
  const auto lane = static_cast<int>(threadIdx.x);
  if (lane < lanes_that_leave) return;
  out[lane] = __shfl_xor_sync(~0u, static_cast<float>(lane), 1);
}
void ballot_after_some_have_left(int lanes_that_leave, float* out) {
  const auto lane = static_cast<int>(threadIdx.x);
  if (lane < lanes_that_leave) return;
  out[lane] = static_cast<float>(__ballot_sync(~0u, lane & 1));
}

void reduce_after_some_have_left(int lanes_that_leave, float* out) {
  const auto lane = static_cast<int>(threadIdx.x);
  if (lane < lanes_that_leave) return;
  const int most = __reduce_max_sync(~0u, lane * 7 % 32 - 5);
  const int least = __reduce_min_sync(~0u, lane * 7 % 32 - 5);
  out[lane] = static_cast<float>(most * 100 + least);
}

void vote_twice(int dissenter, float* out) {
  const auto thread = static_cast<int>(threadIdx.x);
  out[thread] = static_cast<float>(2 * __syncthreads_and(thread != dissenter) +
                                   __syncthreads_and(thread >= 0));
}

void launch_a_warp(void (*kernel)(int, float*), int lanes_that_leave, float* out) {
  const cudaLaunchConfig_t one_warp{.gridDim = {1},
                                    .blockDim = {32},
                                    .dynamicSmemBytes = 0,
                                    .stream = nullptr,
                                    .attrs = nullptr,
                                    .numAttrs = 0};
  EXPECT_EQ(cudaLaunchKernelEx(&one_warp, kernel, lanes_that_leave, out), cudaSuccess);
}

TEST(CudaEmulatorDeathTest, ReadingFromEndedLaneAborts) {
  float out[32] = {};
  launch_a_warp(shuffle_after_some_have_left, 0, out);
  EXPECT_EQ(out[4], 5.0f);
  launch_a_warp(ballot_after_some_have_left, 0, out);
  EXPECT_EQ(out[4], static_cast<float>(0xaaaaaaaau));
  launch_a_warp(reduce_after_some_have_left, 0, out);
  EXPECT_EQ(out[4], 26 * 100 - 5);
  for (auto* kernel :
       {shuffle_after_some_have_left, ballot_after_some_have_left, reduce_after_some_have_left}) {
    EXPECT_DEATH(launch_a_warp(kernel, 1, out), "with a lane that has ended");
  }
}

TEST(CudaEmulatorTest, BlockVoteNeedsAllThreads) {
  float out[32] = {};
  launch_a_warp(vote_twice, 7, out);
  for (const float votes : out) EXPECT_EQ(votes, 1.0f);
  launch_a_warp(vote_twice, -1, out);
  for (const float votes : out) EXPECT_EQ(votes, 3.0f);
}

// Stream 0 waits for stream 1, which waits for stream 2, which is stuck. Work behind these waits
// does not run, however often stream 0 is queried.
TEST(StuckStreamsTest, WorkBehindStuckStreamWaits) {
  cudaStream_t stream[3] = {};
  cudaEvent_t done[3] = {};
  char memory[4] = {};
  make_stuck(0b100);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream[i], 0), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&done[i], 0), cudaSuccess);
  }
  cudaMemsetAsync(&memory[3], 1, 1, stream[1]);  // depends on no other stream
  for (int i = 2; i >= 0; --i) {
    if (i < 2) cudaStreamWaitEvent(stream[i], done[i + 1], 0);
    cudaMemsetAsync(&memory[i], 1, 1, stream[i]);
    cudaEventRecord(done[i], stream[i]);
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(cudaEventQuery(done[0]), cudaErrorNotReady);
  EXPECT_EQ(std::string(memory, 4), std::string("\0\0\0\1", 4));
  unstick();
  while (cudaEventQuery(done[0]) != cudaSuccess) continue;
  EXPECT_EQ(std::string(memory, 4), std::string("\1\1\1\1", 4));
  (void)cudaGetLastError();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cudaEventDestroy(done[i]), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream[i]), cudaSuccess);
  }
}

class ContextsTest : public testing::Test {
 protected:
  void SetUp() override {
    set_devices(3);
    forget_contexts();
  }
  void TearDown() override { set_devices(1); }
  // Runs `body` on a thread that has chosen no device yet.
  static void on_a_new_thread(const std::function<void()>& body) { std::thread(body).join(); }
  static int current() {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return device;
  }
};

TEST_F(ContextsTest, ScopeOpensContextOfItsDeviceOnly) {
  on_a_new_thread([] {
    { const CudaDeviceScope scope(2); }
    EXPECT_EQ(current(), 2) << "the thread had chosen none";
  });
  EXPECT_EQ(contexts(), std::set<int>{2});
}

TEST_F(ContextsTest, QueueOpensContextOfItsDeviceOnly) {
  on_a_new_thread([] {
    const auto queue = ckpt::kernels::make_cuda_queue({.device = 1});
    EXPECT_TRUE(queue.ok());
  });
  EXPECT_EQ(contexts(), std::set<int>{1});
}

TEST_F(ContextsTest, DeviceScopeRestoresChosenDevice) {
  on_a_new_thread([] {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    { const CudaDeviceScope scope(2); }
    EXPECT_EQ(current(), 0);
  });
  EXPECT_EQ(contexts(), (std::set<int>{0, 2}));
}

TEST_F(ContextsTest, MissingDeviceChangesNothing) {
  on_a_new_thread([] {
    { const CudaDeviceScope scope(3); }
    EXPECT_EQ(current(), 0);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  });
  EXPECT_EQ(contexts(), std::set<int>{});
}

TEST_F(ContextsTest, OnlyPresentDevicesHaveBusIds) {
  std::set<std::string> places;
  for (int device = 0; device < 3; ++device) {
    const auto place = ckpt::kernels::cuda_bus_id(device);
    ASSERT_TRUE(place.ok()) << place.error().message;
    places.insert(*place);
  }
  EXPECT_EQ(places.size(), 3u);
  EXPECT_FALSE(ckpt::kernels::cuda_bus_id(3).ok());
  EXPECT_EQ(contexts(), std::set<int>{}) << "to ask needs none";
}

// A collective may wait for another process: a query of the second stream must not run the first
// stream's work before that work is ready.
TEST(CudaEmulatorTest, UnreadyWorkBlocksStreamsThatWaitForIt) {
  cudaStream_t first = nullptr;
  cudaStream_t second = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&first, 0), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&second, 0), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  bool ready = false;
  std::string done;
  {
    const Lock hold(lock());
    enqueue(first, [&] { done += "a"; });
    enqueue_when(
        first, [&] { return ready; }, [&] { done += "b"; });
  }
  ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  enqueue(second, [&] { done += "c"; });
  for (int i = 0; i < 10; ++i) EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
  EXPECT_EQ(done, "a");
  ready = true;
  while (cudaStreamQuery(second) == cudaErrorNotReady) {
  }
  EXPECT_EQ(done, "abc");
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(first), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(second), cudaSuccess);
}

}  // namespace
}  // namespace cuda_emulator

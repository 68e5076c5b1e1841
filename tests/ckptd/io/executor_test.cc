#include "ckptd/io/executor.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>

namespace ckptd {
namespace {

class ExecutorTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Executor> executor_ =
      GetParam() == "inline" ? make_inline_executor() : make_thread_executor(2);
};

TEST_P(ExecutorTest, RunsWorkThenCallbackOnTheLoop) {
  const auto loop = std::this_thread::get_id();
  std::atomic<int> worked = 0;
  int finished = 0;
  for (int i = 0; i < 100; ++i) {
    executor_->run([&worked] { ++worked; },
                   [&finished, loop] {
                     EXPECT_EQ(std::this_thread::get_id(), loop);
                     ++finished;
                   });
  }
  EXPECT_EQ(finished, 0) << "nothing of it runs inside run()";
  EXPECT_EQ(executor_->outstanding(), 100u);
  while (executor_->outstanding() > 0) {
    executor_->wait();
    executor_->reap();
  }
  EXPECT_EQ(worked, 100);
  EXPECT_EQ(finished, 100);
}

TEST_P(ExecutorTest, CallbackMayRunMoreWork) {
  int depth = 0;
  std::function<void()> again = [&] {
    if (++depth < 10) executor_->run(depth % 2 == 0 ? [] {} : std::function<void()>(), again);
  };
  executor_->run([] {}, again);
  while (executor_->outstanding() > 0) {
    executor_->wait();
    executor_->reap();
  }
  EXPECT_EQ(depth, 10);
}

// All threads are busy, and more work is queued.
TEST(ThreadExecutorTest, EmptyWorkCompletesWithoutFreeThread) {
  const auto executor = make_thread_executor(1);
  std::promise<void> release;
  int behind = 0;
  executor->run([held = release.get_future().share()] { held.wait(); }, [&behind] { ++behind; });
  executor->run([] {}, [&behind] { ++behind; });
  bool back = false;
  executor->run({}, [&back] { back = true; });
  EXPECT_FALSE(back) << "not inside run()";
  pollfd waiting{executor->event_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, 30'000), 1);
  EXPECT_EQ(executor->reap(), 1u);
  EXPECT_TRUE(back);
  EXPECT_EQ(behind, 0);
  release.set_value();
  while (executor->outstanding() > 0) {
    executor->wait();
    executor->reap();
  }
  EXPECT_EQ(behind, 2);
}

TEST_P(ExecutorTest, EventDescriptorAnnouncesCompletion) {
  if (executor_->event_fd() < 0) GTEST_SKIP() << "this executor has none";
  bool done = false;
  executor_->run([] {}, [&done] { done = true; });
  pollfd waiting{executor_->event_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, 30'000), 1);
  executor_->reap();
  EXPECT_TRUE(done);
}

TEST_P(ExecutorTest, WaitReturnsWhenNothingIsOutstanding) {
  executor_->wait();
  EXPECT_EQ(executor_->reap(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ExecutorTest, testing::Values("inline", "threads"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ckptd

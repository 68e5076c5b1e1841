// A communicator with a communication thread: order, failures, ends. Same tests for all transports.
#include "trainer/comm/comm_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <future>
#include <optional>
#include <thread>

#include "tests/trainer/comm/comm_groups.h"

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using Job = CommThread::Job;

// A wait that ends by its timeout fails the test: it would take longer than ctest allows.
constexpr uint32_t kNeverMs = 3'600'000;

class CommThreadTest : public testing::TestWithParam<CommKind> {
 protected:
  std::vector<std::unique_ptr<Comm>> make(uint32_t size) {
    return make_comms_with_threads(GetParam(), size, kNeverMs);
  }
};

Status add_one_of_each(Comm& comm, int64_t& sum) {
  sum = 1 + comm.rank();
  return comm.all_reduce_sum(std::span(&sum, 1));
}

TEST_P(CommThreadTest, JobsRunInOrderBesideCollectives) {
  constexpr int kJobs = 50;
  auto comms = make(3);
  on_all_ranks(comms, [&](Comm& comm) {
    CommThread& thread = *comm.comm_thread();
    std::vector<int> order;
    std::vector<int64_t> sums(kJobs);
    std::vector<Job> jobs;
    for (int i = 0; i < kJobs; ++i) {
      jobs.push_back(thread.submit([&, i](Comm& second) {
        order.push_back(i);
        return add_one_of_each(second, sums[static_cast<size_t>(i)]);
      }));
      int64_t sum = 0;
      ASSERT_TRUE(add_one_of_each(comm, sum).ok());
      EXPECT_EQ(sum, 6);
    }
    ASSERT_TRUE(thread.wait(jobs.back()).ok());
    for (int i = 0; i < kJobs; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
    EXPECT_THAT(sums, testing::Each(6));
    ASSERT_TRUE(comm.barrier().ok());
  });
}

// The job of rank 0 cannot end before rank 1 submits its own.
TEST_P(CommThreadTest, CountsWaitsForJobs) {
  auto comms = make(2);
  on_all_ranks(comms, [&](Comm& comm) {
    int64_t sum = 0;
    const Job job =
        comm.comm_thread()->submit([&](Comm& second) { return add_one_of_each(second, sum); });
    const int64_t before_ns = comm.waited_ns();
    ASSERT_TRUE(comm.comm_thread()->wait(job).ok());
    EXPECT_EQ(comm.waited_ns() - before_ns, comm.comm_thread()->waited_ns());
    EXPECT_GT(comm.comm_thread()->waited_ns(), 0);
    ASSERT_TRUE(comm.barrier().ok());
  });
}

TEST_P(CommThreadTest, FailedJobAbortsBothCommunicatorsOnAllRanks) {
  auto comms = make(3);
  on_all_ranks(comms, [&](Comm& comm) {
    int64_t sum = 0;
    const Job job = comm.comm_thread()->submit([&](Comm& second) -> Status {
      if (second.rank() == 1) return ckpt::make_error(ErrorCode::kIo, "no memory for experts");
      return add_one_of_each(second, sum);
    });
    // Each rank is in another place when it happens.
    if (comm.rank() == 0) {
      EXPECT_FALSE(comm.barrier().ok());
    }
    const Status waited = comm.comm_thread()->wait(job);
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, comm.rank() == 1 ? ErrorCode::kIo : ErrorCode::kAborted);
    EXPECT_FALSE(comm.barrier().ok());
  });
}

// --pin pins a rank before it makes the communicator.
TEST_P(CommThreadTest, JobsInheritCpusOfCreatingThread) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  cpu_set_t last;
  CPU_ZERO(&last);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    CPU_ZERO(&last);
    CPU_SET(cpu, &last);
  }
  cpu_set_t of_job;
  CPU_ZERO(&of_job);
  // In its own thread, so that the rest of the program keeps its CPUs.
  std::thread([&] {
    ASSERT_EQ(::sched_setaffinity(0, sizeof last, &last), 0);
    auto comms = make(2);
    const Job job = comms[0]->comm_thread()->submit([&](Comm&) {
      EXPECT_EQ(::sched_getaffinity(0, sizeof of_job, &of_job), 0);
      return Status();
    });
    EXPECT_TRUE(job.settle().ok());
  }).join();
  EXPECT_TRUE(CPU_EQUAL(&of_job, &last));
}

// A rank whose GPU fails must end; its peers continue without it.
TEST_P(CommThreadTest, AbortedCollectiveReturnsErrorOfFailedJob) {
  auto comms = make(3);
  on_all_ranks(comms, [&](Comm& comm) {
    if (comm.rank() == 1) {
      (void)comm.comm_thread()->submit([](Comm&) -> Status {
        return ckpt::make_error(ErrorCode::kIo, "no memory for experts");
      });
    }
    // No rank leaves this barrier before rank 2 enters it, which is after the failure.
    if (comm.rank() == 2) {
      int64_t sum = 0;
      const Job job =
          comm.comm_thread()->submit([&](Comm& second) { return add_one_of_each(second, sum); });
      EXPECT_FALSE(comm.comm_thread()->wait(job).ok());
    }
    const Status met = comm.barrier();
    ASSERT_FALSE(met.ok());
    if (comm.rank() != 1) {
      EXPECT_NE(met.error().code, ErrorCode::kIo) << met.error().message;
      return;
    }
    EXPECT_EQ(met.error().code, ErrorCode::kIo) << met.error().message;
    EXPECT_EQ(met.error().message, "no memory for experts");
    EXPECT_EQ(comm.barrier().error().code, ErrorCode::kIo);
  });
}

// The abort came first, so failures of jobs are only its consequence.
TEST_P(CommThreadTest, LaterFailuresKeepReasonOfAbort) {
  auto comms = make(2);
  comms[0]->abort("epoch 3 ended");
  int64_t sum = 0;
  const Job job =
      comms[0]->comm_thread()->submit([&](Comm& second) { return add_one_of_each(second, sum); });
  EXPECT_FALSE(comms[0]->comm_thread()->wait(job).ok());
  const Status met = comms[0]->barrier();
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().code, ErrorCode::kAborted);
  EXPECT_THAT(met.error().message, testing::HasSubstr("epoch 3 ended"));
}

TEST_P(CommThreadTest, FailureOfFirstCommunicatorEndsJobWait) {
  auto comms = make(3);
  on_all_ranks(comms, [&](Comm& comm) {
    if (comm.rank() == 2) {  // it never submits the job
      comms[2].reset();
      return;
    }
    int64_t sum = 0;
    const Job job =
        comm.comm_thread()->submit([&](Comm& second) { return add_one_of_each(second, sum); });
    if (comm.rank() == 0) {
      EXPECT_FALSE(comm.barrier().ok());
    }
    const Status waited = comm.comm_thread()->wait(job);
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, ErrorCode::kAborted) << waited.error().message;
  });
}

// The watch of an epoch aborts in this way.
TEST_P(CommThreadTest, AbortFromAnotherThreadEndsJobWait) {
  auto comms = make(2);
  std::promise<void> runs;
  int64_t sum = 0;
  const Job job = comms[0]->comm_thread()->submit([&](Comm& second) {
    runs.set_value();
    return add_one_of_each(second, sum);  // rank 1 never comes
  });
  runs.get_future().wait();
  auto blocked = std::async(std::launch::async, [&] { return comms[0]->comm_thread()->wait(job); });
  comms[0]->abort("epoch 3 ended");
  const Status waited = blocked.get();
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().code, ErrorCode::kAborted);
  EXPECT_THAT(waited.error().message, testing::HasSubstr("epoch 3 ended"));
  const Status later = comms[0]->barrier();
  ASSERT_FALSE(later.ok());
  EXPECT_THAT(later.error().message, testing::HasSubstr("epoch 3 ended"));
}

// Jobs after a failed job do not run: their buffers may no longer exist.
TEST_P(CommThreadTest, JobsAfterFailedJobAreDropped) {
  auto comms = make(2);
  bool ran = false;
  std::promise<void> both;
  CommThread& thread = *comms[0]->comm_thread();
  const Job failing = thread.submit([&](Comm&) -> Status {
    both.get_future().wait();
    return ckpt::make_error(ErrorCode::kIo, "broken");
  });
  const Job behind = thread.submit([&](Comm&) {
    ran = true;
    return Status();
  });
  both.set_value();
  EXPECT_FALSE(thread.wait(behind).ok());
  EXPECT_FALSE(thread.wait(failing).ok());
  EXPECT_FALSE(ran);
}

// The end of an epoch joins the thread; a job's result stays available to its owner.
TEST_P(CommThreadTest, CommunicatorDestructionEndsItsJobs) {
  auto comms = make(2);
  std::vector<float> values(100'000);
  const Job job = comms[0]->comm_thread()->submit(
      [&](Comm& second) { return second.all_reduce_sum(std::span(values)); });
  const Job queued = comms[0]->comm_thread()->submit([](Comm& second) { return second.barrier(); });
  comms[0].reset();
  EXPECT_FALSE(job.settle().ok());
  EXPECT_FALSE(queued.settle().ok());
}

INSTANTIATE_TEST_SUITE_P(Transports, CommThreadTest,
                         testing::Values(CommKind::kLocal, CommKind::kGloo),
                         [](const auto& kind) { return comm_kind_name(kind.param); });

}  // namespace
}  // namespace moetrain

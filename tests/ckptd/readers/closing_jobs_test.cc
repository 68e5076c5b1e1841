// Closed jobs whose reads take longer.
#include "ckptd/readers/closing_jobs.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

namespace ckptd {
namespace {

// A job whose last read ends when the test says so.
class FakeJob {
 public:
  FakeJob(std::function<void()>& last_read, bool& alive) : last_read_(last_read), alive_(alive) {
    alive_ = true;
  }
  ~FakeJob() { alive_ = false; }
  void close(std::function<void()> on_closed) { last_read_ = std::move(on_closed); }

 private:
  std::function<void()>& last_read_;
  bool& alive_;
};

class ClosingJobsTest : public testing::Test {
 protected:
  std::unique_ptr<FakeJob> job() { return std::make_unique<FakeJob>(last_read, alive); }
  std::function<void()> last_read;
  bool alive = false;
  Turn turn{[] { return uint64_t{0}; }};
  ClosingJobs closing{turn};
};

TEST_F(ClosingJobsTest, JobLivesUntilItsLastRead) {
  bool then = false;
  closing.close(job(), [&] {
    EXPECT_FALSE(alive) << "`then` runs after the job is gone";
    then = true;
  });
  turn.run_deferred();
  EXPECT_TRUE(alive);
  EXPECT_FALSE(closing.empty());
  last_read();
  EXPECT_TRUE(alive) << "not destroyed inside its own callback";
  EXPECT_FALSE(then);
  turn.run_deferred();
  EXPECT_FALSE(alive);
  EXPECT_TRUE(then);
  EXPECT_TRUE(closing.empty());
}

TEST_F(ClosingJobsTest, CallbackMayBeEmpty) {
  closing.close(job(), {});
  last_read();
  turn.run_deferred();
  EXPECT_TRUE(closing.empty());
  EXPECT_FALSE(alive);
}

}  // namespace
}  // namespace ckptd

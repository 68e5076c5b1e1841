// Two jobs under one run name, against the real daemon.
#include <unistd.h>

#include <csignal>

#include "tests/client/trainers.h"
#include "tests/support/signals.h"

namespace ckpt::test {
namespace {

TEST(JobsDaemon, RefusesSecondJobNamingFirst) {
  DaemonProcess daemon;
  const SmallRun run;
  auto first = open_trainer(daemon, run);
  ASSERT_OK(first);
  client::JoinOptions join = as_rank(0, 1);
  join.job = 1;
  ASSERT_OK(first->join(join));
  auto second = open_trainer(daemon, run);
  ASSERT_OK(second);
  join = as_rank(1, 2);
  join.job = 2;
  const auto refused = second->join(join);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, CKPT_E_ALREADY_EXISTS);
  const std::string says =
      "run tiny: another job trains this run: process " + std::to_string(::getpid());
  EXPECT_EQ(refused.error().message.find(says), 0u) << refused.error().message;
  // Members of the first job keep the run over a restart of the daemon.
  daemon.crash_and_restart();
  for (int i = 0; i < 400 && !first->poll(25).ok(); ++i) {
  }
  ASSERT_OK(first->kv_set("key", "value"));
  const auto again = second->join(join);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().status, CKPT_E_ALREADY_EXISTS) << again.error().message;
  ASSERT_OK(first->leave());
  join = as_rank(0, 1);
  join.job = 2;
  ASSERT_OK(second->join(join));
}

// The daemon has taken the first request when it gets the second one.
TEST(JobsDaemon, TakesRankBackAfterInterruptedJoin) {
  DaemonProcess daemon;
  bool wanted = false;
  client::OpenOptions options;
  options.socket = daemon.socket();
  options.run = SmallRun().name;
  options.interrupted = [](void* context) { return *static_cast<bool*>(context) ? 1 : 0; };
  options.interrupted_context = &wanted;
  auto session = client::Session::open(options);
  ASSERT_OK(session);
  ASSERT_OK(session->register_units(SmallRun().units()));
  ASSERT_TRUE(send_signal(daemon.pid(), SIGSTOP));
  wanted = true;
  const auto interrupted = session->join(as_rank(0, 1));
  ASSERT_TRUE(send_signal(daemon.pid(), SIGCONT));
  ASSERT_FALSE(interrupted);
  EXPECT_EQ(interrupted.error().status, CKPT_E_ABORTED) << interrupted.error().message;
  wanted = false;
  ASSERT_OK(session->join(as_rank(0, 1)));
  ASSERT_OK(save(*session, SmallRun(), 1, 0, 1));
}

}  // namespace
}  // namespace ckpt::test

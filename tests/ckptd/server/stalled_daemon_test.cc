// A thread of ckptd that a client stalls in the kernel, where not even SIGKILL ends it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>

#include <chrono>
#include <thread>

#include "tests/support/daemon_process.h"
#include "tests/support/raw_client.h"
#include "tests/support/signals.h"
#include "tests/support/stalled_file.h"

namespace ckpt::test {
namespace {

// False: the lock is not free within a minute.
bool wait_for_lock(const std::string& path) {
  const base::UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// The dead daemon's thread keeps its process; it must not keep the store's lock.
TEST(StalledDaemon, NextDaemonOpensTheStore) {
  DaemonProcess daemon({"--arena", "64MiB"});
  auto stalled = StalledFile::mount();
  if (stalled == nullptr) GTEST_SKIP() << "no FUSE here";
  base::UniqueFd file = stalled->open();
  ASSERT_TRUE(file.valid());
  RawClient client(daemon.socket() + ".arena");
  ASSERT_EQ(client.send_with_fds(wire::encode(fb::HandBackT()), {file.get()}), 0);
  file.reset();
  ASSERT_TRUE(client.next());
  ASSERT_TRUE(stalled->wait_until_stalled());
  ASSERT_TRUE(send_signal(daemon.pid(), SIGKILL));
  ASSERT_TRUE(wait_for_lock(daemon.data() + "/lock"));
  const DaemonProcess next({"--arena", "64MiB"}, daemon.data());
  RawClient(next.socket()).hello_control();
}

}  // namespace
}  // namespace ckpt::test

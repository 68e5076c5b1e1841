// DaemonWatch: the lines that a user sees while ckptd does not answer.
#include "client/ctl/daemon_watch.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "formats/base/unique_fd.h"
#include "formats/base/unix_address.h"
#include "tests/support/temp_folder.h"

namespace ckptctl {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kNobody[] = "no ckptd listens at socket /run/ckptd.sock; waiting for one";

class DaemonWatchTest : public testing::Test {
 protected:
  DaemonWatch watch(bool expires = true) {
    return DaemonWatch({.socket = "/run/ckptd.sock",
                        .expires = expires,
                        .say = [this](const std::string& line) { said.push_back(line); },
                        .listens =
                            [this](const std::string&) {
                              ++probes;
                              return listens;
                            },
                        .now = [this] { return now; }});
  }
  // A session looks whose daemon has been silent since the test began.
  bool poll_at(DaemonWatch& watch, uint64_t ms, bool connected = false) {
    now = DaemonWatch::Clock::time_point(std::chrono::hours(1)) + milliseconds(ms);
    return watch.poll({.session = this, .silence_ms = ms, .connected = connected});
  }
  DaemonWatch::Clock::time_point now{std::chrono::hours(1)};
  bool listens = true;
  size_t probes = 0;
  std::vector<std::string> said;
};

TEST_F(DaemonWatchTest, ReportsOutageAndRecoveryOnce) {
  DaemonWatch daemon_watch = watch();
  for (const uint64_t ms : {0, 700, 1'400}) EXPECT_FALSE(poll_at(daemon_watch, ms));
  EXPECT_THAT(said, IsEmpty()) << "a short silence is none";
  for (const uint64_t ms : {2'000, 5'000, 7'000}) EXPECT_FALSE(poll_at(daemon_watch, ms));
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(daemon_watch.poll({.session = this}));
  EXPECT_THAT(
      said, ElementsAre("ckptd at socket /run/ckptd.sock has not answered for 2.0 s; still waiting",
                        "ckptd at socket /run/ckptd.sock answers again, after 7.0 s"));
}

TEST_F(DaemonWatchTest, ExpiresAfterMinuteWithoutListener) {
  DaemonWatch gone = watch();
  listens = false;
  EXPECT_FALSE(poll_at(gone, 2'000));
  EXPECT_THAT(said, ElementsAre(kNobody));
  EXPECT_FALSE(poll_at(gone, 59'000));
  EXPECT_TRUE(poll_at(gone, 60'000));
  ASSERT_TRUE(gone.expired().has_value());
  EXPECT_THAT(gone.expired()->message, HasSubstr("/run/ckptd.sock"));
}

TEST_F(DaemonWatchTest, CountsMinuteFromLastConnection) {
  DaemonWatch gone = watch();
  listens = false;
  EXPECT_FALSE(poll_at(gone, 50'000, /*connected=*/true));
  EXPECT_FALSE(poll_at(gone, 100'000));
  EXPECT_TRUE(poll_at(gone, 110'000));
  EXPECT_THAT(gone.expired()->message, HasSubstr("for 1 min 0 s"));
}

TEST_F(DaemonWatchTest, SlowDaemonAndPatientVerbNeverExpire) {
  DaemonWatch slow = watch();
  EXPECT_FALSE(poll_at(slow, 600'000)) << "it is there";
  listens = false;
  DaemonWatch patient = watch(/*expires=*/false);
  EXPECT_FALSE(poll_at(patient, 600'000)) << "--timeout decides";
}

TEST_F(DaemonWatchTest, ProbesSeldomAndOnlyWithoutAConnection) {
  DaemonWatch daemon_watch = watch();
  for (uint64_t ms = 1'500; ms < 90'000; ms += 50) poll_at(daemon_watch, ms, /*connected=*/true);
  EXPECT_EQ(probes, 0u) << "who has a connection knows that somebody listens";
  for (uint64_t ms = 90'000; ms < 100'000; ms += 50) poll_at(daemon_watch, ms);
  EXPECT_EQ(probes, 2u) << "one in five seconds";
}

TEST_F(DaemonWatchTest, ReportsDaemonThatHangsAfterConnecting) {
  DaemonWatch daemon_watch = watch();
  listens = false;
  poll_at(daemon_watch, 2'000);
  for (const uint64_t ms : {3'000, 4'000, 4'500}) poll_at(daemon_watch, ms, /*connected=*/true);
  for (const uint64_t ms : {8'000, 9'000, 9'500, 20'000}) poll_at(daemon_watch, ms);
  EXPECT_THAT(
      said, ElementsAre(kNobody,
                        "ckptd at socket /run/ckptd.sock has not answered for 4.5 s; still waiting",
                        kNobody));
}

TEST_F(DaemonWatchTest, RestartingDaemonIsReportedOnce) {
  DaemonWatch daemon_watch = watch();
  listens = false;
  // The daemon accepts connections and refuses them in turns.
  for (uint64_t ms = 1'500; ms < 5'000; ms += 50) {
    poll_at(daemon_watch, ms, /*connected=*/ms % 1'000 < 300);
  }
  EXPECT_THAT(said, ElementsAre(kNobody));
}

TEST_F(DaemonWatchTest, TwoSessionsShareOneOutage) {
  DaemonWatch daemon_watch = watch();
  listens = false;
  const int other = 0;
  poll_at(daemon_watch, 2'000);
  daemon_watch.poll({.session = &other});
  EXPECT_THAT(said, ElementsAre(kNobody)) << "a session that waits for nothing heard of nothing";
  daemon_watch.poll({.session = &other, .silence_ms = 1'600});
  poll_at(daemon_watch, 4'000);
  daemon_watch.poll({.session = this});
  EXPECT_THAT(said,
              ElementsAre(kNobody, "ckptd at socket /run/ckptd.sock answers again, after 4.0 s"));
}

// A verb opens its sessions one after the other. A session that has ended never reports a recovery.
TEST_F(DaemonWatchTest, SecondOutageIsReportedByLaterSession) {
  DaemonWatch daemon_watch = watch();
  listens = false;
  poll_at(daemon_watch, 5'000);
  const int other = 0;
  const auto poll_other = [&](uint64_t ms, uint64_t silence_ms) {
    now = DaemonWatch::Clock::time_point(std::chrono::hours(1)) + milliseconds(ms);
    daemon_watch.poll({.session = &other, .silence_ms = silence_ms});
  };
  poll_other(6'000, 6'000);
  EXPECT_THAT(said, ElementsAre(kNobody)) << "the same outage";
  poll_at(daemon_watch, 7'000);
  poll_other(8'000, 0);
  poll_other(20'000, 2'000);
  EXPECT_THAT(said, ElementsAre(kNobody, kNobody));
}

TEST(WithSilence, SilentDaemonIsNamedWithSocket) {
  const auto of = [](int ms, bool connected) {
    return with_silence({ckpt::ErrorCode::kResourceExhausted, "run big step 0: no free slab"}, "/s",
                        milliseconds(ms), connected);
  };
  EXPECT_EQ(of(1'000, true).message, "run big step 0: no free slab") << "it answers";
  EXPECT_EQ(of(1'000, true).code, ckpt::ErrorCode::kResourceExhausted);
  EXPECT_EQ(of(60'000, true).message,
            "ckptd at socket /s has not answered for 1 min 0 s: look at its log, then repeat the "
            "command (run big step 0: no free slab)");
  EXPECT_EQ(of(60'000, false).message,
            "no ckptd has served socket /s for 1 min 0 s: start it again, then repeat the command "
            "(run big step 0: no free slab)");
}

TEST(SocketHasListener, DetectsServerWithoutFillingItsQueue) {
  const ckpt::test::TempFolder folder;
  const std::string path = folder.path("ckptd.sock");
  EXPECT_FALSE(socket_has_listener(path)) << "no socket is there";
  const auto address = ckpt::base::UnixAddress::of(path);
  ASSERT_TRUE(address.ok());
  ckpt::base::UniqueFd server(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(server.get(), address->get(), address->size()), 0);
  ASSERT_EQ(::listen(server.get(), 1), 0);
  EXPECT_TRUE(socket_has_listener(path));
  EXPECT_EQ(::accept(server.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  server.reset();
  EXPECT_FALSE(socket_has_listener(path)) << "its server has ended";
}

}  // namespace
}  // namespace ckptctl

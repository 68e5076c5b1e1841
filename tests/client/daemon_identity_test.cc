// libckpt gives its arena only to a trusted user's daemon, whoever listens at the path.
#include "client/src/daemon_identity.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "tests/client/client_fixture.h"
#include "tests/client/fake_daemon.h"

namespace ckpt::test {
namespace {

using client::Session;

constexpr uid_t kStranger = 54'322;

TEST(DaemonIdentity, TrustsRootItselfAndTheNamedUser) {
  using lib::Trust;
  const lib::TrustedUsers users{.own = 1000, .named = 990};
  EXPECT_EQ(lib::trust_in(0, users), Trust::kTrusted);
  EXPECT_EQ(lib::trust_in(1000, users), Trust::kTrusted);
  EXPECT_EQ(lib::trust_in(990, users), Trust::kTrusted);
  EXPECT_EQ(lib::trust_in(1001, users), Trust::kNotTrusted);
  EXPECT_EQ(lib::trust_in(65'534, users), Trust::kNotTrusted);
}

TEST(DaemonIdentity, OverflowUserIsOutsideUserNamespace) {
  using lib::Trust;
  const lib::TrustedUsers mapped{.own = 1000, .named = {}, .overflow_uid = 65'534};
  EXPECT_EQ(lib::trust_in(65'534, mapped), Trust::kOutsideNamespace);
  EXPECT_EQ(lib::trust_in(1000, mapped), Trust::kTrusted);
  EXPECT_EQ(lib::trust_in(1001, mapped), Trust::kNotTrusted);
  const lib::TrustedUsers unmapped{.own = 65'534, .named = {}, .overflow_uid = 65'534};
  EXPECT_EQ(lib::trust_in(65'534, unmapped), Trust::kOutsideNamespace);
  const lib::TrustedUsers named{.own = 1000, .named = 65'534, .overflow_uid = 65'534};
  EXPECT_EQ(lib::trust_in(65'534, named), Trust::kTrusted);
}

// Daemons of other users: needs root.
class ImpostorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
    ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
  }
  void TearDown() override { ::unsetenv("CKPTD_UID"); }

  // Only this call's thread changes its user: a socket's user is that of the thread that listens.
  std::unique_ptr<FakeDaemon> daemon_of(uid_t uid) const {
    std::unique_ptr<FakeDaemon> daemon;
    std::thread([&] {
      ASSERT_EQ(::syscall(SYS_setresuid, uid, uid, uid), 0);
      daemon = std::make_unique<FakeDaemon>(socket_, FakeDaemon::Options{});
    }).join();
    return daemon;
  }
  client::Outcome<Session> open() const {
    client::OpenOptions options;
    options.socket = socket_;
    options.run = "tiny";
    return Session::open(options);
  }

  const TempFolder folder_;
  const std::string socket_ = folder_.path("ckptd.sock");
};

TEST_F(ImpostorTest, IsRefusedWithUserAndRemedy) {
  const auto impostor = daemon_of(kStranger);
  const auto session = open();
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, CKPT_E_PERMISSION_DENIED);
  EXPECT_EQ(session.error().message,
            "socket " + socket_ + ": user 54322 listens there, which is neither root nor this " +
                "user (0); if ckptd runs as user 54322, set CKPTD_UID=54322");
  EXPECT_TRUE(impostor->types().empty()) << "nothing was said to it";
}

TEST_F(ImpostorTest, IsTrustedOnceNamed) {
  const auto daemon = daemon_of(kStranger);
  ::setenv("CKPTD_UID", "54322", 1);
  ASSERT_OK(open());
  ::setenv("CKPTD_UID", "ckptd", 1);
  const auto session = open();
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, CKPT_E_INVALID_ARGUMENT);
  EXPECT_NE(session.error().message.find("CKPTD_UID=ckptd: not a user id"), std::string::npos)
      << session.error().message;
}

TEST_F(ImpostorTest, GetsNoArenaDuringDaemonOutage) {
  auto daemon = daemon_of(0);
  auto session = open();
  ASSERT_OK(session);
  ASSERT_OK(session->register_units({flat_unit("a", 100)}));
  daemon.reset();
  {
    const auto impostor = daemon_of(kStranger);
    const auto join = session->join({.rank = 0, .size = 1, .timeout_ms = 200});
    ASSERT_FALSE(join);
    EXPECT_NE(join.error().message.find("user 54322 listens there"), std::string::npos)
        << join.error().message;
    EXPECT_TRUE(impostor->types().empty()) << "nothing was said to it";
  }
  daemon = daemon_of(0);
  ASSERT_OK(session->join({.rank = 0, .size = 1}));
  EXPECT_TRUE(daemon->wait_for(fb::MessageBody::Hello, 1)[0].body.AsHello()->readopt);
}

}  // namespace
}  // namespace ckpt::test

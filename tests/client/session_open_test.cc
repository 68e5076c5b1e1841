// Opening a session, against a daemon made of answers.
#include <stdlib.h>

#include <atomic>

#include "tests/client/session_fixture.h"

namespace ckpt::test {
namespace {

using client::OpenOptions;
using client::Session;

TEST_F(SessionTest, OpensAndMapsTheArena) {
  FakeDaemon daemon(socket_, {});
  auto session = Session::open(options());
  ASSERT_OK(session);
  uint64_t bytes = 0;
  auto* arena = static_cast<char*>(ckpt_arena(session->handle(), &bytes));
  ASSERT_EQ(bytes, 8u * (256 << 10));
  arena[bytes - 1] = 7;  // shared with the daemon
  EXPECT_EQ(daemon.slab(7).back(), std::byte{7});
  const fb::MessageT message = daemon.wait_for(fb::MessageBody::Hello, 1)[0];
  EXPECT_EQ(message.body.AsHello()->run, "tiny");
  EXPECT_FALSE(message.body.AsHello()->readopt);
}

TEST_F(SessionTest, NoDaemonIsUnavailableAndNamesTheSocket) {
  auto session = Session::open(options(50));
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, CKPT_E_UNAVAILABLE);
  EXPECT_NE(session.error().message.find(socket_), std::string::npos) << session.error().message;
}

TEST_F(SessionTest, MissingNameErrorNamesVariable) {
  ::unsetenv("CKPTD_RUN");
  ::unsetenv("CKPTD_SOCKET");
  const auto no_run = Session::open({.socket = socket_});
  ASSERT_FALSE(no_run);
  EXPECT_EQ(no_run.error().status, CKPT_E_INVALID_ARGUMENT);
  EXPECT_EQ(no_run.error().message,
            "no run: CKPTD_RUN is not set; set it to the run's name, or name the run when the "
            "session is opened");
  const auto no_socket = Session::open({.run = "tiny"});
  ASSERT_FALSE(no_socket);
  EXPECT_EQ(no_socket.error().message,
            "no socket: CKPTD_SOCKET is not set; set it to unix:PATH, or name the socket when the "
            "session is opened");
}

TEST_F(SessionTest, WaitsForADaemonThatStartsLater) {
  std::unique_ptr<FakeDaemon> daemon;
  std::thread starter(
      [&] { daemon = std::make_unique<FakeDaemon>(socket_, FakeDaemon::Options{}); });
  auto session = Session::open(options());
  starter.join();
  EXPECT_TRUE(session.ok());
}

TEST_F(SessionTest, AnotherProtocolVersionFailsAtOnce) {
  FakeDaemon daemon(socket_, {.protocol_version = wire::kProtocolVersion + 1});
  auto session = Session::open(options());
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, CKPT_E_VERSION_MISMATCH) << session.error().message;
}

TEST_F(SessionTest, OpenReturnsErrorOfRefusedHello) {
  FakeDaemon daemon(socket_, {}, [](FakeDaemon::Peer& peer, const fb::MessageT&) {
    fb::ErrorReplyT refusal;
    refusal.code = static_cast<int>(ErrorCode::kPermissionDenied);
    refusal.message = "uid 1000 is not in allow_uids";
    refusal.detail = 77;  // of a newer daemon
    peer.send(std::move(refusal));
    peer.hang_up();
    return true;
  });
  auto session = Session::open(options());
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, CKPT_E_PERMISSION_DENIED);
  EXPECT_EQ(session.error().message, "uid 1000 is not in allow_uids");
  EXPECT_EQ(session.error().detail, 77);
}

TEST_F(SessionTest, OpenRetriesWhileMemoryIsExhausted) {
  int greetings = 0;
  FakeDaemon daemon(socket_, {}, [&](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type != fb::MessageBody::Hello || ++greetings > 2) return false;
    fb::ErrorReplyT refusal;
    refusal.code = static_cast<int>(ErrorCode::kResourceExhausted);
    refusal.message = "0 bytes can be given";
    peer.send(std::move(refusal));
    peer.hang_up();
    return true;
  });
  const auto session = Session::open(options());
  ASSERT_OK(session);
}

// Regression: the caller heard nothing until the opening timed out.
TEST_F(SessionTest, OpenReportsWaitForMemory) {
  std::atomic<bool> room = false;
  FakeDaemon daemon(socket_, {}, [&](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type != fb::MessageBody::Hello || room) return false;
    fb::ErrorReplyT refusal;
    refusal.code = static_cast<int>(ErrorCode::kResourceExhausted);
    refusal.message = "0 bytes can be given";
    peer.send(std::move(refusal));
    peer.hang_up();
    return true;
  });
  OpenOptions waits = options(60'000);
  std::vector<std::string> reasons;
  waits.waiting = [&](const std::string& why) {
    reasons.push_back(why);
    room = true;
  };
  const auto session = Session::open(waits);
  ASSERT_OK(session);
  EXPECT_EQ(reasons, std::vector<std::string>{"0 bytes can be given"});
}

TEST_F(SessionTest, GarbageFromDaemonFailsOpenWithoutCrash) {
  std::mt19937_64 random(7);
  FakeDaemon daemon(socket_, {}, [&](FakeDaemon::Peer& peer, const fb::MessageT&) {
    std::vector<std::byte> garbage(1 + random() % 4096);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    peer.send_bytes(garbage);
    peer.hang_up();
    return true;
  });
  // Garbage shorter than a header looks like a lost connection, longer garbage like no frame.
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Session::open(options(50)));
}

TEST_F(SessionTest, BadOptionsAreRefusedBeforeAnythingIsSent) {
  OpenOptions no_run = options();
  no_run.run = "../x";
  auto session = Session::open(no_run);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, CKPT_E_INVALID_ARGUMENT);
  OpenOptions long_path = options();
  long_path.socket = std::string(200, 'x');
  session = Session::open(long_path);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, CKPT_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace ckpt::test

// The daemon answers or disconnects a hostile client, and continues to serve the others.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "ckptd/limits.h"
#include "tests/support/daemon_process.h"
#include "tests/support/raw_client.h"

namespace {

using ckpt::ByteView;
using ckpt::test::DaemonProcess;
using ckpt::test::RawClient;
namespace fb = ckpt::fb;

class HostileClient : public testing::Test {
 protected:
  // The daemon still serves a well-behaved client.
  void expect_alive() {
    RawClient client(daemon_.socket());
    client.hello_control();
    const auto reply = client.query("runs", "{}");
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->exit_code, 0) << reply->json;
  }
  // Everything it still says is an error; then it hangs up.
  static void expect_hang_up(RawClient& client) {
    while (const auto message = client.next()) {
      EXPECT_EQ(message->body.type, fb::MessageBody::ErrorReply);
    }
  }

  DaemonProcess daemon_{{"--arena", "64MiB"}};
};

std::vector<std::byte> hello_frame(uint32_t version) {
  fb::HelloT hello;
  hello.protocol_version = version;
  hello.kind = fb::SessionKind::Control;
  return ckpt::wire::encode(std::move(hello));
}

TEST_F(HostileClient, VersionMismatchNamesTheClientsVersion) {
  RawClient client(daemon_.socket());
  client.send_bytes(hello_frame(ckpt::wire::kProtocolVersion + 1));
  const auto answer = client.next();
  ASSERT_TRUE(answer.has_value());
  ASSERT_EQ(answer->body.type, fb::MessageBody::ErrorReply);
  const auto* error = answer->body.AsErrorReply();
  EXPECT_EQ(error->code, static_cast<int>(ckpt::ErrorCode::kVersionMismatch));
  EXPECT_NE(error->message.find(std::to_string(ckpt::wire::kProtocolVersion + 1)),
            std::string::npos)
      << error->message;
  EXPECT_FALSE(client.next().has_value());
  expect_alive();
}

TEST_F(HostileClient, RandomBytesAreRefused) {
  std::mt19937_64 random(20240705);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> bytes(1 + random() % 4096);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    RawClient client(daemon_.socket());
    client.send_bytes(bytes);
    if (bytes.size() >= ckpt::wire::kFrameHeaderBytes) expect_hang_up(client);
  }
  expect_alive();
}

TEST_F(HostileClient, OversizedFrameIsRefusedAtItsHeader) {
  std::vector<std::byte> frame = hello_frame(ckpt::wire::kProtocolVersion);
  ckpt::base::store<uint32_t>(frame.data() + 4, 0xffffffffu);
  RawClient client(daemon_.socket());
  client.send_bytes(ByteView(frame).first(ckpt::wire::kFrameHeaderBytes));
  expect_hang_up(client);
  expect_alive();
}

TEST_F(HostileClient, TruncatedFrameDoesNotStopTheDaemon) {
  const std::vector<std::byte> frame = hello_frame(ckpt::wire::kProtocolVersion);
  for (size_t length = 0; length < frame.size(); length += 7) {
    RawClient client(daemon_.socket());
    client.send_bytes(ByteView(frame).first(length));
  }
  expect_alive();
}

TEST_F(HostileClient, EveryFlippedByteOfAHelloIsRefused) {
  const std::vector<std::byte> frame = hello_frame(ckpt::wire::kProtocolVersion);
  for (size_t at = 0; at < frame.size(); ++at) {
    // A length that says "more to come" is waited for until the greeting's deadline: not here.
    if (at >= 4 && at < 8) continue;
    std::vector<std::byte> broken = frame;
    broken[at] ^= std::byte{0x10};
    RawClient client(daemon_.socket());
    client.send_bytes(broken);
    expect_hang_up(client);
  }
  expect_alive();
}

TEST_F(HostileClient, RefusesEarlyAndServerSideMessages) {
  RawClient early(daemon_.socket());
  fb::QueryT query;
  query.verb = "runs";
  early.send(std::move(query));
  expect_hang_up(early);

  RawClient mirror(daemon_.socket());
  mirror.hello_control();
  mirror.send(fb::WelcomeT{});
  expect_hang_up(mirror);
  expect_alive();
}

// Frames of the largest size, all of it one text: none is echoed, and none ends the daemon.
TEST_F(HostileClient, LargestTextsAreRefusedWithoutEcho) {
  const std::string text(ckpt::wire::kFramePayloadBytesMax - 256, 'A');
  RawClient client(daemon_.socket());
  client.hello_control();
  const auto expect_refused = [&](auto body) {
    client.send(std::move(body));
    const auto reply = client.next();
    ASSERT_TRUE(reply.has_value());
    ASSERT_EQ(reply->body.type, fb::MessageBody::ErrorReply);
    EXPECT_LT(reply->body.AsErrorReply()->message.size(), 1000u);
  };
  fb::OpenRestoreT restore;
  restore.run = text;
  expect_refused(std::move(restore));
  fb::QueryT query;
  query.verb = text;
  expect_refused(std::move(query));
  expect_alive();
}

// The limit of sessions is temporary, unlike a missing permission: the client may retry.
TEST_F(HostileClient, SessionAboveTheLimitIsRefused) {
  std::vector<std::unique_ptr<RawClient>> clients;
  for (size_t i = 0; i < ckptd::limits::kSessionsMax; ++i) {
    clients.push_back(std::make_unique<RawClient>(daemon_.socket()));
    clients.back()->hello_control();
  }
  RawClient one_more(daemon_.socket());
  const auto reply = one_more.next();
  ASSERT_TRUE(reply.has_value());
  ASSERT_EQ(reply->body.type, fb::MessageBody::ErrorReply);
  EXPECT_EQ(reply->body.AsErrorReply()->code,
            static_cast<int>(ckpt::ErrorCode::kResourceExhausted));
  EXPECT_FALSE(one_more.next().has_value());
}

}  // namespace

// One client's connection on its own loop: its cost to other clients, and its end.
#include "ckptd/server/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

namespace ckptd {
namespace {

using ckpt::ByteView;
using ckpt::base::UniqueFd;
namespace fb = ckpt::fb;

std::vector<std::byte> small_frame() {
  fb::ReleaseWindowT body;
  body.restore = 1;
  return ckpt::wire::encode(std::move(body));
}

uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

class ConnectionTest : public testing::Test {
 protected:
  void open(Connection::Deadlines deadlines = {}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    client.reset(ends[0]);
    asio::local::stream_protocol::socket socket(loop, asio::local::stream_protocol(), ends[1]);
    const Connection::Events events{
        .on_message =
            [this](ckpt::SessionId, fb::MessageT, UniqueFd) {
              ++messages;
              if (on_message) on_message();
            },
        .on_closed = [this](ckpt::SessionId, const std::string& reason) { closed = reason; }};
    const Connection::Descriptors descriptors{.quarantine = *quarantine};
    connection =
        std::make_shared<Connection>(std::move(socket), Peer(), 1, events, descriptors, deadlines);
    connection->start();
  }
  void run_until_closed() {
    while (closed.empty() && loop.run_one() > 0) {
    }
  }
  // Writes as many bytes as the socket takes now.
  size_t write(ByteView bytes) {
    const ssize_t sent =
        ::send(client.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent > 0 ? static_cast<size_t>(sent) : 0;
  }

  asio::io_context loop{1};
  std::unique_ptr<Quarantine> quarantine = Quarantine::start(loop).value();
  UniqueFd client;
  std::shared_ptr<Connection> connection;
  size_t messages = 0;
  std::function<void()> on_message;
  std::string closed;
};

// The client answers each message with another message: there is always more to read.
TEST_F(ConnectionTest, EndlessSenderYieldsTheLoop) {
  open();
  constexpr size_t kEnough = 1000;
  const std::vector<std::byte> frame = small_frame();
  size_t turn_after_messages = 0;
  on_message = [&] {
    if (messages == 1) asio::post(loop, [&] { turn_after_messages = messages; });
    if (messages < kEnough) write(frame);
  };
  write(frame);
  while (messages < kEnough && loop.run_one() > 0) {
  }
  EXPECT_EQ(messages, kEnough);
  EXPECT_GE(turn_after_messages, 1u);
  EXPECT_LT(turn_after_messages, 10u);
}

// The last answer cannot be sent, because the client does not read. Bytes that the client sends
// meanwhile must not pile up.
TEST_F(ConnectionTest, BytesAfterCloseAreNotBuffered) {
  open({.close = std::chrono::hours(1)});
  std::vector<std::byte> answer(1u << 20);
  for (int i = 0; i < 8; ++i) connection->send(answer, -1);
  connection->close_after_sending("it broke the stream");
  const std::vector<std::byte> junk(1u << 20, std::byte{'J'});
  const uint64_t before = resident_bytes();
  size_t sent = 0;
  while (sent < (256u << 20)) {
    sent += write(junk);
    loop.poll();
  }
  EXPECT_LT(resident_bytes(), before + (64u << 20));
  EXPECT_EQ(messages, 0u);
  EXPECT_EQ(closed, "") << "the answer can still be read";
  size_t read = 0;
  while (closed.empty()) {
    const ssize_t got = ::recv(client.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    if (got > 0) read += static_cast<size_t>(got);
    loop.poll();
  }
  for (ssize_t got = 1; got > 0;) {
    got = ::recv(client.get(), answer.data(), answer.size(), 0);
    if (got > 0) read += static_cast<size_t>(got);
  }
  EXPECT_EQ(read, 8u << 20);
  EXPECT_EQ(closed, "it broke the stream");
}

TEST_F(ConnectionTest, UnreadLastAnswerTimesOut) {
  open({.close = std::chrono::milliseconds(1)});
  for (int i = 0; i < 8; ++i) connection->send(std::vector<std::byte>(1u << 20), -1);
  connection->close_after_sending("it broke the stream");
  run_until_closed();
  EXPECT_EQ(closed, "it broke the stream");
}

// The client sends messages and dies before they are read. Answers to it are dropped.
TEST_F(ConnectionTest, ReadsMessagesOfClientThatDied) {
  open();
  const std::vector<std::byte> frame = small_frame();
  constexpr size_t kWords = 10;
  for (size_t i = 0; i < kWords; ++i) ASSERT_EQ(write(frame), frame.size());
  client.reset();
  connection->send(frame, -1);
  connection->send(frame, -1);
  EXPECT_EQ(closed, "") << "not in the middle of a send";
  run_until_closed();
  EXPECT_EQ(messages, kWords);
  EXPECT_NE(closed, "");
}

// A client takes a frame without its descriptor for corruption. A client whose connection ends
// reconnects.
TEST_F(ConnectionTest, FrameWithoutItsDescriptorClosesConnection) {
  open();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  connection->send(small_frame(), client.get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  run_until_closed();
  EXPECT_THAT(closed, testing::HasSubstr("Too many open files"));
  std::byte byte{};
  EXPECT_EQ(::recv(client.get(), &byte, 1, 0), 0) << "the end, and nothing before it";
}

using ConnectionDeathTest = ConnectionTest;

// An exception in the middle of a message must end the program.
TEST_F(ConnectionDeathTest, ExceptionInMessageHandlerAborts) {
  EXPECT_DEATH(
      {
        open();
        on_message = [] { throw std::out_of_range("map::at"); };
        write(small_frame());
        loop.run();
      },
      "map::at");
}

}  // namespace
}  // namespace ckptd

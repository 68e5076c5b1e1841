#include "tests/support/raw_client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "formats/base/fd_message.h"

namespace ckpt::test {

RawClient::RawClient(const std::string& socket)
    : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0)
      << socket << ": " << std::strerror(errno);
}

void RawClient::send_bytes(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return;  // the daemon has closed it; next() says so
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

int RawClient::send_with_fds(ByteView bytes, const std::vector<int>& fds, int flags) {
  return base::send_with_fds(fd_.get(), bytes, fds, {.flags = flags}) < 0 ? errno : 0;
}

// Receives the bytes that have arrived. Takes descriptors over and keeps the last one.
ssize_t RawClient::receive(std::vector<std::byte>& buffer) {
  std::vector<base::UniqueFd> fds;
  const ssize_t got = base::receive_with_fds(fd_.get(), buffer, fds).bytes;
  if (!fds.empty()) received_fd_ = std::move(fds.back());
  return got;
}

std::optional<fb::MessageT> RawClient::next() {
  std::vector<std::byte> buffer(64 << 10);
  while (true) {
    auto message = reader_.next();
    if (!message.ok()) {
      ADD_FAILURE() << "the daemon sent a broken frame: " << message.error().message;
      return std::nullopt;
    }
    if (message->has_value()) return std::move(*message);
    pollfd readable{fd_.get(), POLLIN, 0};
    if (::poll(&readable, 1, 60'000) == 0) {
      ADD_FAILURE() << "the daemon neither answers nor closes the connection";
      return std::nullopt;
    }
    const ssize_t got = receive(buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    reader_.append(ByteView(buffer).first(static_cast<size_t>(got)));
  }
}

void RawClient::hello_control() {
  fb::HelloT hello;
  hello.protocol_version = wire::kProtocolVersion;
  hello.client = "test";
  hello.kind = fb::SessionKind::Control;
  send(std::move(hello));
  const auto answer = next();
  ASSERT_TRUE(answer.has_value());
  ASSERT_EQ(answer->body.type, fb::MessageBody::Welcome);
}

std::optional<fb::QueryReplyT> RawClient::query(const std::string& verb,
                                                const std::string& arguments) {
  fb::QueryT query;
  query.request = 1;
  query.verb = verb;
  query.args = arguments;
  send(std::move(query));
  auto answer = next();
  if (!answer || answer->body.type != fb::MessageBody::QueryReply) return std::nullopt;
  return *answer->body.AsQueryReply();
}

}  // namespace ckpt::test

// /metrics and its neighbours on the daemon's loop.
#include "ckptd/server/http.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "formats/base/unique_fd.h"

namespace ckptd {
namespace {

using ckpt::base::UniqueFd;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class HttpTest : public testing::Test {
 protected:
  // The default deadline of an hour is longer than any test: a test hangs if it waits for the
  // deadline.
  void open(std::chrono::milliseconds deadline = std::chrono::hours(1)) {
    auto opened = HttpServer::open(
        loop, {.host = "127.0.0.1", .port = 0},
        [](const std::string& path) -> std::optional<HttpServer::Answer> {
          if (path != "/healthz") return std::nullopt;
          return HttpServer::Answer{.status = 200, .body = "ok\n"};
        },
        deadline);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    server = std::move(opened).value();
    server->start();
  }
  UniqueFd connect() {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  // Reads until the server has closed the connection.
  std::string read_all(int fd) {
    std::string text;
    char buffer[4096];
    while (true) {
      const ssize_t got = ::recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
      if (got > 0) text.append(buffer, static_cast<size_t>(got));
      if (got == 0 || (got < 0 && errno != EAGAIN)) return text;
      loop.poll();
    }
  }
  std::string ask(const std::string& request) {
    const UniqueFd fd = connect();
    EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    return read_all(fd.get());
  }

  asio::io_context loop{1};
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpTest, AnswersGetAndHeadOfKnownPaths) {
  open();
  EXPECT_THAT(ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 3\r\n"),
                    EndsWith("\r\n\r\nok\n")));
  EXPECT_THAT(ask("GET /healthz?a=b HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask("HEAD /healthz HTTP/1.1\r\n\r\n"),
              AllOf(HasSubstr("Content-Length: 3\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_THAT(ask("GET /none HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask("POST /healthz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405"));
}

TEST_F(HttpTest, MalformedRequestsAreRefused) {
  open();
  for (const char* junk : {"\r\n\r\n", "GET\r\n\r\n", "GET /healthz\r\n\r\n", " / HTTP\r\n\r\n",
                           "GET /healthz SMTP\r\n\r\n"}) {
    EXPECT_THAT(ask(junk), StartsWith("HTTP/1.1 400")) << junk;
  }
  EXPECT_EQ(ask(std::string(limits::kHttpRequestBytesMax + 1, 'x')), "");
  EXPECT_THAT(ask("GET /healthz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

// More idle connections than there is room for.
TEST_F(HttpTest, IdleConnectionsAreEvicted) {
  open();
  std::vector<UniqueFd> idle;
  for (size_t i = 0; i < 2 * limits::kHttpConnectionsMax; ++i) {
    idle.push_back(connect());
    loop.poll();
  }
  EXPECT_THAT(ask("GET /healthz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(read_all(idle.front().get()), "") << "the oldest made room";
}

TEST_F(HttpTest, ClosedServerLetsTheLoopEnd) {
  open();
  const UniqueFd idle = connect();
  loop.poll();
  server->close();
  loop.run();
  EXPECT_EQ(read_all(idle.get()), "");
}

TEST_F(HttpTest, IdleConnectionTimesOut) {
  open(std::chrono::milliseconds(1));
  const UniqueFd idle = connect();
  EXPECT_EQ(read_all(idle.get()), "");
}

TEST_F(HttpTest, ErrorNamesAddressInUse) {
  open();
  const auto second = HttpServer::open(loop, {.host = "127.0.0.1", .port = server->port()}, {});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message,
              HasSubstr("http 127.0.0.1:" + std::to_string(server->port())));
}

}  // namespace
}  // namespace ckptd

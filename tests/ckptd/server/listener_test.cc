// Connections that cannot be accepted: cause and remedy are reported while the fault lasts.
#include "ckptd/server/listener.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <asio/executor_work_guard.hpp>
#include <cstring>

namespace ckptd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// An address without a file.
sockaddr_un abstract_address() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("ckptd-listener-test-{}", ::getpid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return address;
}

// No descriptor can be opened meanwhile.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(Listener, ReportsFaultWhileDescriptorsRunOut) {
  const sockaddr_un address = abstract_address();
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  ckpt::base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  ckpt::base::UniqueFd client(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(::bind(socket.get(), name, sizeof(address)), 0);
  ASSERT_EQ(::listen(socket.get(), 4), 0);
  ASSERT_EQ(::connect(client.get(), name, sizeof(address)), 0);
  asio::io_context loop{1};
  const auto work = asio::make_work_guard(loop);
  int accepted = 0;
  Listener listener(
      loop, [&accepted](const Listener::Socket&) { ++accepted; }, [] { return true; });
  ASSERT_TRUE(listener.assign(std::move(socket), "a socket").ok());
  {
    const NoDescriptors none;
    listener.start();
    loop.poll();
    EXPECT_THAT(listener.fault(), AllOf(HasSubstr("Too many open files"), HasSubstr("ulimit -n")));
    listener.tick();
    loop.poll();
    EXPECT_NE(listener.fault(), "") << "it is tried again, and fails again";
    EXPECT_EQ(accepted, 0);
  }
  listener.tick();
  loop.poll();
  EXPECT_EQ(accepted, 1);
  listener.tick();
  EXPECT_EQ(listener.fault(), "");
  listener.release();
}

}  // namespace
}  // namespace ckptd

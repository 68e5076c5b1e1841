// The variables of a service manager, whatever they hold, and the messages sent to it.
#include "ckptd/server/service_manager.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>

#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

using ckpt::base::UniqueFd;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr pid_t kOwn = 4711;

ServiceEnvironment read(const std::map<std::string, std::string>& variables) {
  return read_service_environment(variables, kOwn);
}

TEST(ServiceEnvironment, IsEmptyWithoutVariables) {
  const ServiceEnvironment none = read({});
  EXPECT_EQ(none.notify_socket, "");
  EXPECT_FALSE(none.watchdog);
  EXPECT_THAT(none.fd_names, IsEmpty());
  EXPECT_THAT(none.complaints, IsEmpty());
}

TEST(ServiceEnvironment, ReadsDocumentedVariables) {
  const ServiceEnvironment all = read({{"NOTIFY_SOCKET", "/run/systemd/notify"},
                                       {"WATCHDOG_PID", "4711"},
                                       {"WATCHDOG_USEC", "30000000"},
                                       {"LISTEN_PID", "4711"},
                                       {"LISTEN_FDS", "3"},
                                       {"LISTEN_FDNAMES", "socket:arena-1:ledger-1"}});
  EXPECT_EQ(all.notify_socket, "/run/systemd/notify");
  EXPECT_EQ(all.watchdog, std::chrono::seconds(30));
  EXPECT_THAT(all.fd_names, ElementsAre("socket", "arena-1", "ledger-1"));
  EXPECT_THAT(all.complaints, IsEmpty());
  EXPECT_EQ(read({{"NOTIFY_SOCKET", "@abstract"}}).notify_socket, "@abstract");
  EXPECT_EQ(read({{"WATCHDOG_USEC", "5"}}).watchdog, std::chrono::microseconds(5));
  EXPECT_THAT(read({{"LISTEN_PID", "4711"}, {"LISTEN_FDS", "2"}}).fd_names, ElementsAre("", ""));
}

TEST(ServiceEnvironment, IgnoresVariablesForAnotherProcess) {
  const ServiceEnvironment others = read({{"WATCHDOG_PID", "4712"},
                                          {"WATCHDOG_USEC", "30000000"},
                                          {"LISTEN_PID", "4712"},
                                          {"LISTEN_FDS", "3"}});
  EXPECT_FALSE(others.watchdog);
  EXPECT_THAT(others.fd_names, IsEmpty());
  EXPECT_THAT(others.complaints, IsEmpty());
}

TEST(ServiceEnvironment, IgnoresInvalidValuesWithComplaint) {
  const std::vector<std::string> no_numbers = {
      "", "-1", "abc", "3x", " 3", "0x3", "1e3", "18446744073709551616", "99999999999"};
  for (const std::string& text : no_numbers) {
    SCOPED_TRACE(text);
    const ServiceEnvironment fds = read({{"LISTEN_PID", "4711"}, {"LISTEN_FDS", text}});
    EXPECT_THAT(fds.fd_names, IsEmpty());
    EXPECT_THAT(fds.complaints, ElementsAre(HasSubstr("$LISTEN_FDS")));
    const ServiceEnvironment pid = read({{"LISTEN_PID", text}, {"LISTEN_FDS", "1"}});
    EXPECT_THAT(pid.fd_names, IsEmpty());
    EXPECT_THAT(pid.complaints, ElementsAre(HasSubstr("$LISTEN_PID")));
  }
  EXPECT_FALSE(read({{"WATCHDOG_USEC", "18446744073709551615"}}).watchdog) << "it would overflow";
  EXPECT_FALSE(read({{"WATCHDOG_USEC", "0"}}).watchdog) << "none is wanted";
  EXPECT_THAT(read({{"LISTEN_PID", "4711"}, {"LISTEN_FDS", "0"}}).complaints, IsEmpty());
  for (const std::string& path : {std::string(""), std::string("@"), std::string("relative"),
                                  std::string("vsock:2:1"), "/" + std::string(200, 'x')}) {
    SCOPED_TRACE(path);
    EXPECT_EQ(read({{"NOTIFY_SOCKET", path}}).notify_socket, "");
    EXPECT_THAT(read({{"NOTIFY_SOCKET", path}}).complaints,
                ElementsAre(HasSubstr("$NOTIFY_SOCKET")));
  }
  // Names are dropped if their number differs from the number of descriptors.
  const ServiceEnvironment names = read({{"LISTEN_PID", "4711"},
                                         {"LISTEN_FDS", "3"},
                                         {"LISTEN_FDNAMES", std::string(100'000, 'x') + ":b"}});
  EXPECT_THAT(names.fd_names, ElementsAre("", "", ""));
  EXPECT_THAT(names.complaints, ElementsAre(HasSubstr("2 names for 3 descriptors")));
  EXPECT_THAT(names.complaints[0], SizeIs(testing::Lt(1000)));
}

class ServiceManagerTest : public testing::Test {
 protected:
  void bind(const std::string& name) {
    socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof(address.sun_path) - 1);
    socklen_t bytes = sizeof(address);
    if (name[0] == '@') {
      address.sun_path[0] = '\0';
      bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    }
    ASSERT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  }
  // The next datagram; "" if there is none. Keeps the descriptor that came with it.
  std::string heard() {
    std::array<char, 512> text{};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    iovec vector{.iov_base = text.data(), .iov_len = text.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    received_.reset();
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message); got > 0 && header != nullptr) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
      received_.reset(fd);
    }
    return got > 0 ? std::string(text.data(), static_cast<size_t>(got)) : "";
  }

  ckpt::test::TempFolder folder_;
  UniqueFd socket_;
  UniqueFd received_;
};

TEST_F(ServiceManagerTest, NotifiesPathAndAbstractSockets) {
  for (const std::string& name :
       {folder_.path("notify"), std::string("@ckptd-test-") + std::to_string(::getpid())}) {
    SCOPED_TRACE(name);
    bind(name);
    ServiceEnvironment environment;
    environment.notify_socket = name;
    ServiceManager manager(environment, {});
    manager.ready();
    EXPECT_EQ(heard(), "READY=1");
    manager.stopping();
    EXPECT_EQ(heard(), "STOPPING=1");
    manager.alive(ServiceManager::Clock::now());
    EXPECT_EQ(heard(), "") << "nobody asked for pings";
  }
}

TEST_F(ServiceManagerTest, PingsTwicePerWatchdogPeriod) {
  bind(folder_.path("notify"));
  ServiceEnvironment environment;
  environment.notify_socket = folder_.path("notify");
  environment.watchdog = std::chrono::seconds(10);
  ServiceManager manager(environment, {});
  const ServiceManager::Clock::time_point start{std::chrono::hours(1)};
  size_t pings = 0;
  for (int tick = 0; tick < 1'000; ++tick) {  // 20 s
    manager.alive(start + tick * std::chrono::milliseconds(20));
    while (heard() == "WATCHDOG=1") ++pings;
  }
  EXPECT_EQ(pings, 4u);
  manager.alive(start + std::chrono::hours(1));
  EXPECT_EQ(heard(), "WATCHDOG=1");
}

TEST_F(ServiceManagerTest, KeepsAndForgetsDescriptorsByName) {
  bind(folder_.path("notify"));
  ServiceEnvironment environment;
  environment.notify_socket = folder_.path("notify");
  ServiceManager manager(environment, {});
  const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), 12'345), 0);
  manager.keep("arena-7", memory.get());
  EXPECT_EQ(heard(), "FDSTORE=1\nFDPOLL=0\nFDNAME=arena-7");
  ASSERT_TRUE(received_.valid());
  EXPECT_EQ(::lseek(received_.get(), 0, SEEK_END), 12'345);
  manager.forget("arena-7");
  EXPECT_EQ(heard(), "FDSTOREREMOVE=1\nFDNAME=arena-7");
  // A name from outside cannot add lines to the message.
  for (const char* name : {"", "a\nREADY=1", "a:b", "\x7f", "\xff"}) manager.forget(name);
  EXPECT_EQ(heard(), "");
}

UniqueFd listening_on(const std::string& path) {
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  return listener;
}

// systemd gives both sockets of a unit the same name.
TEST_F(ServiceManagerTest, RecognizesArenaSocketByItsPath) {
  std::vector<UniqueFd> fds;
  fds.push_back(listening_on(folder_.path("listen.arena")));
  fds.push_back(listening_on(folder_.path("listen")));
  const int arena = fds[0].get();
  const int main = fds[1].get();
  ServiceEnvironment environment;
  environment.fd_names = {"socket", "socket"};
  ServiceManager manager(environment, std::move(fds));
  EXPECT_EQ(manager.take_listener().get(), main);
  EXPECT_EQ(manager.take_arena_listener().get(), arena);
  EXPECT_THAT(manager.take(), IsEmpty());
}

TEST_F(ServiceManagerTest, RecognizesListeningSocketByItsType) {
  UniqueFd listener = listening_on(folder_.path("listen"));
  const int number = listener.get();
  std::vector<UniqueFd> fds;
  fds.emplace_back(::memfd_create("test", MFD_CLOEXEC));
  fds.emplace_back();  // announced, but not there
  fds.push_back(std::move(listener));
  fds.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));  // not listening
  ServiceEnvironment environment;
  environment.fd_names = {"socket", "gone", "", "socket"};
  ServiceManager manager(environment, std::move(fds));
  EXPECT_EQ(manager.take_listener().get(), number);
  const auto kept = manager.take();
  ASSERT_THAT(kept, SizeIs(2));
  EXPECT_EQ(kept[0].name, "socket");
  EXPECT_EQ(kept[1].name, "socket");
  EXPECT_THAT(manager.take(), IsEmpty());
}

TEST_F(ServiceManagerTest, ContinuesWithoutNotifySocket) {
  ServiceEnvironment environment;
  environment.notify_socket = folder_.path("nobody");
  ServiceManager manager(environment, {});
  manager.ready();
  manager.keep("arena-1", 0);
  EXPECT_THAT(manager.take(), IsEmpty());
  bind(folder_.path("nobody"));  // the socket appears late
  manager.stopping();
  EXPECT_EQ(heard(), "STOPPING=1");
}

}  // namespace
}  // namespace ckptd

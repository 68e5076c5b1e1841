// Descriptors that clients pass never block the daemon's loop: on a kernel that can refuse them
// (SO_PASSRIGHTS), and on one that cannot.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "ckptd/catalog/kv_store.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/limits.h"
#include "ckptd/server/server.h"
#include "formats/arena.h"
#include "tests/support/lingering_socket.h"
#include "tests/support/raw_client.h"
#include "tests/support/stalled_file.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

using ckpt::ByteView;
using ckpt::base::UniqueFd;
using ckpt::test::LingeringSocket;
using ckpt::test::RawClient;
using ckpt::test::StalledFile;
using testing::HasSubstr;
namespace fb = ckpt::fb;

constexpr uid_t kListed = 54'321;
// Only the last close blocks, and it is a race whether the daemon's close is the last.
constexpr size_t kTries = 8;
constexpr uint64_t kSlabBytes = 64 << 10;
constexpr uint64_t kArenaBytes = 4 * kSlabBytes;

ByteView text(const char* bytes) {
  return {reinterpret_cast<const std::byte*>(bytes), std::strlen(bytes)};
}

// A server in this process, on either kind of kernel.
class Descriptors : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (GetParam() && !RightsOption().allow(probe.get(), false)) {
      GTEST_SKIP() << "this kernel cannot refuse descriptors (Linux 6.16)";
    }
    config_.data = folder_.path("store");
    config_.listen = folder_.path("ckptd.sock");
    config_.http = "127.0.0.1:0";
    config_.io = "pwritev";
    config_.io_shape = IoShape();
    config_.arena_bytes = 64 << 20;
    config_.warm_pool_bytes = 0;
    config_.allow_uids = {kListed};
    ASSERT_TRUE(validate(config_).ok());
    std::filesystem::create_directories(config_.data);
    auto disk = open_disk({.root = config_.data, .engine = config_.io});
    ASSERT_TRUE(disk.ok()) << disk.error().message;
    disk_ = std::move(disk).value();
    executor_ = make_thread_executor(1);
    const Server::Parts parts{*disk_, *executor_,
                              [this] { return open_rocksdb_store(config_.data + "/catalog"); },
                              manager_, RightsOption(GetParam())};
    auto server = Server::open(config_, parts);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    loop_ = std::thread([this] { server_->run([] {}); });
  }
  void TearDown() override {
    if (!loop_.joinable()) return;
    server_->stop();
    loop_.join();
  }

  std::string socket() const { return config_.listen; }
  std::string arena_socket() const { return config_.listen + ".arena"; }

  // The loop's answer over HTTP. Fails after 60 s: the blocked closes of these tests last longer.
  std::string get(const std::string& path) {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval bound{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->http_port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0) {
      answer.append(buffer, static_cast<size_t>(got));
    }
    EXPECT_EQ(got, 0) << "the loop stands still: " << std::strerror(errno);
    return answer;
  }
  void expect_alive() { EXPECT_THAT(get("/healthz"), HasSubstr("200 OK")); }
  // Passes the socket to the listener at `path`, and closes its own copy.
  static void pass(const std::string& path, LingeringSocket& foreign, size_t copies = 1) {
    RawClient client(path);
    const int error = client.send_with_fds(text("CKP1"), std::vector<int>(copies, foreign.fd()));
    if (error != 0) {
      EXPECT_TRUE(error == EPERM || error == EPIPE) << error;  // refused by kernel or ckptd
      return foreign.disconnect();
    }
    foreign.close_copy();
  }
  // Runs `body` as user `uid`, in a thread of its own.
  template <typename Body>
  static void as_user(uid_t uid, const Body& body) {
    std::thread([&] {
      if (::syscall(SYS_setresuid, uid, uid, uid) == 0) body();
    }).join();
  }

  const ckpt::test::TempFolder folder_;
  Config config_;
  ServiceManager manager_{{}, {}};
  std::unique_ptr<Disk> disk_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Server> server_;
  std::thread loop_;
};

struct Trainer {
  explicit Trainer(const std::string& socket) : client(std::make_unique<RawClient>(socket)) {}

  // The daemon's answer to a Hello that asks for an arena, or hands one back.
  std::optional<fb::MessageT> greet(bool readopt, const fb::Hash& ticket = {}) const {
    fb::HelloT hello;
    ckpt::wire::offer({}, hello);
    hello.kind = fb::SessionKind::Trainer;
    hello.run = "tiny";
    hello.arena_bytes = kArenaBytes;
    hello.slab_bytes = kSlabBytes;
    hello.readopt = readopt;
    hello.arena_ticket = ticket;
    client->send(std::move(hello));
    return client->next();
  }

  std::unique_ptr<RawClient> client;
};

UniqueFd new_arena() {
  return ckpt::ArenaMapping::create({kSlabBytes, kArenaBytes / kSlabBytes}).value().fd;
}

std::optional<fb::MessageT> hand_back(const std::string& path, int fd) {
  RawClient client(path);
  EXPECT_EQ(client.send_with_fds(ckpt::wire::encode(fb::HandBackT()), {fd}), 0);
  return client.next();
}

INSTANTIATE_TEST_SUITE_P(Kernel, Descriptors, testing::Bool(), [](const auto& variant) {
  return variant.param ? "CanRefuse" : "CannotRefuse";
});

TEST_P(Descriptors, LingeringSocketsDoNotStallTheLoop) {
  LingeringSocket foreign[2 * kTries];
  for (LingeringSocket& each : foreign)
    pass(&each < foreign + kTries ? socket() : arena_socket(), each);
  for (size_t i = 0; i < kTries; ++i) expect_alive();
}

TEST_P(Descriptors, ManyPassedDescriptorsDoNotStallTheLoop) {
  LingeringSocket foreign[2];
  pass(socket(), foreign[0], 12);
  pass(arena_socket(), foreign[1], 200);
  for (size_t i = 0; i < kTries; ++i) expect_alive();
}

// The refused client's bytes are never read: its descriptors go when the connection is closed.
TEST_P(Descriptors, DescriptorsOfRefusedUserAreClosedUnread) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  LingeringSocket foreign[2 * kTries];
  as_user(54'322, [&] {
    for (LingeringSocket& each : foreign) {
      pass(&each < foreign + kTries ? socket() : arena_socket(), each);
    }
  });
  for (size_t i = 0; i < kTries; ++i) expect_alive();
}

// Descriptors behind bytes that end the connection, and urgent data, which a plain receive drops.
TEST_P(Descriptors, UnreadDescriptorsBehindBrokenFrameAreClosed) {
  LingeringSocket foreign;
  RawClient client(socket());
  client.send_bytes(text("this is no frame of the protocol"));
  const bool passed = client.send_with_fds(text("x"), {foreign.fd()}) == 0;
  const bool urgent = client.send_with_fds(text("y"), {foreign.fd()}, MSG_OOB) == 0;
  passed || urgent ? foreign.close_copy() : foreign.disconnect();
  while (client.next()) {
  }
  for (int i = 0; i < 3; ++i) expect_alive();
}

TEST_P(Descriptors, UrgentDataIsReadInLine) {
  fb::HelloT hello;
  ckpt::wire::offer({}, hello);
  hello.kind = fb::SessionKind::Control;
  const auto frame = ckpt::wire::encode(std::move(hello));
  LingeringSocket foreign;
  RawClient client(socket());
  const ByteView first = ByteView(frame).first(1);
  const int error = client.send_with_fds(first, {foreign.fd()}, MSG_OOB);
  error == 0 ? foreign.close_copy() : foreign.disconnect();
  if (error == EOPNOTSUPP) GTEST_SKIP() << "this kernel has no urgent data on unix sockets";
  if (error != 0) client.send_bytes(first);
  client.send_bytes(ByteView(frame).subspan(1));
  const auto answer = client.next();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body.type, fb::MessageBody::Welcome) << "the urgent byte was dropped";
  for (int i = 0; i < 3; ++i) expect_alive();
}

// Neither fstat() nor close() of the file runs on the loop.
TEST_P(Descriptors, FileOfStalledFileSystemIsQuarantined) {
  const auto stalled = StalledFile::mount();
  if (stalled == nullptr) GTEST_SKIP() << "no FUSE here";
  UniqueFd file = stalled->open();
  ASSERT_TRUE(file.valid());
  RawClient client(arena_socket());
  ASSERT_EQ(client.send_with_fds(ckpt::wire::encode(fb::HandBackT()), {file.get()}), 0);
  file.reset();
  const auto answer = client.next();
  ASSERT_TRUE(answer && answer->body.AsErrorReply() != nullptr);
  EXPECT_THAT(answer->body.AsErrorReply()->message, HasSubstr("none of it sealed memory"));
  ASSERT_TRUE(stalled->wait_until_stalled());
  for (int i = 0; i < 3; ++i) expect_alive();
  EXPECT_THAT(get("/metrics"), HasSubstr("ckptd_quarantined_descriptors 1\n"));
}

// Other users are served meanwhile. A user with stalled closes is refused until they are done.
TEST_P(Descriptors, UserWithStalledClosesIsRefused) {
  const auto stalled = StalledFile::mount();
  if (stalled == nullptr) GTEST_SKIP() << "no FUSE here";
  const auto frame = ckpt::wire::encode(fb::HandBackT());
  for (size_t i = 0; i < limits::kQuarantineJobsPerUser; ++i) {
    const UniqueFd file = stalled->open();
    ASSERT_EQ(RawClient(arena_socket()).send_with_fds(frame, {file.get()}), 0);
  }
  const auto wait_for = [&](const auto& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      expect_alive();
    }
    return true;
  };
  const auto refused = [&] {
    RawClient client(arena_socket());
    client.send_bytes(frame);
    const auto answer = client.next();
    const auto* error = answer ? answer->body.AsErrorReply() : nullptr;
    return error != nullptr && error->message.find("still being closed") != std::string::npos;
  };
  EXPECT_TRUE(wait_for(refused));
  stalled->unblock();
  EXPECT_TRUE(wait_for([&] { return !refused(); }));
}

// Clients with stalled closes, on the allow-list or not, cost no other user its connection.
TEST_P(Descriptors, UserOverQuotaLeavesRoomForOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  LingeringSocket foreign[2][2 * limits::kQuarantineThreadsPerUser];
  const uid_t uids[2] = {kListed, 54'322};
  for (size_t i = 0; i < 2; ++i) {
    as_user(uids[i], [&] {
      for (LingeringSocket& each : foreign[i]) pass(arena_socket(), each);
      for (size_t n = 0; n < limits::kQuarantineJobsMax; ++n) {
        for (const std::string& path : {arena_socket(), socket()}) {
          const int error = RawClient(path).send_with_fds(text("CKP1"), {null.get()});
          ASSERT_TRUE(error == 0 || error == EPERM || error == EPIPE) << error;
        }
      }
    });
    const auto answer = hand_back(arena_socket(), new_arena().get());
    ASSERT_TRUE(answer && answer->body.AsHandedBack() != nullptr);
    RawClient(socket()).hello_control();
    EXPECT_THAT(get("/readyz"), HasSubstr("200 OK"));
  }
  for (auto& of_user : foreign) {
    for (LingeringSocket& each : of_user) each.disconnect();
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::string metrics;
  do {
    metrics = get("/metrics");
  } while (metrics.find("ckptd_quarantined_descriptors 0\n") == std::string::npos &&
           std::chrono::steady_clock::now() < end);
  EXPECT_THAT(metrics, HasSubstr("ckptd_quarantined_descriptors 0\n")) << "parked for ever";
}

// ---- arenas that are handed back ----

TEST_P(Descriptors, ArenaIsAdoptedByItsTicket) {
  const auto answer = hand_back(arena_socket(), new_arena().get());
  ASSERT_TRUE(answer && answer->body.AsHandedBack() != nullptr);
  const fb::Hash ticket = answer->body.AsHandedBack()->ticket;
  const auto welcome = Trainer(socket()).greet(true, ticket);
  ASSERT_TRUE(welcome && welcome->body.AsWelcome() != nullptr);
  EXPECT_TRUE(welcome->body.AsWelcome()->adopted) << welcome->body.AsWelcome()->server;
  // A ticket is good once. The trainer may hand the arena back again.
  const auto again = Trainer(socket()).greet(true, ticket);
  ASSERT_TRUE(again && again->body.AsErrorReply() != nullptr);
  EXPECT_EQ(again->body.AsErrorReply()->code, static_cast<int>(ckpt::ErrorCode::kUnavailable));
}

TEST_P(Descriptors, TicketIsValidForItsUserOnly) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  const auto answer = hand_back(arena_socket(), new_arena().get());
  ASSERT_TRUE(answer && answer->body.AsHandedBack() != nullptr);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  as_user(kListed, [&] {
    const auto refused = Trainer(socket()).greet(true, answer->body.AsHandedBack()->ticket);
    ASSERT_TRUE(refused && refused->body.AsErrorReply() != nullptr);
    EXPECT_THAT(refused->body.AsErrorReply()->message, HasSubstr("hand the arena back again"));
  });
}

TEST_P(Descriptors, RefusesAllButOneSealedMemory) {
  const UniqueFd unsealed(::memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto refusal = [&](const std::vector<int>& fds) {
    RawClient client(arena_socket());
    const auto frame = ckpt::wire::encode(fb::HandBackT());
    fds.empty() ? client.send_bytes(frame) : (void)client.send_with_fds(frame, fds);
    const auto answer = client.next();
    const auto* error = answer ? answer->body.AsErrorReply() : nullptr;
    return error != nullptr ? error->message : std::string("not refused");
  };
  EXPECT_THAT(refusal({}), HasSubstr("0 came"));
  EXPECT_THAT(refusal({unsealed.get()}), HasSubstr("none of it sealed memory"));
  const UniqueFd arena = new_arena();
  EXPECT_THAT(refusal({arena.get(), arena.get()}), HasSubstr("2 came"));
  const auto other = Trainer(arena_socket()).greet(false);
  ASSERT_TRUE(other && other->body.AsErrorReply() != nullptr);
  EXPECT_THAT(other->body.AsErrorReply()->message, HasSubstr("takes arenas back"));
}

TEST_P(Descriptors, ArenaSocketRefusesLargeMessage) {
  fb::QueryT query;
  query.verb = std::string(2 * limits::kHandBackBytesMax, 'x');
  RawClient client(arena_socket());
  client.send_bytes(
      ByteView(ckpt::wire::encode(std::move(query))).first(limits::kHandBackBytesMax + 1));
  const auto answer = client.next();
  ASSERT_TRUE(answer && answer->body.AsErrorReply() != nullptr);
  EXPECT_THAT(answer->body.AsErrorReply()->message, HasSubstr("at most 4096 bytes"));
}

// Protocol version 2 hands an arena back with Hello. If the kernel refuses, the client retries.
TEST_P(Descriptors, ArenaIsAdoptedWithHello) {
  fb::HelloT hello;
  ckpt::wire::offer({2, 2}, hello);
  hello.kind = fb::SessionKind::Trainer;
  hello.run = "tiny";
  hello.arena_bytes = kArenaBytes;
  hello.slab_bytes = kSlabBytes;
  hello.readopt = true;
  const auto frame = ckpt::wire::encode(std::move(hello));
  const UniqueFd arena = new_arena();
  std::unique_ptr<RawClient> client;
  int error = EPERM;
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (error == EPERM && std::chrono::steady_clock::now() < end) {
    client = std::make_unique<RawClient>(socket());
    error = client->send_with_fds(frame, {arena.get()});
  }
  ASSERT_EQ(error, 0);
  const auto welcome = client->next();
  ASSERT_TRUE(welcome && welcome->body.AsWelcome() != nullptr);
  EXPECT_TRUE(welcome->body.AsWelcome()->adopted) << welcome->body.AsWelcome()->server;
  EXPECT_EQ(welcome->body.AsWelcome()->protocol_version, 2u);
}

}  // namespace
}  // namespace ckptd

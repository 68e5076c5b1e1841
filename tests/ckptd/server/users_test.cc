// Who may connect to the real ckptd: by the credentials that the kernel gives, not by what is said.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/support/daemon_process.h"
#include "tests/support/raw_client.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;

// What ckptd answers to a control session of this user. Only this call's thread changes its user:
// credentials are those of the thread that connects.
std::optional<fb::MessageT> hello_as(uid_t uid, const std::string& socket) {
  std::optional<fb::MessageT> answer;
  std::thread([&] {
    if (::syscall(SYS_setresuid, uid, uid, uid) != 0) return;
    RawClient client(socket);
    fb::HelloT hello;
    hello.protocol_version = wire::kProtocolVersion;
    hello.kind = fb::SessionKind::Control;
    client.send(std::move(hello));
    answer = client.next();
  }).join();
  return answer;
}

TEST(Users, OnlyThoseOnTheListMayConnect) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  constexpr uid_t kListed = 54'321;
  constexpr uid_t kStranger = 54'322;
  const TempFolder directory;
  const std::string path = directory.path("ckptd.toml");
  std::ofstream(path) << "allow_uids = [" << kListed << "]\n";
  const DaemonProcess daemon({"--arena", "64MiB", "--config", path});
  ASSERT_EQ(::chmod(daemon.folder().path().c_str(), 0755), 0);
  for (const uid_t uid : {uid_t{0}, kListed}) {
    const auto answer = hello_as(uid, daemon.socket());
    ASSERT_TRUE(answer) << uid;
    EXPECT_EQ(answer->body.type, fb::MessageBody::Welcome) << uid;
  }
  const auto refused = hello_as(kStranger, daemon.socket());
  ASSERT_TRUE(refused);
  ASSERT_EQ(refused->body.type, fb::MessageBody::ErrorReply);
  EXPECT_EQ(refused->body.AsErrorReply()->code, static_cast<int>(ErrorCode::kPermissionDenied));
  EXPECT_THAT(refused->body.AsErrorReply()->message, HasSubstr("user 54322"));
}

}  // namespace
}  // namespace ckpt::test

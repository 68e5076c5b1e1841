// `ckptctl wait` against a daemon made of answers that stops answering.
#include <gmock/gmock.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/client/client_fixture.h"
#include "tests/client/fake_daemon.h"
#include "tests/support/daemon_process.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// Waits for tiny@99 at a daemon that answers heartbeats, and `count` questions: that there is no
// such run.
Finished wait_for_answers(int count, const std::string& timeout) {
  const TempFolder folder;
  const std::string socket = folder.path("ckptd.sock");
  std::atomic<int> left = count;
  const FakeDaemon daemon(socket, {}, [&](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    const fb::QueryT* question = message.body.AsQuery();
    if (question == nullptr) return false;
    const bool ping = question->verb == "ping";
    if (!ping && left-- <= 0) return true;
    fb::QueryReplyT reply;
    reply.request = question->request;
    reply.exit_code = ping ? 0 : 3;
    reply.json = ping ? "{}" : R"({"error": "run tiny: no such run"})";
    peer.send(std::move(reply));
    return true;
  });
  return run_program({program("ckptctl"), "wait", "tiny@99", "--timeout", timeout},
                     {"CKPTD_SOCKET=unix:" + socket});
}

TEST(WaitVerb, LaterQueriesGetRestOfTimeout) {
  const Finished wait = wait_for_answers(4, "3s");
  EXPECT_EQ(wait.exit_code, 1);
  EXPECT_THAT(wait.err, HasSubstr("waiting up to 3s for tiny@99: run tiny: no such run"));
  EXPECT_THAT(wait.err, testing::ContainsRegex(
                            "tiny@99: not durable within 3s \\(--timeout\\): show tiny@99: ckptd .*"
                            "has not answered within [0-2]\\.[0-9] s"));
}

TEST(WaitVerb, ExpiredTimeoutDoesNotBlameDaemon) {
  const Finished wait = wait_for_answers(1, "400ms");
  EXPECT_EQ(wait.exit_code, 1);
  EXPECT_THAT(wait.err,
              HasSubstr("tiny@99: not durable within 400ms (--timeout): run tiny: no such run"));
  EXPECT_THAT(wait.err, Not(HasSubstr("has not answered")));
}

TEST(WaitVerb, TimeoutWithoutDaemonNamesView) {
  const TempFolder folder;
  const std::string socket = folder.path("none");
  const Finished wait = run_program({program("ckptctl"), "wait", "tiny@99", "--timeout", "10ms"},
                                    {"CKPTD_SOCKET=unix:" + socket});
  EXPECT_EQ(wait.exit_code, 1);
  EXPECT_THAT(wait.err, testing::StartsWith(
                            "ckptctl: tiny@99: not durable within 10ms (--timeout): cannot connect "
                            "to ckptd: socket " +
                            socket + ": No such file or directory; start ckptd there"));
}

}  // namespace
}  // namespace ckpt::test

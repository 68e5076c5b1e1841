// Readers hold the commits that they read: a paused export keeps its commit from prune and rm, and
// a hold outlives the daemon that granted it.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <map>

#include "tests/client/ctl_fixture.h"
#include "tests/support/terminal.h"

namespace ckpt::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Holds : public Ctl {
 protected:
  // Waits until there are `count` holds. Returns the last answer after a timeout.
  Json await_holds(size_t count) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    Json holds;
    do {
      holds = json({"status"})["holds"];
    } while (holds.size() != count && std::chrono::steady_clock::now() < end);
    return holds;
  }
  std::map<std::string, std::string> files(const std::string& folder) const {
    std::map<std::string, std::string> contents;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      contents[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
    }
    return contents;
  }
  std::vector<std::string> export_to(const std::string& folder) const {
    return {"export", "tiny@10", "--out", folder, "--shard-bytes", "4KiB", "--include-optimizer"};
  }
};

TEST_F(Holds, APausedExportKeepsItsCommit) {
  const std::string whole = daemon_.folder().path("whole");
  const std::string paused = daemon_.folder().path("paused");
  json(export_to(whole));
  std::vector<std::string> arguments = export_to(paused);
  arguments.insert(arguments.begin(), program("ckptctl"));
  // The export stops at its first progress output: the view is held, and nothing is read yet.
  Terminal terminal(arguments, {"CKPTD_SOCKET=unix:" + daemon_.socket()},
                    Terminal::Output::kStopped);
  const Json holds = await_holds(1);
  ASSERT_EQ(holds.size(), 1u);
  EXPECT_EQ(holds[0]["step"], 10);
  EXPECT_EQ(holds[0]["process"], terminal.pid());

  const std::string holder =
      "held by ckptctl (process " + std::to_string(terminal.pid()) + ", user";
  const Finished pruned = ctl({"prune", "tiny", "--keep-last", "1", "--yes"});
  EXPECT_EQ(pruned.exit_code, 0);
  EXPECT_THAT(pruned.out, HasSubstr(holder));
  EXPECT_THAT(pruned.err, HasSubstr("tiny~1@10 is kept although no rule keeps it"));
  const Finished removed = ctl({"rm", "tiny@10", "--yes"});
  EXPECT_EQ(removed.exit_code, 1);
  EXPECT_THAT(removed.err, HasSubstr(holder));
  EXPECT_THAT(ctl({"rm", "tiny", "--yes"}).err, HasSubstr(holder));
  json({"gc"});

  terminal.resume();
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
  EXPECT_EQ(files(paused), files(whole));
  EXPECT_THAT(await_holds(0), IsEmpty());
  EXPECT_EQ(json({"prune", "tiny", "--keep-last", "1", "--yes"})["removed"][0]["step"], 10);
}

TEST_F(Holds, RenewalReacquiresHoldAfterRestart) {
  client::OpenOptions options;
  options.socket = daemon_.socket();
  options.client_name = "a reader";
  options.control = true;
  auto session = client::Session::open(options);
  ASSERT_OK(session);
  auto hold = session->hold({.run = "tiny", .step = 10});
  ASSERT_OK(hold);
  EXPECT_EQ(hold->view().step, 10u);
  daemon_.crash_and_restart();
  EXPECT_THAT(json({"status"})["holds"], IsEmpty());
  ASSERT_OK(hold->renew(60'000));
  EXPECT_EQ(json({"status"})["holds"][0]["client"], "a reader");
  EXPECT_THAT(json({"prune", "tiny", "--keep-last", "1", "--yes"})["removed"], IsEmpty());

  // The commit goes while no daemon knows of the hold.
  daemon_.crash_and_restart();
  EXPECT_EQ(json({"prune", "tiny", "--keep-last", "1", "--yes"})["removed"][0]["step"], 10);
  const auto lost = hold->renew(60'000);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().status, CKPT_E_NOT_FOUND);
  EXPECT_THAT(lost.error().message, HasSubstr("run tiny step 10: hold ended (the daemon was "
                                              "restarted) and cannot be had again"));
}

TEST_F(Holds, RootRemovesHeldCommitByForce) {
  client::OpenOptions options;
  options.socket = daemon_.socket();
  options.control = true;
  auto session = client::Session::open(options);
  ASSERT_OK(session);
  auto hold = session->hold({.run = "tiny", .step = 10});
  ASSERT_OK(hold);
  EXPECT_EQ(ctl({"rm", "tiny@10", "--yes"}).exit_code, 1);
  EXPECT_EQ(json({"rm", "tiny@10", "--yes", "--force"})["removed"][0]["step"], 10);
  const auto lost = hold->renew();
  ASSERT_FALSE(lost.ok());
  EXPECT_THAT(lost.error().message, HasSubstr("removes the commit by force"));
}

}  // namespace
}  // namespace ckpt::test

// Kill -9 of a real ckptd while it prunes and reclaims space: acknowledged deletions stay, and all
// other commits are whole.
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/client/trainers.h"

namespace ckpt::test {
namespace {

using Json = nlohmann::json;

class PruneKills : public testing::Test {
 protected:
  Finished ctl(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), program("ckptctl"));
    return run_program(arguments, {"CKPTD_SOCKET=unix:" + daemon_.socket()});
  }
  std::vector<uint64_t> log() const {
    const Finished finished = ctl({"log", "tiny", "--json"});
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    std::vector<uint64_t> steps;
    for (const Json& commit : Json::parse(finished.out, nullptr, false)) {
      steps.push_back(commit.value("step", uint64_t{0}));
    }
    return steps;
  }
  uint64_t journal_bytes() const {
    return std::filesystem::file_size(daemon_.data() + "/journal/journal.log");
  }

  DaemonProcess daemon_;
  const SmallRun run_;
};

TEST_F(PruneKills, ListedCommitsStayReadableAfterKills) {
  uint64_t step = 0;
  for (int round = 0; round < 10; ++round) {
    {
      auto session = open_trainer(daemon_, run_);
      ASSERT_OK(session);
      ASSERT_OK(session->join(as_rank(0, 1)));
      for (int i = 0; i < 3; ++i) ASSERT_OK(save(*session, run_, ++step, 0, 1));
      ASSERT_OK(session->leave());
    }
    const uint64_t before = journal_bytes();
    std::atomic<bool> over = false;
    Finished pruned;
    std::thread pruner([&] {
      pruned = ctl({"prune", "tiny", "--keep-last", "1", "--yes"});
      over = true;
    });
    // Kills while the tombstones are being written or after that, a little later each round.
    while (!over && journal_bytes() == before) std::this_thread::yield();
    for (int more = 0; more < round * 20; ++more) std::this_thread::yield();
    daemon_.kill();
    daemon_.start();  // ckptctl waits for it
    pruner.join();

    const std::vector<uint64_t> listed = log();
    ASSERT_FALSE(listed.empty());
    EXPECT_EQ(listed.front(), step);
    // Acknowledged: only the commit that the current lineage began with may stay beside the newest.
    EXPECT_TRUE(pruned.exit_code != 0 || listed.size() <= 2)
        << "round " << round << ": a deletion was taken back";
    const Finished verified = ctl({"verify"});
    EXPECT_EQ(verified.exit_code, 0) << "round " << round << ": " << verified.out;
    auto reader = open_trainer(daemon_, run_);
    ASSERT_OK(reader);
    for (const uint64_t one : listed) expect_state(*reader, run_, one);
  }
  // The last prune runs to its end, and gc leaves nothing to reclaim.
  EXPECT_EQ(ctl({"prune", "tiny", "--keep-last", "1", "--yes"}).exit_code, 0);
  EXPECT_EQ(ctl({"gc"}).exit_code, 0);
  EXPECT_EQ(ctl({"verify"}).exit_code, 0);
}

}  // namespace
}  // namespace ckpt::test

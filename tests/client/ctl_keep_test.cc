// What stays and what goes, as people say it to ckptctl: rules that are refused at once, and
// removals that somebody must confirm.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/unique_fd.h"
#include "tests/client/ctl_fixture.h"

namespace ckpt::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A program on a terminal of its own.
class Terminal {
 public:
  Terminal(const std::vector<std::string>& arguments, const std::string& socket) {
    const std::string variable = "unix:" + socket;
    int master = -1;
    pid_ = ::forkpty(&master, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      ::setenv("CKPTD_SOCKET", variable.c_str(), 1);
      std::vector<char*> argv;
      for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    master_ = base::UniqueFd(master);
  }
  // Reads until the text is there, or the program has ended. A busy machine takes its time.
  const std::string& read_until(const std::string& text) {
    while (screen_.find(text) == std::string::npos) {
      pollfd ready{master_.get(), POLLIN, 0};
      char buffer[4096];
      const ssize_t got = ::poll(&ready, 1, 60'000) == 1
                              ? ::read(master_.get(), buffer, sizeof buffer)
                              : ssize_t{0};
      if (got <= 0) break;  // EIO: nobody has the other end open any more
      screen_.append(buffer, static_cast<size_t>(got));
    }
    return screen_;
  }
  void type(const std::string& text) {
    EXPECT_EQ(::write(master_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  int wait() {
    read_until("\n\n never printed \n\n");
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  base::UniqueFd master_;
  std::string screen_;
};

TEST_F(Ctl, RmAsksOnATerminal) {
  const std::vector<std::string> rm = {program("ckptctl"), "rm", "tiny"};
  for (const char* answer : {"n\n", "\n", "yes please\n", "\x04"}) {
    Terminal terminal(rm, daemon_.socket());
    EXPECT_THAT(terminal.read_until("[y/N]"), HasSubstr("rm tiny: 2 commits with 16 KiB go"));
    terminal.type(answer);
    EXPECT_EQ(terminal.wait(), 1) << answer;
    EXPECT_THAT(terminal.read_until("nothing was removed"), HasSubstr("nothing was removed"));
  }
  EXPECT_EQ(json({"log", "tiny"}).size(), 2u);
  Terminal terminal(rm, daemon_.socket());
  terminal.read_until("[y/N]");
  terminal.type("Yes\n");
  EXPECT_EQ(terminal.wait(), 0) << terminal.read_until("");
  EXPECT_THAT(json({"runs"}), IsEmpty());
}

TEST_F(Ctl, KeepRefusesWhatPruneWouldRefuse) {
  const Json before = json({"keep", "tiny"})["rules"];
  const std::vector<std::pair<std::vector<std::string>, const char*>> slips = {
      {{"--keep-last", "3", "--keep-best", "lsos:2"}, "none of its 2 commits has the metric lsos"},
      {{"--keep-tag", "bset"}, "no commit has the tag bset"}};
  for (const auto& [rules, says] : slips) {
    for (const char* verb : {"keep", "prune"}) {
      std::vector<std::string> said = {verb, "tiny"};
      said.insert(said.end(), rules.begin(), rules.end());
      const Finished refused = ctl(said);
      EXPECT_EQ(refused.exit_code, 1) << verb;
      EXPECT_THAT(refused.err, HasSubstr(says)) << verb;
    }
  }
  EXPECT_EQ(json({"keep", "tiny"})["rules"], before);
  // Beside a rule that keeps something a tag may be yet to come: `prune` says that it is missing.
  EXPECT_EQ(ctl({"keep", "tiny", "--keep-last", "1", "--keep-tag", "best"}).exit_code, 0);
  const Finished pruned = ctl({"prune", "tiny", "--dry-run"});
  EXPECT_EQ(pruned.exit_code, 0);
  EXPECT_THAT(pruned.err, HasSubstr("note: no commit has the tag best"));
}

TEST_F(Ctl, PruneSaysWhichStepsAStepRuleCoversAndRmDryRunChangesNothing) {
  const Finished pruned = ctl({"prune", "tiny", "--dry-run", "--keep-every-steps", "20"});
  EXPECT_THAT(pruned.out, HasSubstr("every 20 steps: the first of steps 0 to 19"));
  EXPECT_THAT(pruned.out, HasSubstr("every 20 steps: the first of steps 20 to 39"));
  EXPECT_EQ(json({"rm", "tiny@10", "--dry-run"})["removed"][0]["step"], 10);
  EXPECT_EQ(json({"rm", "tiny", "-n"})["removed"].size(), 2u);
  EXPECT_THAT(ctl({"rm", "tiny@10", "-n", "--yes"}).err, Not(HasSubstr("rm")));
  EXPECT_EQ(json({"log", "tiny"}).size(), 2u);
}

}  // namespace
}  // namespace ckpt::test

// Retention by the commands of ckptctl: rules that are refused at once, and removals that need a
// confirmation.
#include <gmock/gmock.h>

#include "tests/client/ctl_fixture.h"
#include "tests/support/terminal.h"

namespace ckpt::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(Ctl, RmAsksOnATerminal) {
  const std::vector<std::string> rm = {program("ckptctl"), "rm", "tiny"};
  const std::vector<std::string> environment = {"CKPTD_SOCKET=unix:" + daemon_.socket()};
  for (const char* answer : {"n\n", "\n", "yes please\n", "\x04"}) {
    Terminal terminal(rm, environment);
    EXPECT_THAT(terminal.read_until("[y/N]"), HasSubstr("rm tiny: this removes 2 commits with 16"));
    EXPECT_THAT(terminal.screen(), HasSubstr(" and the run itself for good; continue?"));
    terminal.type(answer);
    EXPECT_EQ(terminal.wait(), 1) << answer;
    EXPECT_THAT(terminal.screen(), HasSubstr("nothing was removed"));
  }
  EXPECT_EQ(json({"log", "tiny"}).size(), 2u);
  Terminal terminal(rm, environment);
  terminal.read_until("[y/N]");
  terminal.type("Yes\n");
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
  EXPECT_THAT(json({"runs"}), IsEmpty());
}

TEST_F(Ctl, PruneAsksLikeRm) {
  const std::vector<std::string> prune = {program("ckptctl"), "prune", "tiny", "--keep-last", "1"};
  const std::vector<std::string> environment = {"CKPTD_SOCKET=unix:" + daemon_.socket()};
  Terminal refused(prune, environment);
  EXPECT_THAT(refused.read_until("[y/N]"), HasSubstr("prune tiny: this removes 1 commit with 8"));
  refused.type("n\n");
  EXPECT_EQ(refused.wait(), 1);
  const Finished nobody = ctl({"prune", "tiny", "--keep-last", "1"});
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_THAT(nobody.err, HasSubstr("no terminal to ask at: pass --yes"));
  EXPECT_EQ(json({"log", "tiny"}).size(), 2u);
  EXPECT_EQ(ctl({"prune", "tiny", "--keep-last", "1", "--yes"}).exit_code, 0);
  EXPECT_EQ(json({"log", "tiny"}).size(), 1u);
}

TEST_F(Ctl, PruneNamesRemovedTags) {
  json({"tag", "tiny@10", "best"});
  Terminal terminal({program("ckptctl"), "prune", "tiny", "--keep-last", "1"},
                    {"CKPTD_SOCKET=unix:" + daemon_.socket()});
  EXPECT_THAT(terminal.read_until("[y/N]"), HasSubstr(" and the tag best for good; continue?"));
  terminal.type("n\n");
  EXPECT_EQ(terminal.wait(), 1);
  EXPECT_THAT(ctl({"prune", "tiny", "--keep-last", "1", "--dry-run"}).out,
              HasSubstr("no rule keeps it; removes its tag best"));
}

// A script without --yes fails at its first run, not only when there is something to remove.
TEST_F(Ctl, RemovalsWithoutTerminalNeedYes) {
  for (const std::vector<std::string>& verb : {std::vector<std::string>{"prune", "tiny"},
                                               {"prune", "tiny", "--keep-last", "2"},
                                               {"rm", "tiny"},
                                               {"rm", "tiny@10"}}) {
    const Finished refused = ctl(verb);
    EXPECT_EQ(refused.exit_code, 2) << testing::PrintToString(verb);
    EXPECT_THAT(refused.err, HasSubstr(verb[0] + " " + verb[1] + ": a removal cannot be undone"));
  }
  for (const std::vector<std::string>& verb : {std::vector<std::string>{"rm", "nobody"},
                                               {"rm", "nobody@10"},
                                               {"prune", "nobody", "--keep-last", "2"}}) {
    const Finished unknown = ctl(verb);
    EXPECT_EQ(unknown.exit_code, 3) << testing::PrintToString(verb);
    EXPECT_THAT(unknown.err, HasSubstr("run nobody: no such run; `ckptctl runs` lists them"));
  }
  const Finished nothing = ctl({"prune", "tiny", "--keep-last", "2", "--yes"});
  EXPECT_EQ(nothing.exit_code, 0);
  EXPECT_THAT(nothing.out, HasSubstr("2 kept, 0 removed"));
  Terminal terminal({program("ckptctl"), "prune", "tiny", "--keep-last", "2"},
                    {"CKPTD_SOCKET=unix:" + daemon_.socket()});
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_THAT(terminal.screen(), Not(HasSubstr("[y/N]"))) << "nothing goes";
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
      if (said[0] == "prune") said.emplace_back("--yes");
      const Finished refused = ctl(said);
      EXPECT_EQ(refused.exit_code, 1) << verb;
      EXPECT_THAT(refused.err, HasSubstr(says)) << verb;
      const bool keeps = std::string_view(verb) == "keep";
      EXPECT_THAT(refused.err,
                  HasSubstr(keeps ? "; the rules stay as they were" : "; nothing is removed"));
    }
  }
  EXPECT_EQ(json({"keep", "tiny"})["rules"], before);
  // With another rule in force a tag may be set later: `prune` only notes that it is missing.
  EXPECT_EQ(ctl({"keep", "tiny", "--keep-last", "1", "--keep-tag", "best"}).exit_code, 0);
  const Finished pruned = ctl({"prune", "tiny", "--dry-run"});
  EXPECT_EQ(pruned.exit_code, 0);
  EXPECT_THAT(pruned.err, HasSubstr("note: no commit has the tag best"));
}

TEST_F(Ctl, DryRunsExplainAndChangeNothing) {
  const Finished pruned = ctl({"prune", "tiny", "--dry-run", "--keep-every-steps", "20"});
  EXPECT_THAT(pruned.out, HasSubstr("every 20 steps: the first of steps 0 to 19"));
  EXPECT_THAT(pruned.out, HasSubstr("every 20 steps: the first of steps 20 to 39"));
  const Json dry = json({"rm", "tiny@10", "--dry-run"})["removed"][0];
  EXPECT_EQ(dry["step"], 10);
  EXPECT_THAT(dry["reason"].get<std::string>(), testing::StartsWith("to be removed by user "));
  EXPECT_EQ(json({"rm", "tiny", "-n"})["removed"].size(), 2u);
  EXPECT_THAT(ctl({"rm", "tiny@10", "-n", "--yes"}).err, Not(HasSubstr("rm")));
  EXPECT_EQ(json({"log", "tiny"}).size(), 2u);
}

TEST_F(Ctl, RmDryRunRefusesAsRmDoes) {
  json({"pin", "tiny@10"});
  json({"tag", "tiny@20", "best"});
  for (const std::string target : {"tiny@10", "tiny@20", "tiny"}) {
    const Finished dry = ctl({"rm", target, "--dry-run"});
    const Finished refused = ctl({"rm", target, "--yes"});
    EXPECT_EQ(dry.exit_code, 1) << target;
    EXPECT_EQ(refused.exit_code, 1) << target;
    EXPECT_EQ(dry.err, refused.err) << target;
    EXPECT_EQ(dry.out, "") << target;
    EXPECT_THAT(dry.err, HasSubstr("--force removes it all the same")) << target;
  }
  EXPECT_EQ(json({"log", "tiny"}).size(), 2u);
}

TEST_F(Ctl, RmAndPruneNameTheSameProtectedCommits) {
  const auto protected_by = [this](const char* verb) {
    const std::string help = ctl({verb, "--help"}).out;
    const size_t begin = help.find("Protected:");
    return begin == std::string::npos ? "" : help.substr(begin, help.find("Examples:") - begin);
  };
  EXPECT_EQ(protected_by("rm"), protected_by("prune"));
  EXPECT_THAT(protected_by("prune"), HasSubstr("a pinned commit: prune keeps it, rm removes it"));
  EXPECT_THAT(protected_by("rm"), HasSubstr("a tagged commit: prune keeps it only by --keep-tag"));
}

}  // namespace
}  // namespace ckpt::test

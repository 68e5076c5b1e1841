// Command lines that go wrong, and the sentences they give: each names the program, its verb and
// the argument, and what to do next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "formats/base/cli_errors.h"
#include "tests/support/daemon_process.h"

namespace ckpt::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Builds with sanitizers have no benches.
constexpr bool kWithBench = CKPT_TEST_BENCH;

struct Case {
  std::vector<std::string> line;
  std::string begins;  // the first line of stderr
};

void expect_refused(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    std::vector<std::string> line = one.line;
    line.front() = program(line.front());
    const Finished finished = run_program(line, {"CKPTD_RUN="});
    EXPECT_EQ(finished.exit_code, 2) << one.begins;
    EXPECT_THAT(finished.err, StartsWith(one.begins));
    EXPECT_EQ(finished.out, "") << one.begins;
    EXPECT_THAT(finished.err, Not(HasSubstr("Run with --help"))) << one.begins;
  }
}

TEST(CommandLines, BadUsageNamesVerbAndArgument) {
  expect_refused({
      {{"ckptctl", "hold", "--help"}, "ckptctl: unknown command `hold`; the commands are runs"},
      {{"ckptctl"}, "ckptctl: a command is missing: one of runs, log, show"},
      {{"ckptctl", "lgo"}, "ckptctl: unknown command `lgo`; did you mean `log`?"},
      {{"ckptctl", "stat"}, "ckptctl: unknown command `stat`; did you mean `status`?"},
      {{"ckptctl", "frobnicate"}, "ckptctl: unknown command `frobnicate`; the commands are runs"},
      {{"ckptctl", "--scoket", "x", "runs"},
       "ckptctl runs: unknown flag `--scoket`; did you mean `--socket`?"},
      {{"ckptctl", "log"}, "ckptctl log: the argument `run` is missing"},
      {{"ckptctl", "unit", "tiny"}, "ckptctl unit: the argument `unit` is missing"},
      {{"ckptctl", "tag", "tiny@5"}, "ckptctl tag: the argument `tag` is missing"},
      {{"ckptctl", "diff", "tiny"}, "ckptctl diff: the argument `to` is missing"},
      {{"ckptctl", "export", "tiny"}, "ckptctl export: the argument `--out` is missing"},
      {{"ckptctl", "log", "tiny", "--limt", "3"},
       "ckptctl log: unknown flag `--limt`; did you mean `--limit`?"},
      {{"ckptctl", "log", "tiny", "more"}, "ckptctl log: one argument too many: `more`"},
      {{"ckptctl", "log", "tiny", "--limit"}, "ckptctl log: --limit needs a value"},
      {{"ckptctl", "log", "tiny", "--limit", "-1"},
       "ckptctl log: --limit: -1: must not be negative"},
      {{"ckptctl", "log", "tiny", "--limit", "0"}, "ckptctl log: --limit: 0: must be at least 1"},
      {{"ckptctl", "alarms", "tiny", "-n", "0"}, "ckptctl alarms: --limit: 0: must be at least 1"},
      {{"ckptctl", "log", ""}, "ckptctl log: run: the value is empty"},
      {{"ckptctl", "show", ""}, "ckptctl show: view: the value is empty"},
      {{"ckptctl", "verify", ""}, "ckptctl verify: target: the value is empty"},
      {{"ckptctl", "rm", "", "--yes"}, "ckptctl rm: target: the value is empty"},
      {{"ckptctl", "prune", "", "--dry-run"}, "ckptctl prune: run: the value is empty"},
      {{"ckptctl", "untag", "tiny", ""}, "ckptctl untag: tag: the value is empty"},
      {{"ckptctl", "export", "tiny", "--out", ""}, "ckptctl export: --out: the value is empty"},
      {{"ckptctl", "import", "", "--run", "x"}, "ckptctl import: folder: the value is empty"},
      {{"ckptctl", "prune", "--dry-run"}, "ckptctl prune: the argument `run` is missing"},
      {{"ckptctl", "gc", "\x1b[31mred"}, "ckptctl gc: one argument too many: `\\x1b[31mred`"},
  });
}

TEST(CommandLines, BadUsageNamesTheProgram) {
  std::vector<Case> cases = {
      {{"ckptd", "--dta", "x"}, "ckptd: unknown flag `--dta`; did you mean `--data`?"},
      {{"ckptd", "--arena"}, "ckptd: --arena needs a value"},
      {{"ckptd"}, "ckptd: no data directory: pass --data DIR"},
      {{"moetrain", "rnu", "--help"}, "moetrain: unknown command `rnu`; did you mean `run`?"},
      {{"moetrain", "rnu"}, "moetrain: unknown command `rnu`; did you mean `run`?"},
      {{"moetrain"},
       "moetrain: a command is missing: one of run, eval, plan, report, simulate, calibrate\n"},
      {{"moetrain", "run", "--socket", "tcp:1.2.3.4"},
       "moetrain: --socket tcp:1.2.3.4: ckptd serves unix sockets of its own machine alone"},
      {{"moetrain", "eval", "tiny", "--socket", "tcp:1.2.3.4"},
       "moetrain: --socket tcp:1.2.3.4: ckptd serves unix sockets of its own machine alone"},
      {{"moetrain", "run", "--report", "/tmp/r.json", "--metrics", "/tmp/./r.json"},
       "moetrain: --metrics /tmp/./r.json: --report names the same file"},
      {{"moetrain", "run", "--rank", "4"},
       "moetrain run: unknown flag `--rank`; did you mean `--ranks`?"},
      {{"moetrain", "run", "--resume", ""}, "moetrain run: --resume: the value is empty"},
      {{"moetrain", "run", "--resume="}, "moetrain run: --resume"},
      {{"moetrain", "run", "--run", ""}, "moetrain run: --run: the value is empty"},
      {{"moetrain", "run", "--data", "a.txt", "", "b.txt"},
       "moetrain run: --data: the value is empty"},
      {{"moetrain", "run", "--ranks", ""}, "moetrain run: --ranks: the value is empty"},
      {{"moetrain", "run", "--selector", ""}, "moetrain run: --selector: the value is empty"},
      {{"moetrain", "eval", "", "--socket", "x"}, "moetrain eval: target: the value is empty"},
      {{"moetrain", "report", ""}, "moetrain report: file: the value is empty"},
  };
  if (kWithBench) {
    cases.push_back(
        {{"ckptbench", "svae"}, "ckptbench: unknown command `svae`; did you mean `save`?"});
  }
  expect_refused(cases);
}

TEST(CommandLines, PruneTakesNoRunFromTheEnvironment) {
  const Finished finished =
      run_program({program("ckptctl"), "prune", "--dry-run"}, {"CKPTD_RUN=tiny"});
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(finished.err, StartsWith("ckptctl prune: the argument `run` is missing"));
}

TEST(CommandLines, RepeatedFlagErrorIsOneSentence) {
  const Finished twice =
      run_program({program("moetrain"), "run", "--data-dir", "a", "--data-dir", "b"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_EQ(twice.err,
            "moetrain run: --data-dir is given twice\n`moetrain run --help` tells more\n");
  const Finished thrice =
      run_program({program("ckptctl"), "log", "-n", "1", "-n", "2", "--limit", "3"});
  EXPECT_THAT(thrice.err, StartsWith("ckptctl log: --limit is given 3 times\n"));
}

TEST(CommandLines, WrongFlagOrValueErrorIsOneSentence) {
  const std::vector<std::vector<std::string>> lines = {
      {"moetrain", "run", "--ranks", "-1"},
      {"moetrain", "run", "--lr", "fast"},
      {"moetrain", "run", "--precision", "fp8"},
      {"moetrain", "run", "--rank", "4"},
      {"moetrain", "run", "--steps"},
      {"ckptctl", "log", "tiny", "--limit", "many"},
      {"ckptctl", "export", "tiny", "--ot", "folder"},
  };
  for (std::vector<std::string> line : lines) {
    const std::string verb = line[0] + " " + line[1];
    line.front() = program(line.front());
    const Finished finished = run_program(line, {"CKPTD_RUN="});
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_THAT(finished.err, StartsWith(verb + ": "));
    EXPECT_THAT(finished.err, EndsWith("\n`" + verb + " --help` tells more\n"));
    EXPECT_EQ(std::ranges::count(finished.err, '\n'), 2) << finished.err;
  }
}

TEST(CommandLines, AMissingOrSurplusArgumentShowsExamples) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"log"}, {"log", "tiny", "more"}}) {
    std::vector<std::string> line = {program("ckptctl")};
    line.insert(line.end(), arguments.begin(), arguments.end());
    const Finished finished = run_program(line, {"CKPTD_RUN="});
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr("\nExamples:\n  ckptctl log "));
  }
}

TEST(CommandLines, MissingArgumentShowsNoOtherHelp) {
  EXPECT_EQ(run_program({program("moetrain"), "report"}).err,
            "moetrain report: the argument `file` is missing\n"
            "Examples:\n"
            "  moetrain report a.json --svg loss.svg\n"
            "  moetrain report a.json --move 200 --placement-svg moved.svg\n"
            "`moetrain report --help` tells more\n");
  EXPECT_EQ(run_program({program("moetrain"), "rank"}).err,
            "moetrain rank: the argument `--options` is missing\n"
            "`moetrain rank --help` tells more\n");
}

TEST(CommandLines, EveryCommandPrintsVersion) {
  std::vector<std::vector<std::string>> lines = {
      {"ckptctl", "log"}, {"moetrain", "run"}, {"moetrain", "eval"}, {"moetrain", "report"}};
  if (kWithBench) lines.push_back({"ckptbench", "save"});
  for (std::vector<std::string> line : lines) {
    line.front() = program(line.front());
    const Finished of_program = run_program({line.front(), "--version"});
    line.emplace_back("--version");
    const Finished of_command = run_program(line);
    EXPECT_EQ(of_command.exit_code, 0) << line[1] << ": " << of_command.err;
    EXPECT_EQ(of_command.out, of_program.out) << line[1];
  }
}

TEST(CommandLines, SuggestsOnlyFlagsThatTheCommandTakes) {
  CLI::App app("Trains.", "trainer");
  app.add_flag("--verbose");
  CLI::App* run = app.add_subcommand("run");
  // CLI11 takes the arguments from the back.
  const std::vector<std::string> line = {"--verbos", "run"};
  const auto sentence = [&] {
    try {
      app.parse(std::vector<std::string>(line));
    } catch (const CLI::ParseError& error) {
      return base::cli_errors::sentence(app, *base::cli_errors::chosen_verb(&app), error);
    }
    return std::string("no error");
  };
  EXPECT_EQ(sentence(), "unknown flag `--verbos`");
  run->fallthrough();
  EXPECT_EQ(sentence(), "unknown flag `--verbos`; did you mean `--verbose`?");
}

TEST(CommandLines, HelpIsNoError) {
  for (const std::string& name :
       std::vector<std::string>{"ckptctl", "ckptd", "moetrain", "ckptbench"}) {
    if (name == "ckptbench" && !kWithBench) continue;
    const Finished help = run_program({program(name), "--help"});
    EXPECT_EQ(help.exit_code, 0) << name;
    EXPECT_THAT(help.out, HasSubstr("--help")) << name;
    EXPECT_EQ(help.err, "") << name;
  }
}

TEST(CommandLines, MissingDaemonErrorSaysHowToStart) {
  const TempFolder folder;
  const auto runs = [](const std::string& socket) {
    return run_program({program("ckptctl"), "--socket", "unix:" + socket, "runs"});
  };
  const Finished none = runs(folder.path("none.sock"));
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(none.err, "ckptctl: cannot connect to ckptd: socket " + folder.path("none.sock") +
                          ": No such file or directory; start ckptd there (ckptd --data DIR "
                          "--listen unix:" +
                          folder.path("none.sock") +
                          "), or name the socket of one that runs (--socket or CKPTD_SOCKET)\n");
  EXPECT_THAT(run_program({program("ckptctl"), "--socket", "tcp:1.2.3.4", "runs"}).err,
              HasSubstr("ckptd serves unix sockets of its own machine alone"));
  std::ofstream(folder.path("plain")) << "text";
  const Finished plain = runs(folder.path("plain"));
  EXPECT_EQ(plain.exit_code, 2);
  EXPECT_THAT(plain.err, HasSubstr("it is not a socket: name the one that ckptd listens on "
                                   "(--socket or CKPTD_SOCKET)"));
  const Finished unset = run_program({program("ckptctl"), "runs"}, {"CKPTD_SOCKET="});
  EXPECT_EQ(unset.exit_code, 2);
  EXPECT_THAT(unset.err, HasSubstr("no socket given: pass --socket unix:PATH or set CKPTD_SOCKET"));
}

TEST(CommandLines, ConflictWithSocketNamesItsSource) {
  const std::vector<std::string> run = {program("moetrain"), "run", "--data-dir", "store"};
  const Finished by_variable = run_program(run, {"CKPTD_SOCKET=unix:/none.sock"});
  EXPECT_NE(by_variable.exit_code, 0);
  EXPECT_THAT(by_variable.err, HasSubstr("CKPTD_SOCKET=unix:/none.sock in the environment"));
  std::vector<std::string> flagged = run;
  flagged.insert(flagged.end(), {"--socket", "unix:/none.sock"});
  const Finished by_flag = run_program(flagged, {"CKPTD_SOCKET="});
  EXPECT_NE(by_flag.exit_code, 0);
  EXPECT_THAT(by_flag.err, HasSubstr("not with --socket unix:/none.sock"));
}

TEST(NearestName, SuggestsSimilarName) {
  const std::vector<std::string> names = {"log", "show", "status", "prune", "--limit"};
  EXPECT_EQ(base::nearest_name("lgo", names), "log") << "two neighbours exchanged";
  EXPECT_EQ(base::nearest_name("prun", names), "prune");
  EXPECT_EQ(base::nearest_name("--limits", names), "--limit");
  EXPECT_EQ(base::nearest_name("stat", names), "status") << "its beginning";
  EXPECT_EQ(base::nearest_name("x", names), "");
  EXPECT_EQ(base::nearest_name("", names), "");
  EXPECT_EQ(base::nearest_name(std::string(1 << 20, 'l'), names), "") << "no slip of the pen";
}

}  // namespace
}  // namespace ckpt::test

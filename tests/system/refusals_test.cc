// Requests that `moetrain run` refuses, and the messages of the refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "formats/base/unique_fd.h"
#include "formats/base/unix_address.h"
#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class RefusalTest : public TrainingTest {};

struct Refusal {
  const char* name;
  std::vector<std::string> flags;
  int code;
  const char* says;
};

TEST_F(RefusalTest, RefusesBadInputInOneSentence) {
  const std::string empty = folder_ / "empty.txt";
  std::ofstream(empty).close();
  const std::string short_text = folder_ / "short.txt";
  std::ofstream(short_text) << "too short";
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const Refusal refusals[] = {
      {"missing data", {"--data", folder_ / "none.txt"}, 2, "none.txt"},
      {"empty data", {"--data", empty}, 2, "empty.txt: the file is empty"},
      {"short data", {"--data", short_text}, 2, "short.txt: 9 bytes are too few"},
      {"more ranks than sequences", {"--ranks", "5"}, 2, "more ranks than the 4 sequences"},
      {"more ranks than experts", {"--ranks", "5", "--batch", "8"}, 2, "5 ranks for 4 experts"},
      {"no such preset", {"--preset", "huge"}, 2, "tiny, small"},
      {"kill of nobody", {"--ranks", "2", "--kill", "2@3"}, 2, "ranks 0 to 1"},
      {"kill of nothing", {"--kill", "x"}, 2, "RANK@STEP"},
      {"a hasty watch of ckptd", {"--daemon-timeout-ms", "999"}, 2, "at least 1000, or 0"},
      {"a hasty heartbeat", {"--heartbeat-timeout-ms", "999"}, 2, "at least 1000, or 0"},
      {"re-planning what never moves", {"--replan-every", "5"}, 2, "static never moves"},
      {"re-planning on a GPU if it pays",
       {"--replan-every", "5", "--placement", "eplb", "--device", "cuda"},
       2,
       "with --device cuda only --replan-if better"},
      {"re-planning at will", {"--replan-if", "bored"}, 2, "--replan-if"},
      {"resume from nonsense", {"--resume", "so on"}, 2, "--resume so on"},
      {"unknown run", {"--resume", "latest"}, 3, "tiny"},
      {"other data for a new run", {"--new-data"}, 2, "--new-data: only with --resume"},
      {"no such flag", {"--stpes", "3"}, 2, "--stpes"},
      {"run name", {"--run", "a/b"}, 2, "--run 'a/b'"},
      {"no ranks", {"--ranks", "0", "--resume", "latest"}, 2, "--ranks 0"},
      {"a resume of too large a shape", {"--layers", "100000", "--resume", "latest"}, 3, "tiny"},
      {"too large a shape", {"--layers", "100000"}, 2, "layers is 100000"},
      {"steps below zero", {"--steps", "-1"}, 2, "-1: must not be negative"},
      {"steps without end", {"--steps", "99999999999999999999"}, 2, "9: not a whole number"},
      {"checkpoints below zero", {"--checkpoint-every", "-1"}, 2, "'auto' or a number of steps"},
      {"checkpoints at will", {"--checkpoint-every", "often"}, 2, "'auto' or a number of steps"},
      {"a seed below zero", {"--seed", "-1"}, 2, "must not be negative"},
      {"kill after the end", {"--steps", "3", "--kill", "1@50", "--ranks", "2"}, 2, "steps 1 to 3"},
      {"daemon killed after the end", {"--steps", "3", "--kill-daemon", "4"}, 2, "--kill-daemon 4"},
      {"data from a pipe", {"--data", fifo}, 2, "fifo: not a regular file"},
      {"domains from a pipe", {"--domains", fifo}, 2, "fifo: not a regular file; - reads"},
  };
  for (const Refusal& refusal : refusals) {
    std::vector<std::string> flags = refusal.flags;
    // A repeated --data would be a second file, so the default one is removed.
    std::vector<std::string> all = arguments("r.json", {});
    if (flags[0] == "--data") all.erase(all.begin() + 3, all.begin() + 5);
    if (flags[0] == "--run") all.erase(all.begin() + 1, all.begin() + 3);
    if (flags.size() > 2 && flags[2] == "--batch") {
      const auto batch = std::find(all.begin(), all.end(), "--batch");
      all.erase(batch, batch + 2);
    }
    all.insert(all.end(), flags.begin(), flags.end());
    const Ended ended = run("moetrain", all);
    EXPECT_EQ(ended.code(), refusal.code) << refusal.name << ": " << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(refusal.says)) << refusal.name;
  }
}

TEST_F(RefusalTest, RefusesUnwritableReportBeforeTraining) {
  for (const auto& [path, reason] :
       {std::pair("/nowhere/r.json", "/nowhere/r.json: cannot create it in /nowhere: No such file"),
        std::pair("/", "/: is a folder")}) {
    std::vector<std::string> all = arguments("r.json", {});
    *std::next(std::find(all.begin(), all.end(), "--report")) = path;
    const Ended ended = run("moetrain", all);
    EXPECT_EQ(ended.code(), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(std::string("--report ") + reason));
    EXPECT_EQ(ended.err.find("step 1/"), std::string::npos) << ended.err;
  }
}

TEST_F(RefusalTest, NamesFlagOfUnwritableFile) {
  for (const char* flag : {"--metrics", "--events"}) {
    const Ended none = run("moetrain", arguments("r.json", {flag, "/nowhere/x.json"}));
    EXPECT_EQ(none.code(), 1) << none.err;
    EXPECT_THAT(none.err,
                HasSubstr(flag + std::string(" /nowhere/x.json: cannot create it in /nowhere: ")));
    const Ended same = run("moetrain", arguments("r.json", {flag, folder_ / "r.json"}));
    EXPECT_EQ(same.code(), 2) << same.err;
    EXPECT_THAT(same.err, HasSubstr("--report names the same file"));
  }
}

// A process that listens on the socket and never answers.
TEST_F(RefusalTest, EvalReportsWaitForCkptd) {
  const std::string path = folder_ / "hung";
  const auto address = ckpt::base::UnixAddress::of(path);
  ASSERT_TRUE(address.ok());
  const ckpt::base::UniqueFd server(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(server.get(), address->get(), address->size()), 0);
  ASSERT_EQ(::listen(server.get(), 8), 0);
  Program eval("moetrain", {"eval", "tiny", "--socket", "unix:" + path, "--data", data_});
  EXPECT_TRUE(eval.await_error_output("waiting for ckptd at unix:" + path + " (up to 30 s)"));
  const std::string none = folder_ / "none";
  Program absent("moetrain", {"eval", "tiny", "--socket", "unix:" + none, "--data", data_});
  EXPECT_TRUE(absent.await_error_output("waiting for ckptd at unix:" + none + " (up to 30 s): "));
  EXPECT_TRUE(absent.await_error_output(": No such file or directory; start ckptd there"));
}

TEST_F(RefusalTest, EvalOfUnknownRunNamesListOfRuns) {
  const Ckptd daemon(folder_ / "store");
  const Ended ended =
      run("moetrain", {"eval", "none", "--socket", "unix:" + daemon.socket(), "--data", data_});
  EXPECT_EQ(ended.code(), 3) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("moetrain: run none: no such run; `ckptctl runs` lists them\n"));
}

TEST_F(RefusalTest, RefusesImpossibleMembershipChanges) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> refusals = {
      {{"--on-loss", "restart", "--join", "1@5"},
       "--join 1@5: only with --on-loss continue, here it is restart (as asked for)"},
      {{"--on-loss", "restart", "--leave", "1@5"}, "--leave 1@5: only with --on-loss continue"},
      {{"--on-loss", "restart", "--kill-in", "1@plan"}, "here it is restart (as asked for)"},
      {{"--leave", "1"}, "must be RANK@STEP"},
      {{"--join", "0@5"}, "COUNT@STEP"},
      {{"--kill-in", "1@lunch"}, "settle"},
      {{"--kill-in", "4@move", "--join", "2@3"}, "--kill-in 4@move: there are only ranks 0 to 3"},
      {{"--join", "1@10"}, "--join 1@10: the run does steps 1 to 9"},
      {{"--join", "1@9"}, "--join 1@9: the run ends with this step: nothing follows"},
      {{"--leave", "0@9"}, "--leave 0@9: the run ends with this step: nothing follows"},
      {{"--leave", "99@5"}, "--leave 99@5: there are only ranks 0 to 1"},
      {{"--leave", "2@3", "--join", "1@3"}, "--leave 2@3: there are only ranks 0 to 1 by then"},
      {{"--kill", "2@3", "--join", "1@3"}, "--kill 2@3: there are only ranks 0 to 1 by then"},
      {{"--kill", "3@9", "--join", "1@3"}, "--kill 3@9: there are only ranks 0 to 2"},
      {{"--kill", "1@5", "--kill", "1@2"},
       "--kill 1@5: rank 1 is gone by then (--kill 1@2); --on-loss restart brings it back"},
      {{"--leave", "1@2", "--kill", "1@2"}, "--leave 1@2: rank 1 is gone by then (--kill 1@2)"},
      {{"--loss-grace-ms", "0"}, "--loss-grace-ms 0: must be 1 to 120000"},
      {{"--loss-grace-ms", "120001"}, "--loss-grace-ms 120001: must be 1 to 120000"},
  };
  for (const auto& [flags, says] : refusals) {
    std::vector<std::string> all = arguments("r.json", {"--ranks", "2", "--steps", "9"});
    all.insert(all.end(), flags.begin(), flags.end());
    const Ended ended = run("moetrain", all);
    EXPECT_EQ(ended.code(), 2) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(says));
  }
}

TEST_F(RefusalTest, RefusesResumeWithOtherSettings) {
  const std::string store = folder_ / "store";
  train("first.json", {"--ranks", "2", "--steps", "4", "--seed", "7", "--data-dir", store});
  EXPECT_THAT(last_error_output_, HasSubstr("moetrain: created " + store + "\n"));
  const auto refused = [&](std::vector<std::string> more) {
    std::vector<std::string> all =
        arguments("r.json", {"--ranks", "2", "--steps", "6", "--data-dir", store});
    all.insert(all.end(), more.begin(), more.end());
    return run("moetrain", all);
  };
  const Ended other_seed = refused({"--resume", "latest", "--seed", "8"});
  EXPECT_EQ(other_seed.code(), 2) << other_seed.err;
  EXPECT_EQ(other_seed.err.find("moetrain: created "), std::string::npos) << other_seed.err;
  EXPECT_THAT(other_seed.err, HasSubstr("--seed 8: run tiny step 4 was trained with --seed 7"));
  const Ended no_such_step = refused({"--resume", "3"});
  EXPECT_EQ(no_such_step.code(), 3) << no_such_step.err;
  const Ended fresh = refused({"--seed", "7"});
  EXPECT_NE(fresh.code(), 0) << "the run exists already";
  EXPECT_THAT(fresh.err, HasSubstr("run tiny exists already; --resume latest continues that run"));
  const Ended other_shape = refused({"--seed", "7", "--layers", "3"});
  EXPECT_EQ(other_shape.code(), 2) << other_shape.err;
  EXPECT_THAT(other_shape.err, HasSubstr("run tiny exists already"));
  EXPECT_THAT(other_shape.err, HasSubstr("--resume latest"));
  const Ended resized = refused({"--resume", "latest", "--layers", "1000", "--seed", "7"});
  EXPECT_EQ(resized.code(), 2) << resized.err;
  EXPECT_THAT(resized.err, HasSubstr("--layers 1000: run tiny step 4 was trained with --layers 2"));
  const Ended late_kill = refused({"--resume", "latest", "--kill", "1@4"});
  EXPECT_EQ(late_kill.code(), 2) << late_kill.err;
  EXPECT_THAT(late_kill.err, HasSubstr("the run does steps 5 to 6"));
}

TEST_F(RefusalTest, RefusesTargetStepBeforeCurrentStep) {
  const std::string store = folder_ / "store";
  train("first.json", {"--ranks", "2", "--steps", "4", "--data-dir", store});
  const Ended behind =
      run("moetrain", arguments("r.json", {"--ranks", "2", "--steps", "3", "--resume", "latest",
                                           "--data-dir", store}));
  EXPECT_EQ(behind.code(), 2) << behind.err;
  EXPECT_THAT(behind.err, HasSubstr("run tiny is already at step 4"));
  // A run that is exactly at the last step is complete: a script may resume it again.
  const json done = train(
      "again.json", {"--ranks", "2", "--steps", "4", "--resume", "latest", "--data-dir", store});
  EXPECT_TRUE(done.at("losses").empty());
  EXPECT_TRUE(done.at("final_loss").is_null());
}

TEST_F(RefusalTest, ResumeTakesModelFlagsFromRun) {
  const std::string store = folder_ / "store";
  // Long enough for sequences of 16 tokens, too short for the default.
  std::ofstream(data_, std::ios::binary | std::ios::trunc) << std::string(400, 'x');
  train("first.json", {"--ranks", "2", "--steps", "2", "--data-dir", store});
  const Ended resumed =
      run("moetrain", {"run", "--run", "tiny", "--data", data_, "--ranks", "2", "--steps", "3",
                       "--resume", "latest", "--data-dir", store});
  EXPECT_EQ(resumed.code(), 0) << resumed.err;
}

TEST_F(RefusalTest, DaemonReportsDataDirectoryInUse) {
  const std::string store = folder_ / "store";
  train("first.json", {"--ranks", "2", "--steps", "2", "--data-dir", store});
  const Ckptd other(store);
  ASSERT_EQ(other.ctl({"runs"}).code(), 0);
  for (const char* resume : {"latest", "2"}) {
    const Ended ended = run(
        "moetrain", arguments("r.json", {"--ranks", "2", "--resume", resume, "--data-dir", store}));
    EXPECT_EQ(ended.code(), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("ckptd does not start"));
    EXPECT_THAT(ended.err, HasSubstr(store));
    EXPECT_THAT(ended.err, testing::Not(HasSubstr("cannot connect")));
  }
}

}  // namespace
}  // namespace systemtest

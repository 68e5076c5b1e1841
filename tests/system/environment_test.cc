// Programs in the environments of cron, service managers, batch systems and full disks: closed or
// full standard streams, limits, paths that are not UTF-8.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <map>
#include <string>

#include "tests/system/training.h"

namespace systemtest {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr int kFailed = 1;
// Lowest exit code by which a shell reports a program killed by a signal or not started.
constexpr int kEndedBySignal = 126;

class EnvironmentTest : public TrainingTest {
 protected:
  // Trains a run "tiny" with three commits, on its own daemon.
  void save_tiny() {
    daemon_.emplace(store_);
    ASSERT_TRUE(daemon_->await_ready());
    const Ended trained = in_shell(train_tiny("--run tiny --report " + report_));
    ASSERT_EQ(trained.code(), 0) << trained.err;
  }

  // Runs a shell script: $B is the folder of the programs, CKPTD_SOCKET the daemon's socket.
  Ended in_shell(const std::string& script) const {
    const std::string socket = daemon_ ? daemon_->socket() : "/nowhere/s";
    return shell("ulimit -c 0; cd " + folder_.path().string() + "; export CKPTD_SOCKET=" + socket +
                 "; " + script);
  }

  // A fast run: one rank, a model of some KiB.
  std::string train_tiny(const std::string& flags) const {
    return "$B/moetrain run --ranks 1 --steps 6 --checkpoint-every 2 --data " + data_ +
           " --hidden 16 --heads 2 --kv-heads 1 --head-dim 8 --intermediate 24 --experts 4 "
           "--seq 16 --batch 4 " +
           flags;
  }

  const std::string store_ = folder_ / "store";
  const std::string report_ = folder_ / "report.json";
  std::optional<Ckptd> daemon_;
};

struct Command {
  const char* line;
  int code;             // expected exit code with working streams
  bool varies = false;  // the output contains times or states that change
};

// Verbs that print tables, documents, help, warnings and errors.
constexpr Command kCommands[] = {
    {"$B/ckptctl --version", 0},
    {"$B/ckptctl --help", 0},
    {"$B/ckptctl", 2},
    {"$B/ckptctl bogus", 2},
    {"$B/ckptctl runs", 0},
    {"$B/ckptctl runs --json", 0},
    {"$B/ckptctl log tiny", 0},
    {"$B/ckptctl show tiny@6", 0},
    {"$B/ckptctl show tiny@99", 3},
    {"$B/ckptctl unit tiny layers.0.experts.0.weights", 0},
    {"$B/ckptctl experts tiny", 0},
    {"$B/ckptctl diff tiny@4 tiny@6", 0},
    {"$B/ckptctl verify", 0},
    {"$B/ckptctl status", 0, true},
    {"$B/ckptctl wait tiny@6", 0},
    {"$B/ckptctl export tiny@6 --out exported", 0},
    {"$B/ckptctl --socket /nowhere/s runs", 1},
    {"$B/moetrain --version", 0},
    {"$B/moetrain run --help", 0},
    {"$B/moetrain plan --ranks 4 --slots 2 --loads 5,1,1,1 --json", 0, true},
    {"$B/moetrain plan --ranks 4 --slots 2 --loads 5,1,1,1", 0, true},
    {"$B/moetrain report report.json", 0},
    {"$B/moetrain report nothing.json", 3},
    {"$B/moetrain eval tiny@6 --data text.txt --sequences 2 --json", 0},
    {"$B/moetrain run --ranks 0", 2},
    {"$B/ckptd --version", 0},
    {"$B/ckptd --data store --check-config", 0},
    {"$B/ckptd --data store", 1},
    {"$B/ckptd --bogus", 2},
};

TEST_F(EnvironmentTest, ClosedAndFullStreamsLoseOnlyOutput) {
  save_tiny();
  const char* const streams[] = {">&-",          "2>&-",       "<&- 2>&-",
                                 "<&- >&- 2>&-", ">/dev/full", "2>/dev/full"};
  for (const Command& command : kCommands) {
    const Ended open = in_shell(command.line);
    EXPECT_EQ(open.code(), command.code) << command.line << ": " << open.err;
    for (const std::string stream : streams) {
      const std::string command_line = std::string(command.line) + " " + stream;
      const Ended ended = in_shell(command_line);
      const bool output_lost = !open.out.empty() && (" " + stream).find(" >") != std::string::npos;
      EXPECT_EQ(ended.code(), output_lost && command.code == 0 ? kFailed : command.code)
          << command_line << ": " << ended.err;
      const bool stderr_open = output_lost && stream.find("2>") == std::string::npos;
      if (stderr_open) {
        const char* why = stream == ">/dev/full" ? "No space left on device" : "";
        EXPECT_THAT(ended.err, AllOf(HasSubstr("cannot write to stdout: "), HasSubstr(why),
                                     Not(HasSubstr("earlier write failed"))))
            << command_line;
      }
    }
  }
}

TEST_F(EnvironmentTest, LostOutputOfAChangeIsToldApart) {
  save_tiny();
  const Ended removed = in_shell("$B/ckptctl rm tiny@2 --yes --force >/dev/full");
  EXPECT_EQ(removed.code(), kFailed);
  EXPECT_THAT(removed.err, HasSubstr("rm: the command itself has succeeded, only its output"));
  EXPECT_EQ(in_shell("$B/ckptctl show tiny@2").code(), 3) << "it is removed";
  const Ended refused = in_shell("$B/ckptctl rm tiny@2 --yes >/dev/full");
  EXPECT_EQ(refused.code(), 3);
  EXPECT_THAT(refused.err, Not(HasSubstr("has succeeded")));
  const Ended shown = in_shell("$B/ckptctl show tiny@4 >/dev/full");
  EXPECT_EQ(shown.code(), kFailed);
  EXPECT_THAT(shown.err, Not(HasSubstr("has succeeded")));
}

// `ckptctl log | head` is common: a closed pipe causes no message.
TEST_F(EnvironmentTest, ClosedPipeCausesNoMessage) {
  save_tiny();
  for (const std::string command : {"$B/ckptctl log tiny", "$B/ckptctl runs --json"}) {
    // The reader exits before the first write.
    const Ended ended = in_shell("{ sleep 0.3; " + command + "; echo code $? >&2; } | true");
    EXPECT_EQ(ended.err, "code 1\n") << command;
  }
}

TEST_F(EnvironmentTest, TrainsWithAllStreamsClosed) {
  save_tiny();
  const Ended ended = in_shell(train_tiny("--run closed <&- >&- 2>&-"));
  EXPECT_EQ(ended.code(), 0);
  EXPECT_EQ(daemon_->ctl({"log", "closed"}).json().size(), 3u);
  const Ended full = in_shell(train_tiny("--run full >/dev/full 2>/dev/full"));
  EXPECT_EQ(full.code(), 0);
  EXPECT_EQ(daemon_->ctl({"log", "full"}).json().size(), 3u);
}

TEST_F(EnvironmentTest, DaemonRefusesDirectoryWithForeignFiles) {
  const Ended ended = in_shell("mkdir model; touch model/model.safetensors; $B/ckptd --data model");
  EXPECT_EQ(ended.code(), kFailed);
  EXPECT_THAT(ended.err, HasSubstr("data directory model: it holds model.safetensors and no store; "
                                   "name an empty or a new directory with --data"));
  EXPECT_EQ(in_shell("ls model").out, "model.safetensors\n");
}

// Regression: with stderr closed, ckptd logged into the next file that it opened.
TEST_F(EnvironmentTest, DaemonMapsClosedStreamsToDevNull) {
  const std::string socket = folder_ / "s";
  const Ended ended = in_shell("$B/ckptd --data store --listen unix:" + socket +
                               " --arena 64MiB --warm-pool 0 <&- >&- 2>&- & P=$!\n"
                               "$B/ckptctl --socket " +
                               socket +
                               " wait none@1 --timeout 1s\n"
                               "for i in 0 1 2; do readlink /proc/$P/fd/$i; done\n"
                               "$B/ckptctl --socket " +
                               socket +
                               " runs >&2\n"
                               "kill $P; wait $P; echo exit $?; cat store/lock");
  EXPECT_THAT(ended.out, HasSubstr("/dev/null\n/dev/null\n/dev/null\nexit 0\n")) << ended.err;
  EXPECT_THAT(ended.out, Not(HasSubstr("started"))) << "log lines are in the store's lock";
}

// Regression: with 36 descriptors ckptd served, and no connection ever got an answer.
TEST_F(EnvironmentTest, DaemonRefusesTooFewOpenFiles) {
  for (const int descriptors : {12, 24, 36, 47}) {
    const std::string limit = "unset CKPTD_SOCKET; ulimit -n " + std::to_string(descriptors) + "; ";
    const auto told = HasSubstr(std::to_string(descriptors) +
                                " files may be open here (ulimit -n), and ckptd needs at least 48");
    const Ended daemon = in_shell(limit + "exec $B/ckptd --data few");
    EXPECT_EQ(daemon.code(), kFailed);
    EXPECT_THAT(daemon.err, told);
    const Ended trained = in_shell(limit + train_tiny("--run few"));
    EXPECT_EQ(trained.code(), kFailed);
    EXPECT_THAT(trained.err, told);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "few"));
}

TEST_F(EnvironmentTest, ReportsFileSizeLimit) {
  const Ended daemon =
      in_shell("ulimit -f 200000; exec $B/ckptd --data store --listen unix:" + (folder_ / "s"));
  EXPECT_EQ(daemon.code(), kFailed) << daemon.err;
  EXPECT_THAT(daemon.err, HasSubstr("ulimit -f")) << daemon.err;
  EXPECT_THAT(daemon.err, HasSubstr("raise the limit"));

  const Ended trainer = in_shell("unset CKPTD_SOCKET; ulimit -f 8; " + train_tiny("--run small"));
  EXPECT_EQ(trainer.code(), kFailed) << trainer.err;
  EXPECT_THAT(trainer.err, HasSubstr("ulimit -f"));
}

TEST_F(EnvironmentTest, ReportsAddressSpaceLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs terabytes of address space";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  GTEST_SKIP() << "a sanitizer needs terabytes of address space";
#endif
#endif
  for (const char* const limit : {"150000", "300000"}) {
    const std::string limited = std::string("ulimit -v ") + limit + "; ";
    const Ended trainer = in_shell("unset CKPTD_SOCKET; " + limited + train_tiny("--run small"));
    EXPECT_EQ(trainer.code(), kFailed) << trainer.err;
    EXPECT_THAT(trainer.err, HasSubstr("ulimit -v"));
    const Ended daemon =
        in_shell(limited + "exec $B/ckptd --data store --listen unix:" + (folder_ / "s"));
    EXPECT_EQ(daemon.code(), kFailed) << daemon.err;
    EXPECT_THAT(daemon.err, HasSubstr("ulimit -v"));
  }
}

// The daemon creates the trainer's shared memory, under the daemon's limit.
TEST_F(EnvironmentTest, FileSizeLimitStopsNoTrainer) {
  save_tiny();
  const Ended trainer = in_shell("ulimit -f 8; " + train_tiny("--run limited"));
  EXPECT_EQ(trainer.code(), 0) << trainer.err;
  EXPECT_EQ(daemon_->ctl({"log", "limited"}).json().size(), 3u);
  const Ended exported = in_shell("ulimit -f 1; $B/ckptctl export tiny@6 --out x");
  EXPECT_EQ(exported.code(), kFailed) << exported.err;
  EXPECT_THAT(exported.err, ContainsRegex("too large|ulimit -f"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x")) << "an empty folder";
}

TEST_F(EnvironmentTest, TrainingReportsFullOutputFile) {
  save_tiny();
  for (const std::string flag : {"--metrics", "--events", "--report"}) {
    const Ended ended =
        in_shell(train_tiny("--run r" + flag.substr(2) + " " + flag + " /dev/full"));
    EXPECT_EQ(ended.code(), kFailed) << flag;
    EXPECT_THAT(ended.err, ContainsRegex("/dev/full.*No space left on device")) << flag;
    EXPECT_EQ(daemon_->ctl({"log", "r" + flag.substr(2)}).json().size(), 3u) << flag;
  }
}

TEST_F(EnvironmentTest, HandlesNonUtf8Names) {
  save_tiny();
  const Ended exported = in_shell(
      "D=$(printf 'd\\344t\\344'); mkdir $D; cp text.txt $D/t\n"
      "$B/ckptctl export tiny@6 --out $D/x --json && "
      "$B/ckptctl import $D/x --run copy --json >&2");
  EXPECT_EQ(exported.code(), 0) << exported.err;
  EXPECT_THAT(exported.json().at("out").get<std::string>(), HasSubstr("\ufffd"));
  const std::pair<std::string, int> commands[] = {
      {"$B/ckptctl show $(printf 'r\\344@1')", 2},
      {"$B/ckptctl export tiny@6 --out $(printf 'd\\344t\\344/x')", 0},
      {"$B/ckptctl tag tiny@6 $(printf 't\\344g')", 2},
      {"$B/ckptctl log $(printf '\\033]0;x\\007')", 2},
      {"$B/moetrain report $(printf 'd\\344t\\344/t')", 2},
      {"$B/ckptd --data $(printf '/dev/null/\\344') --log-format json", 1},
      {"env -u CKPTD_SOCKET TMPDIR=$PWD/$(printf 'd\\344t\\344') " + train_tiny("--run own"), 0},
      {train_tiny("--run named")
           .replace(train_tiny("").find(data_), data_.size(), "$(printf 'd\\344t\\344/t')"),
       0},
  };
  for (const auto& [line, code] : commands) {
    const Ended ended = in_shell(line);
    EXPECT_EQ(ended.code(), code) << line << ": " << ended.err;
    for (const char control : {'\x1b', '\x07', '\xe4'}) {
      EXPECT_EQ(ended.err.find(control), std::string::npos) << line << ": " << ended.err;
    }
  }
}

TEST_F(EnvironmentTest, AcceptsLongTemporaryPath) {
  const std::string deep(80, 'd');
  const Ended far =
      in_shell("mkdir -p " + deep + "/" + deep + "; unset CKPTD_SOCKET; TMPDIR=$PWD/" + deep + "/" +
               deep + " " + train_tiny("--run far"));
  EXPECT_EQ(far.code(), 0) << far.err;
  const Ended missing = in_shell("unset CKPTD_SOCKET; TMPDIR=not/there " + train_tiny("--run own"));
  EXPECT_EQ(missing.code(), kFailed);
  EXPECT_THAT(missing.err, HasSubstr("TMPDIR=not/there: No such file or directory; set TMPDIR"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "not"));
}

// With any number of descriptors: the right answer or an error message, never a crash.
TEST_F(EnvironmentTest, FewDescriptorsGiveAnswerOrError) {
  save_tiny();
  std::map<std::string, std::string> answers;  // with enough descriptors
  for (const Command& command : kCommands) answers[command.line] = in_shell(command.line).out;
  for (const int descriptors : {48, 8, 4}) {
    for (const Command& command : kCommands) {
      const Ended ended =
          in_shell("ulimit -n " + std::to_string(descriptors) + "; " + command.line);
      EXPECT_THAT(ended.code(), testing::AnyOf(command.code, kFailed))
          << command.line << " with " << descriptors << ": " << ended.err;
      EXPECT_TRUE(ended.code() == command.code || !ended.err.empty()) << command.line;
      const bool answered = ended.code() == 0 && !command.varies;
      if (answered) {
        EXPECT_EQ(ended.out, answers[command.line]) << command.line << descriptors;
      }
    }
    const Ended trained = in_shell("unset CKPTD_SOCKET; ulimit -n " + std::to_string(descriptors) +
                                   "; " + train_tiny("--run few"));
    EXPECT_LT(trained.code(), kEndedBySignal) << trained.err;
    EXPECT_TRUE(trained.code() == 0 || !trained.err.empty());
  }
}

// An argument of without_calls: the system call and the error that it fails with.
std::string failing(long call, int error) {
  return " " + std::to_string(call) + "=" + std::to_string(error);
}

const std::string kWithoutCalls = CKPT_WITHOUT_CALLS;
const std::string kNoOpenFileLocks = " " + std::to_string(SYS_fcntl) + "," +
                                     std::to_string(F_OFD_SETLK) + "=" + std::to_string(ENOLCK);

TEST_F(EnvironmentTest, MissingLocksAreNotReportedAsOtherDaemon) {
  const std::string serve =
      " -- $B/ckptd --data store --arena 64MiB --warm-pool 0 --listen unix:" + (folder_ / "s");
  for (const int error : {ENOSYS, EOPNOTSUPP, ENOLCK}) {
    const std::string no_flock = kWithoutCalls + failing(SYS_flock, error);
    const Ended none = in_shell(no_flock + kNoOpenFileLocks + serve);
    EXPECT_EQ(none.code(), kFailed) << none.err;
    EXPECT_THAT(none.err, HasSubstr("its file system has no locks"));
    EXPECT_THAT(none.err, Not(HasSubstr("another ckptd")));
    // fcntl() locks work: ckptd serves, and a second daemon is refused and told the owner.
    const Ended other =
        in_shell(no_flock + serve +
                 " 2>log & P=$!\n"
                 "for i in $(seq 600); do grep -q 'ready$' log && break; sleep 0.1; done\n"
                 "grep -q 'ready$' log || { cat log >&2; exit 3; }\n" +
                 no_flock + serve +
                 "; echo exit $?; echo by process $P on host\n"
                 "$B/ckptctl --socket s runs >&2 && kill $P; wait $P; echo exit $?");
    EXPECT_THAT(other.out, testing::StartsWith("exit 1\n")) << other.err;
    EXPECT_THAT(other.out, testing::EndsWith("exit 0\n")) << other.err;
    EXPECT_THAT(other.err, ContainsRegex("store: another ckptd is running on it: .*/lock is locked "
                                         "by process [0-9]+ on host "));
  }
}

// RocksDB takes a lock of its own with another call.
TEST_F(EnvironmentTest, MissingCatalogLocksAreNamedAsCause) {
  for (const int error : {ENOLCK, ENOSYS}) {
    const std::string no_setlk = " " + std::to_string(SYS_fcntl) + "," + std::to_string(F_SETLK) +
                                 "=" + std::to_string(error);
    const Ended none = in_shell(kWithoutCalls + no_setlk +
                                " -- $B/ckptd --data store --listen unix:" + (folder_ / "s"));
    EXPECT_EQ(none.code(), kFailed) << none.err;
    EXPECT_THAT(none.err, HasSubstr("has no locks of fcntl(), which RocksDB needs"));
    EXPECT_THAT(none.err, Not(HasSubstr("another process")));
  }
}

// Regression: a failed directory listing was treated as a directory with fewer files.
TEST_F(EnvironmentTest, FailedDirectoryListingIsAnError) {
  save_tiny();
  daemon_.reset();
  const Ended ended = in_shell(kWithoutCalls + failing(SYS_getdents64, EIO) +
                               " -- $B/ckptd --data store --listen unix:" + (folder_ / "s"));
  EXPECT_EQ(ended.code(), kFailed) << ended.err;
  EXPECT_THAT(ended.err, ContainsRegex("list: Input/output error"));
}

// Regression: RocksDB's tables used up all descriptors, and verify could not open segments.
TEST_F(EnvironmentTest, VerifyEndsWithFewDescriptors) {
  save_tiny();
  daemon_.reset();
  const std::string serve =
      "$B/ckptd --data store --arena 64MiB --warm-pool 0 --listen unix:$PWD/s & P=$!\n"
      "$B/ckptctl --socket s wait none@1 --timeout 1s\n";
  for (int i = 0; i < 3; ++i) {  // each start adds tables
    const Ended once = in_shell(serve + "$B/ckptctl --socket s log tiny && kill $P; wait $P");
    ASSERT_EQ(once.code(), 0) << once.err;
  }
  const Ended few =
      in_shell("ulimit -n 48; " + serve + "$B/ckptctl --socket s verify; echo exit $?; kill $P");
  EXPECT_THAT(few.out, HasSubstr("exit 0\n")) << few.err;
}

TEST_F(EnvironmentTest, TrainsWithoutPidfds) {
  for (const int error : {ENOSYS, EPERM}) {
    std::string calls = failing(SYS_pidfd_open, error) + failing(SYS_pidfd_send_signal, error) +
                        failing(SYS_close_range, error);
    const Ended trained = in_shell("unset CKPTD_SOCKET; " + kWithoutCalls + calls + " -- " +
                                   train_tiny("--run tiny --kill 0@3 --on-loss restart"));
    EXPECT_EQ(trained.code(), 0) << trained.err;
    EXPECT_THAT(trained.err, HasSubstr("rank 0 is lost at step 3"));
  }
}

}  // namespace
}  // namespace systemtest

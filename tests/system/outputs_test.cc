// The files that `moetrain run` writes: pipes among them, and a run that has nothing to train.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "formats/base/unique_fd.h"
#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using ckpt::base::UniqueFd;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr int kPipeMs = 100'000;

class OutputsTest : public TrainingTest {
 protected:
  OutputsTest() { EXPECT_EQ(::mkfifo(pipe_.c_str(), 0600), 0); }
  UniqueFd open_reader() const {
    UniqueFd reader(::open(pipe_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    EXPECT_TRUE(reader.valid());
    return reader;
  }
  // The text until the last writer closes the pipe; shorter if no writer writes for too long.
  static std::string read_to_end(const UniqueFd& reader) {
    std::string text;
    char part[4096];
    pollfd readable{reader.get(), POLLIN, 0};
    while (::poll(&readable, 1, kPipeMs) == 1) {
      const ssize_t got = ::read(reader.get(), part, sizeof(part));
      if (got <= 0) break;
      text.append(part, static_cast<size_t>(got));
    }
    return text;
  }

  const std::string pipe_ = folder_ / "pipe";
};

TEST_F(OutputsTest, PipeWithoutReaderIsRefusedBeforeTraining) {
  for (const std::string flag : {"--report", "--metrics", "--events", "--schedule-trace"}) {
    const Ended ended =
        run("moetrain", arguments("r.json", {"--ranks", "2", "--expert-state", "sharded", "--steps",
                                             "1000000", flag, pipe_}));
    EXPECT_EQ(ended.code(), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("moetrain: " + flag + " " + pipe_ +
                                     ": cannot write: no program reads this pipe; start its "
                                     "reader first\n"));
    EXPECT_THAT(ended.err, Not(HasSubstr("step 1/"))) << flag;
  }
}

TEST_F(OutputsTest, ReaderOfPipeGetsReport) {
  const UniqueFd reader = open_reader();
  const std::string events = folder_ / "events";
  WatchedRun watched("moetrain",
                     arguments("r.json", {"--ranks", "1", "--steps", "1000000", "--report", pipe_,
                                          "--events", events}),
                     events);
  ASSERT_TRUE(watched.await_step(1)) << watched.program().error_output();
  pollfd readable{reader.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 0), 0) << "neither text nor the end, which readers leave at";
  watched.program().signal(SIGTERM);
  const json report = json::parse(read_to_end(reader), nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(report.is_object()) << watched.program().error_output();
  EXPECT_EQ(watched.program().wait().code(), 128 + SIGTERM);
}

TEST_F(OutputsTest, ReaderOfPipeGetsLines) {
  for (const char* flag : {"--metrics", "--events"}) {
    const UniqueFd reader = open_reader();
    Program program("moetrain", arguments("r.json", {"--steps", "3", flag, pipe_}));
    EXPECT_THAT(read_to_end(reader), HasSubstr("\"step\":3")) << program.error_output();
    EXPECT_EQ(program.wait().code(), 0) << flag;
  }
}

TEST_F(OutputsTest, DoneRunTellsWhichOutputsItLeaves) {
  const std::string metrics = folder_ / "metrics";
  const std::string events = folder_ / "events";
  const Flags flags = {"--steps",   "4",     "--data-dir", folder_ / "store",
                       "--metrics", metrics, "--events",   events};
  train("first.json", flags);
  const std::string lines = read_file(metrics);
  ASSERT_FALSE(lines.empty());
  std::filesystem::remove(events);
  const json report = train("again.json", flags + Flags{"--resume", "latest"});
  EXPECT_EQ(report.at("saved_step"), 4);
  EXPECT_THAT(last_error_output_, HasSubstr("already done: tiny~"));
  for (const auto& [flag, path] :
       {std::pair("--metrics ", metrics), std::pair("--events ", events)}) {
    EXPECT_THAT(last_error_output_,
                HasSubstr(flag + path + ": not written, as no step is trained"));
  }
  EXPECT_EQ(read_file(metrics), lines);
  EXPECT_FALSE(std::filesystem::exists(events));
}

}  // namespace
}  // namespace systemtest

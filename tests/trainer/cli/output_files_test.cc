#include "trainer/cli/output_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using testing::HasSubstr;

class OutputFilesTest : public testing::Test {
 protected:
  OutputFilesTest() { std::filesystem::create_directory(folder_); }
  ~OutputFilesTest() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("outputs" + std::to_string(::getpid()));
};

TEST_F(OutputFilesTest, RefusesSameFileForTwoFlags) {
  const auto expect_refused = [](const OutputFlags& outputs, const std::string& says) {
    const auto checked = check_outputs(outputs);
    ASSERT_FALSE(checked.ok()) << says;
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(checked.error().message, HasSubstr(says));
  };
  const std::string file = path("r.json");
  const std::string again = path("./r.json");
  expect_refused({.report = file, .metrics = file},
                 "--metrics " + file + ": --report names the same file");
  expect_refused({.report = file, .events = again},
                 "--events " + again + ": --report names the same file");
  expect_refused({.metrics = file, .events = file}, "--events " + file + ": --metrics names");
  std::ofstream(file).close();
  std::filesystem::create_symlink(file, path("link"));
  std::filesystem::create_hard_link(file, path("hard_link"));
  for (const char* name : {"r.json", "./r.json", "link", "hard_link"}) {
    expect_refused({.report = file, .metrics = path(name)}, "--report names the same file");
  }
  std::filesystem::create_symlink("later.json", path("to_later"));  // whose file is not there yet
  expect_refused({.report = path("later.json"), .metrics = path("to_later")},
                 "--report names the same file");
}

TEST_F(OutputFilesTest, AcceptsDistinctFilesAndDevices) {
  EXPECT_TRUE(check_outputs({}).ok());
  EXPECT_TRUE(check_outputs({.report = path("a"), .metrics = path("b"), .events = path("c")}).ok());
  EXPECT_TRUE(check_outputs({.report = "/dev/null", .metrics = "/dev/null"}).ok());
}

TEST_F(OutputFilesTest, FileCreationErrorNamesFlag) {
  const std::string file = path("none/x.json");
  const auto report = check_outputs({.report = file});
  const auto metrics = check_outputs({.metrics = file});
  const auto events = check_outputs({.events = file});
  for (const auto& [checked, flag] :
       {std::pair(&report, "--report "), std::pair(&metrics, "--metrics "),
        std::pair(&events, "--events ")}) {
    ASSERT_FALSE(checked->ok()) << flag;
    EXPECT_EQ(checked->error().code, ErrorCode::kIo);
    EXPECT_THAT(checked->error().message, HasSubstr(flag + file + ": cannot create it in " +
                                                    path("none") + ": No such file"));
  }
}

TEST_F(OutputFilesTest, PipeWithoutReaderIsRefused) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::pair<OutputFlags, std::string> files[] = {
      {{.report = pipe}, "--report "},
      {{.metrics = pipe}, "--metrics "},
      {{.events = pipe}, "--events "},
      {{.schedule_trace = pipe}, "--schedule-trace "}};
  for (const auto& [outputs, flag] : files) {
    const auto checked = check_outputs(outputs);
    ASSERT_FALSE(checked.ok()) << flag;
    EXPECT_EQ(checked.error().code, ErrorCode::kIo);
    EXPECT_THAT(checked.error().message,
                HasSubstr(flag + pipe + ": cannot write: no program reads this pipe; start"));
  }
}

// A reader such as `cat` ends when it sees the end of the pipe.
TEST_F(OutputFilesTest, ReaderSeesNoEndWhileOutputIsHeld) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const ckpt::base::UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  const OutputFlags each[] = {{.report = pipe}, {.events = pipe}};
  for (const OutputFlags& outputs : each) {
    char byte = 0;
    {
      const auto held = check_outputs(outputs);
      ASSERT_TRUE(held.ok()) << held.error().message;
      EXPECT_EQ(::read(reader.get(), &byte, 1), -1);
      EXPECT_EQ(errno, EAGAIN);
    }
    EXPECT_EQ(::read(reader.get(), &byte, 1), 0) << "its end";
  }
}

TEST_F(OutputFilesTest, CheckChangesNoFile) {
  for (const char* name : {"report", "metrics"}) std::ofstream(path(name)) << "old";
  ASSERT_TRUE(check_outputs({.report = path("report"), .metrics = path("metrics")}).ok());
  for (const char* name : {"report", "metrics"}) {
    EXPECT_EQ(std::filesystem::file_size(path(name)), 3u) << name;
  }
}

}  // namespace
}  // namespace moetrain

#include "trainer/report/open_output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder.h"
#include "trainer/report/report.h"

namespace moetrain::report {
namespace {

namespace fs = std::filesystem;
using ckpt::base::UniqueFd;

class OpenOutputTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  std::string make_pipe() const {
    EXPECT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
    return path("pipe");
  }
  ckpt::test::TempFolder folder_;
};

TEST_F(OpenOutputTest, PipeWithoutReaderIsRefused) {
  const std::string pipe = make_pipe();
  fs::create_symlink("pipe", path("link"));
  const std::string why = ": cannot write: no program reads this pipe; start its reader first";
  for (const std::string& name : {pipe, path("link")}) {
    const auto opened = open_output(name);
    ASSERT_FALSE(opened.ok()) << name;
    EXPECT_EQ(opened.error().code, ckpt::ErrorCode::kIo);
    EXPECT_EQ(opened.error().message, name + why);
    EXPECT_EQ(write_file(name, "text").error().message, name + why);
  }
  EXPECT_EQ(open_output(pipe, "the report").error().message, "the report" + why);
}

TEST_F(OpenOutputTest, WritesToReadPipeWaitForRoom) {
  const std::string pipe = make_pipe();
  const UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto opened = open_output(pipe);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(::fcntl(opened->get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(::fcntl(opened->get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::write(opened->get(), "hello", 5), 5);
  char text[8] = {};
  EXPECT_EQ(::read(reader.get(), text, sizeof(text)), 5);
  EXPECT_STREQ(text, "hello");
}

TEST_F(OpenOutputTest, FileIsCreatedOrEmptied) {
  fs::create_symlink("file", path("link"));
  for (const std::string& name : {path("file"), path("link")}) {
    const auto opened = open_output(name);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ(fs::file_size(path("file")), 0U) << name;
    ASSERT_EQ(::write(opened->get(), "lines of this run", 17), 17);
  }
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

TEST_F(OpenOutputTest, DeviceIsOpenedAndOtherErrorsAreNamed) {
  const auto full = open_output("/dev/full");
  ASSERT_TRUE(full.ok()) << full.error().message;
  EXPECT_EQ(::write(full->get(), "x", 1), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(open_output(path("none/file")).error().message,
            path("none/file") + ": cannot write: No such file or directory");
}

}  // namespace
}  // namespace moetrain::report

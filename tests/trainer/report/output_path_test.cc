// Outputs whose path is a link, or names a descriptor of this process.
#include "trainer/report/output_path.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "formats/base/unique_fd.h"
#include "tests/support/temp_folder.h"
#include "trainer/report/report.h"

namespace moetrain::report {
namespace {

namespace fs = std::filesystem;

class OutputPathTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  static std::string content_of(const std::string& file) {
    std::ostringstream content;
    content << std::ifstream(file).rdbuf();
    return content.str();
  }
  ckpt::test::TempFolder folder_;
};

// Regression: the link was replaced by a file; as root this broke /dev/stdout of the machine.
TEST_F(OutputPathTest, LinkStaysAndItsFileIsReplaced) {
  ASSERT_TRUE(write_file(path("real.json"), "old").ok());
  fs::create_symlink("real.json", path("near"));
  fs::create_symlink(path("near"), path("far"));
  ASSERT_TRUE(check_writable(path("far")).ok());
  ASSERT_TRUE(write_file(path("far"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("far")) && fs::is_symlink(path("near")));
  EXPECT_EQ(content_of(path("real.json")), "new");
}

TEST_F(OutputPathTest, DanglingLinkGetsItsFile) {
  fs::create_symlink("later.json", path("link"));
  ASSERT_TRUE(write_file(path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(content_of(path("later.json")), "new");
  fs::create_symlink(path("none/later.json"), path("astray"));
  EXPECT_FALSE(check_writable(path("astray")).ok());
  EXPECT_FALSE(write_file(path("astray"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("astray")));
}

TEST_F(OutputPathTest, LoopOfLinksIsRefused) {
  fs::create_symlink(path("b"), path("a"));
  fs::create_symlink(path("a"), path("b"));
  EXPECT_FALSE(check_writable(path("a")).ok());
  EXPECT_FALSE(write_file(path("a"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("a")) && fs::is_symlink(path("b")));
}

TEST_F(OutputPathTest, DescriptorContinuesAfterItsOutput) {
  const ckpt::base::UniqueFd fd(
      ::open(path("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(fd.get(), "before\n", 7), 7);
  fs::create_symlink("/proc/self/fd/" + std::to_string(fd.get()), path("stdout"));
  for (const std::string& name :
       {path("stdout"), "/dev/fd/" + std::to_string(fd.get()),
        "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd.get())}) {
    ASSERT_EQ(descriptor_of(name), fd.get()) << name;
    ASSERT_TRUE(check_writable(name).ok());
    ASSERT_TRUE(write_file(name, "report\n").ok());
  }
  ASSERT_EQ(::write(fd.get(), "after\n", 6), 6);
  EXPECT_EQ(content_of(path("out")), "before\nreport\nreport\nreport\nafter\n");
  EXPECT_TRUE(fs::is_symlink(path("stdout")));
}

TEST_F(OutputPathTest, DescriptorForReadingIsRefused) {
  const ckpt::base::UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::string name = "/dev/fd/" + std::to_string(fd.get());
  EXPECT_THAT(check_writable(name).error().message, testing::HasSubstr(name + ": cannot write"));
}

TEST_F(OutputPathTest, FilesAreNoDescriptors) {
  EXPECT_EQ(descriptor_of(path("1")), std::nullopt);
  EXPECT_EQ(descriptor_of("1"), std::nullopt);
  EXPECT_EQ(descriptor_of("/proc/self/fd/x"), std::nullopt);
  EXPECT_EQ(end_of_links(path("1")), path("1"));
}

}  // namespace
}  // namespace moetrain::report

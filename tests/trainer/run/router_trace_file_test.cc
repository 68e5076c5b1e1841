// The file of --router-trace: read whole, or refused in a sentence that names it.
#include "trainer/router_trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace moetrain {
namespace {

namespace fs = std::filesystem;
using testing::StartsWith;

class RouterTraceFileTest : public testing::Test {
 protected:
  RouterTraceFileTest() {
    std::string name = testing::TempDir() + "router_trace_XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~RouterTraceFileTest() override { fs::remove_all(root_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ / name, std::ios::binary) << text;
    return (root_ / name).string();
  }
  static void expect_refused(const std::string& path, const std::string& why) {
    const auto trace = load_router_trace(path);
    ASSERT_FALSE(trace.ok()) << path;
    EXPECT_EQ(ckpt::exit_code_for(trace.error().code), 2);
    EXPECT_THAT(trace.error().message, StartsWith(path + why));
  }

  fs::path root_;
};

TEST_F(RouterTraceFileTest, IsReadWhole) {
  const std::string text = "iteration,layer,e0,e1\n1,0,5,6\n2,0,7,8\n";
  const auto trace = load_router_trace(write("good.csv", text));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ((*trace)->samples(), 2u);
  EXPECT_EQ((*trace)->experts(), 2u);
  EXPECT_NE((*load_router_trace(write("other.csv", text + "\n")))->crc32c(), (*trace)->crc32c());
}

TEST_F(RouterTraceFileTest, IsRefusedInOneSentence) {
  expect_refused((root_ / "missing.csv").string(), ": No such file or directory");
  expect_refused(root_.string(), ": not a regular file");
  const std::string fifo = (root_ / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_refused(fifo, ": not a regular file");
  expect_refused(write("empty.csv", ""), " line 0: is empty");
  expect_refused(write("packed.csv", "\x1f\x8b\x08"), ": is compressed by gzip; unpack it first");
  expect_refused(write("short.csv", "iteration,layer,e0\n1,0\n"), " line 2: e0 is missing");
}

}  // namespace
}  // namespace moetrain

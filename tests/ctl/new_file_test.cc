#include "client/ctl/new_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>

#include "tests/client/client_fixture.h"

namespace ckptctl {
namespace {

class NewFileTest : public testing::Test {
 protected:
  size_t entries() const {
    const std::filesystem::directory_iterator all(folder_.path());
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_.path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  ckpt::test::TempFolder folder_;
};

TEST_F(NewFileTest, AppearsWholeOrNotAtAll) {
  for (const auto way : {NewFile::Way::kUnnamed, NewFile::Way::kHidden}) {
    auto file = NewFile::create(folder_.path(), "config.json", 5, way);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_TRUE(file->write(0, ckpt::as_bytes("hello")).ok());
    EXPECT_FALSE(std::filesystem::exists(folder_.path("config.json")));
    EXPECT_EQ(entries(), way == NewFile::Way::kHidden ? 1u : 0u);
  }
  EXPECT_EQ(entries(), 0u);
  auto file = NewFile::create(folder_.path(), "config.json", 5);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write(3, ckpt::as_bytes("lo")).ok());
  ASSERT_TRUE(file->write(0, ckpt::as_bytes("hel")).ok());
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(read("config.json"), "hello");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(NewFileTest, ReplacesExistingFile) {
  for (const char* text : {"first", "again", "third"}) {
    const bool hidden = std::string_view(text) == "third";
    auto file = NewFile::create(folder_.path(), "x", 5,
                                hidden ? NewFile::Way::kHidden : NewFile::Way::kUnnamed);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write(0, ckpt::as_bytes(text)).ok());
    ASSERT_TRUE(file->commit().ok());
    EXPECT_EQ(read("x"), text);
  }
}

TEST_F(NewFileTest, HiddenNamesAreInTheTopFolder) {
  std::filesystem::create_directory(folder_.path("part"));
  auto file = NewFile::create(folder_.path(), "part/x", 5, NewFile::Way::kHidden);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(entries(), 2u);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path("part")));
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(entries(), 1u);
  EXPECT_TRUE(std::filesystem::exists(folder_.path("part/x")));
}

TEST_F(NewFileTest, TextIsWrittenThroughLinksAndPipes) {
  ASSERT_TRUE(write_text_file(folder_.path("real"), "first").ok());
  std::filesystem::create_symlink("real", folder_.path("link"));
  ASSERT_TRUE(write_text_file(folder_.path("link"), "second").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.path("link")));
  EXPECT_EQ(read("real"), "second");

  ASSERT_EQ(::mkfifo(folder_.path("pipe").c_str(), 0600), 0);
  auto reader = std::async(std::launch::async, [this] { return read("pipe"); });
  ASSERT_TRUE(write_text_file(folder_.path("pipe"), "third").ok());
  EXPECT_EQ(reader.get(), "third");
  EXPECT_TRUE(std::filesystem::is_fifo(folder_.path("pipe")));

  std::filesystem::create_symlink("new", folder_.path("loose"));
  ASSERT_TRUE(write_text_file(folder_.path("loose"), "fourth").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.path("loose")));
  EXPECT_EQ(read("new"), "fourth");

  EXPECT_FALSE(write_text_file("", "x").ok());
  EXPECT_FALSE(write_text_file(folder_.path(), "x").ok());
  EXPECT_EQ(entries(), 5u);
}

TEST_F(NewFileTest, MissingFolderIsNamed) {
  const auto file = NewFile::create(folder_.path("no"), "x", 1);
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message.find(folder_.path("no")), std::string::npos);
}

}  // namespace
}  // namespace ckptctl

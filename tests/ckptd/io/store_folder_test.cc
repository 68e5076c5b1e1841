// Folders that a new store may begin in, and the folder of a start that failed.
#include "ckptd/io/store_folder.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/ckptd/io/disk_fixture.h"

namespace ckptd {
namespace {

namespace fs = std::filesystem;

using testing::ElementsAre;
using testing::HasSubstr;

class StoreFolderTest : public testing::Test {
 protected:
  void make_file(const std::string& name) { std::ofstream(root_ / name) << "text"; }
  std::string refusal(const std::string& listen = {}) {
    const ckpt::Status checked = check_store_folder(root_.string(), listen);
    return checked.ok() ? "" : checked.error().message;
  }

  ckpt::test::TempFolder folder_;
  fs::path root_ = fs::canonical(folder_.root());
};

TEST_F(StoreFolderTest, OtherFilesRefuseANewStore) {
  make_file("tokenizer.json");
  make_file("config.json");
  EXPECT_THAT(refusal(), HasSubstr(": it holds config.json and no store; name an empty or a new "
                                   "directory with --data"));
  fs::create_directory(root_ / "journal");
  EXPECT_EQ(refusal(), "") << "a note beside a store";
}

TEST_F(StoreFolderTest, EmptyVolumeAllowsNewStore) {
  EXPECT_EQ(refusal(), "");
  EXPECT_TRUE(check_store_folder((root_ / "none").string()).ok());
  fs::create_directory(root_ / "lost+found");
  fs::create_directory(root_ / ".snapshot");
  EXPECT_EQ(refusal(), "");
}

TEST_F(StoreFolderTest, LeftoversOfInterruptedStartAllowNewStore) {
  for (const char* name : {"lock", "ckptd.sock", "ckptd.sock.lock", "ckptd.log", "io-shape",
                           "calibration.bytes", "my.sock", "my.sock.arena", "my.sock.lock"}) {
    make_file(name);
  }
  EXPECT_EQ(refusal((root_ / "my.sock").string()), "");
  EXPECT_THAT(refusal(), HasSubstr("it holds my.sock and no store"));
}

TEST_F(StoreFolderTest, FailedStartRemovesTheFoldersItMade) {
  const fs::path store = root_ / "a/b";
  {
    const NewStoreFolder created(missing_folders(store.string()));
    fs::create_directories(store);
    make_file("a/b/lock");
    make_file("a/b/ckptd.sock.lock");
  }
  EXPECT_FALSE(fs::exists(root_ / "a"));
  EXPECT_TRUE(fs::exists(root_));
}

TEST_F(StoreFolderTest, FailedStartKeepsStoreAndOlderFolders) {
  const fs::path store = root_ / "a/b";
  EXPECT_THAT(missing_folders(store.string() + "/"), ElementsAre(store, root_ / "a"));
  {
    const NewStoreFolder created(missing_folders(store.string()));
    fs::create_directories(store / "journal");
    make_file("a/b/lock");
  }
  EXPECT_TRUE(fs::exists(store / "lock"));
  EXPECT_THAT(missing_folders(store.string()), ElementsAre());
}

}  // namespace
}  // namespace ckptd

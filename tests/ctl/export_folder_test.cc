#include "client/ctl/export_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "client/ctl/model_folder.h"
#include "tests/ctl/made_export.h"
#include "tests/support/temp_folder.h"

namespace ckptctl {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr const char* kFirstShard = "model-00001-of-00002.safetensors";
constexpr const char* kSecondShard = "model-00002-of-00002.safetensors";

class ExportFolderTest : public testing::Test {
 protected:
  using Files = std::map<std::string, std::string>;

  Result<std::vector<std::string>> write(const Files& files, bool publish = true) {
    CKPT_ASSIGN(MadeExport made,
                make_export(path_, files, {.step = 1, .resumable = resumable_, .units = units_}));
    if (!publish) return std::vector<std::string>();
    return made.publish();
  }
  std::string refusal(const Files& files) {
    const auto result = write(files);
    EXPECT_FALSE(result.ok());
    return result.ok() ? "" : result.error().message;
  }
  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A file of the same header and size, with another value.
  static std::string with_value(std::string file, char value) {
    file.back() = value;
    return file;
  }

  ckpt::test::TempFolder folder_;
  std::string path_ = folder_.path("out");
  std::vector<ViewUnit> units_;
  bool resumable_ = false;
  const Files sharded_ = {{kFirstShard, file_of_tensor("a")},
                          {kSecondShard, file_of_tensor("b")},
                          {kIndexName, index_of({{"a", kFirstShard}, {"b", kSecondShard}})}};
  const Files single_ = {{kModelName, file_of_tensor("a")}};
};

TEST_F(ExportFolderTest, RemovesFilesOfEarlierExport) {
  ASSERT_TRUE(write(sharded_).ok());
  put("tokenizer.json", "{}");
  const auto removed = write(single_);
  ASSERT_TRUE(removed.ok()) << removed.error().message;
  EXPECT_THAT(*removed, UnorderedElementsAre(kFirstShard, kSecondShard, kIndexName));
  EXPECT_THAT(entries(), UnorderedElementsAre(kModelName, kManifestName, "tokenizer.json"));
  ASSERT_TRUE(write({{"part/x.safetensors", file_of_tensor("a")}}).ok());
  ASSERT_TRUE(write(single_).ok());
  EXPECT_THAT(entries(), UnorderedElementsAre(kModelName, kManifestName, "tokenizer.json"));
}

// The resumable export may be the only backup of a run.
TEST_F(ExportFolderTest, WeightsNeverReplaceAResumableExport) {
  resumable_ = true;
  ASSERT_TRUE(write(sharded_).ok());
  resumable_ = false;
  EXPECT_THAT(refusal(single_), HasSubstr("this folder has a resumable export, of step 1"));
  EXPECT_EQ(read(kSecondShard), file_of_tensor("b"));
  resumable_ = true;
  EXPECT_TRUE(write(single_).ok());
}

TEST_F(ExportFolderTest, RefusesToReplaceForeignFiles) {
  put("config.json", "{}");
  EXPECT_THAT(refusal(single_), HasSubstr("config.json exists and is not from an export"));
  std::filesystem::remove(path_ + "/config.json");
  put(kFirstShard, file_of_tensor("a"));
  EXPECT_THAT(refusal(sharded_), HasSubstr("exists and is not from an export"));
  std::filesystem::remove_all(path_);

  ASSERT_TRUE(write(sharded_).ok());
  put(kSecondShard, file_of_tensor("mine"));
  EXPECT_THAT(refusal(single_),
              HasSubstr(std::string(kSecondShard) + " is not the file that ckptd.json lists"));
  EXPECT_EQ(read(kSecondShard), file_of_tensor("mine"));
  put(kSecondShard, file_of_tensor("b"));
  put("mine.safetensors", file_of_tensor("mine"));
  put(kIndexName, index_of({{"mine", "mine.safetensors"}}));
  EXPECT_THAT(refusal(single_), HasSubstr("is not the file that ckptd.json lists"));
  EXPECT_EQ(read("mine.safetensors"), file_of_tensor("mine"));
  put(kManifestName, "{");
  EXPECT_THAT(refusal(single_),
              HasSubstr("earlier files cannot be identified: ckptd.json: not JSON"));
}

TEST_F(ExportFolderTest, RefusesToReplaceChangedValues) {
  ASSERT_TRUE(write(sharded_).ok());
  const std::string mine = with_value(file_of_tensor("b"), 'y');
  put(kSecondShard, mine);
  for (const Files& files : {sharded_, single_}) {
    EXPECT_THAT(refusal(files), HasSubstr(std::string(kSecondShard) +
                                          " is not the file that ckptd.json lists, or has changed "
                                          "since that export"));
    EXPECT_EQ(read(kSecondShard), mine);
  }
  put(kSecondShard, file_of_tensor("b"));
  EXPECT_TRUE(write(single_).ok());
}

TEST_F(ExportFolderTest, KnowsFilesWithoutChecksumsByTheirHeads) {
  ASSERT_TRUE(write(sharded_).ok());
  put(kManifestName, without_checksums(read(kManifestName)));
  put(kSecondShard, file_of_tensor("mine"));
  EXPECT_THAT(refusal(single_), HasSubstr(kSecondShard));
  put(kSecondShard, with_value(file_of_tensor("b"), 'y'));
  EXPECT_TRUE(write(single_).ok());
}

TEST_F(ExportFolderTest, ReadsEarlierFilesInParts) {
  ASSERT_TRUE(write(sharded_).ok());
  uint64_t bytes = 0;
  const auto count = [&](uint64_t part) {
    bytes += part;
    return Status();
  };
  ASSERT_TRUE(ExportFolder::open(path_, {kModelName}, false, count).ok());
  uint64_t expected = 0;
  for (const auto& [name, text] : sharded_) expected += text.size();
  EXPECT_EQ(bytes, expected) << "each file once";
  const auto stop = [](uint64_t) -> Status {
    return ckpt::make_error(ckpt::ErrorCode::kIo, "stop");
  };
  const auto stopped = ExportFolder::open(path_, {kModelName}, false, stop);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().message, "stop");
}

// Manifests of older versions did not list files. Their files are known by the export's tensors.
TEST_F(ExportFolderTest, RecognisesOlderExportsByTheirTensors) {
  ViewUnit unit{0, "u", 2, {{"a", ckpt::DType::kU8, {1}, 0}, {"b", ckpt::DType::kU8, {1}, 1}}};
  const auto older = [&] {
    std::filesystem::remove_all(path_);
    for (const auto& [name, text] : sharded_) put(name, text);
    put(kManifestName, manifest_json({.step = 1, .units = {unit}}).dump());
  };
  older();
  EXPECT_EQ(write(single_)->size(), 3u);
  older();
  put(kSecondShard, file_of_tensor("mine"));
  EXPECT_THAT(refusal(single_), HasSubstr(kSecondShard));
  older();
  put(kIndexName, index_of({{"mine", kFirstShard}}));
  EXPECT_THAT(refusal(single_), HasSubstr(kIndexName));
}

// Manifests of older versions did not list config.json: the run's metadata has its contents.
TEST_F(ExportFolderTest, KeepsConfigOfUser) {
  const auto older = [&](const std::string& metadata) {
    std::filesystem::remove_all(path_);
    put(kManifestName, manifest_json({.step = 1, .metadata = metadata, .units = units_}).dump());
    put(kConfigName, "{ \"a\": 1 }");
  };
  const Files with_config = {{kModelName, file_of_tensor("a")}, {kConfigName, "{}"}};
  for (const char* metadata : {"", "{}", R"({"hf_config":{"a":2}})"}) {
    older(metadata);
    EXPECT_THAT(refusal(single_), HasSubstr("config.json is not the file that ckptd.json lists"))
        << metadata;
    EXPECT_THAT(refusal(with_config),
                HasSubstr("config.json is not the file that ckptd.json lists"))
        << metadata;
    EXPECT_EQ(read(kConfigName), "{ \"a\": 1 }");
  }
  older(R"({"hf_config":{"a":1}})");
  EXPECT_THAT(*write(single_), UnorderedElementsAre(kConfigName));
}

TEST_F(ExportFolderTest, NextExportRepairsInterruptedExport) {
  ASSERT_TRUE(write(sharded_).ok());
  // The state of publish() after its first rename.
  auto manifest = *parse_manifest(read(kManifestName));
  manifest.replaced = *manifest.files;
  manifest.files = {description_of(kModelName, single_.at(kModelName))};
  manifest.unfinished = true;
  put(kManifestName, manifest_json(manifest).dump());
  put(kModelName, single_.at(kModelName));
  std::filesystem::remove(path_ + "/" + kIndexName);
  const auto halfway = read_model_folder(path_);
  ASSERT_FALSE(halfway.ok());
  EXPECT_THAT(halfway.error().message, HasSubstr("did not finish; export again"));
  const auto removed = write(single_);
  ASSERT_TRUE(removed.ok()) << removed.error().message;
  EXPECT_THAT(entries(), UnorderedElementsAre(kModelName, kManifestName));
}

// Both exports have a file of this name, header and size.
TEST_F(ExportFolderTest, RepairKnowsTheValuesOfBothExports) {
  const std::string before = file_of_tensor("a");
  const std::string after = with_value(before, 'y');
  const auto interrupted = [&](const std::string& there) {
    std::filesystem::remove_all(path_);
    put(kModelName, there);
    const Manifest manifest{.step = 1,
                            .files = {{description_of(kModelName, after)}},
                            .unfinished = true,
                            .replaced = {description_of(kModelName, before)}};
    put(kManifestName, manifest_json(manifest).dump());
  };
  for (const std::string& there : {before, after}) {
    interrupted(there);
    const auto written = write(single_);
    EXPECT_TRUE(written.ok()) << written.error().message;
  }
  interrupted(with_value(before, 'z'));
  EXPECT_THAT(refusal(single_), HasSubstr("has changed since that export"));
}

TEST_F(ExportFolderTest, InterruptedExportLeavesNoFiles) {
  std::filesystem::create_directories(path_);
  ASSERT_TRUE(write(single_, false).ok());
  EXPECT_THAT(entries(), IsEmpty());
  // A leftover of a kill on a file system that cannot make files without names.
  put(".model.safetensors.ckptd-part.a1B2c3", "x");
  put(".mine.ckptd-part.", "x");
  ASSERT_TRUE(write(single_).ok());
  EXPECT_THAT(entries(), UnorderedElementsAre(kModelName, kManifestName, ".mine.ckptd-part."));
}

TEST_F(ExportFolderTest, FailedExportRemovesFoldersItCreated) {
  const Files nested = {{"part/x.safetensors", file_of_tensor("a")}};
  path_ = folder_.path("new/deep/out");
  ASSERT_TRUE(write(nested, false).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_.path("new")));
  std::filesystem::create_directories(folder_.path("new"));
  ASSERT_TRUE(write(nested, false).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path("new"))) << "it was there before";
  put("mine.txt", "x");
  ASSERT_TRUE(write(nested, false).ok());
  EXPECT_THAT(entries(), UnorderedElementsAre("mine.txt"));
}

TEST_F(ExportFolderTest, FailedExportKeepsFolderWithNewFile) {
  {
    const auto made = make_export(path_, single_, {.step = 1, .units = units_});
    ASSERT_TRUE(made.ok()) << made.error().message;
    put("mine.txt", "x");
  }
  EXPECT_THAT(entries(), UnorderedElementsAre("mine.txt"));
}

// On NFS the folder cannot be locked, and unfinished files have hidden names.
TEST_F(ExportFolderTest, FilesOfALiveExportAreNotSwept) {
  std::filesystem::create_directories(path_);
  auto live = NewFile::create(path_, "x", 1, NewFile::Way::kHidden);
  ASSERT_TRUE(live.ok());
  ASSERT_TRUE(write(single_).ok());
  EXPECT_EQ(entries().size(), 3u);
  EXPECT_TRUE(live->commit().ok());
  EXPECT_THAT(entries(), UnorderedElementsAre(kModelName, kManifestName, "x"));
}

TEST_F(ExportFolderTest, SweepsHiddenFilesInSubfolders) {
  std::filesystem::create_directories(path_ + "/part");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto file = NewFile::create(path_, "part/x.safetensors", 1, NewFile::Way::kHidden);
    ::_exit(file.ok() ? 0 : 1);  // without destructors, like a killed process
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(write(single_).ok());
  EXPECT_THAT(entries(), UnorderedElementsAre(kModelName, kManifestName, "part"));
  EXPECT_TRUE(std::filesystem::is_empty(path_ + "/part"));
}

TEST_F(ExportFolderTest, KeepsLinkToFolder) {
  std::filesystem::create_directories(path_);
  std::filesystem::create_directories(folder_.path("elsewhere"));
  std::filesystem::create_directory_symlink(folder_.path("elsewhere"), path_ + "/part");
  ASSERT_TRUE(write({{"part/x.safetensors", file_of_tensor("a")}}).ok());
  ASSERT_TRUE(std::filesystem::exists(folder_.path("elsewhere/x.safetensors")));
  ASSERT_TRUE(write(single_).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path_ + "/part"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path("elsewhere")));
}

TEST_F(ExportFolderTest, MoreFilesThanTheSoftLimit) {
  Files many;
  std::map<std::string, std::string> weight_map;
  for (int i = 0; i < 200; ++i) {
    const std::string name = fmt::format("m-{:05}-of-00200.safetensors", i + 1);
    const std::string tensor = fmt::format("t{}", i);
    many[name] = file_of_tensor(tensor);
    weight_map[tensor] = name;
  }
  many[kIndexName] = index_of(weight_map);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto written = write(many);
  ::setrlimit(RLIMIT_NOFILE, &low);
  const auto folder = read_model_folder(path_);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(written.ok()) << written.error().message;
  EXPECT_TRUE(folder.ok()) << folder.error().message;
}

TEST_F(ExportFolderTest, ConcurrentExportIsRefused) {
  std::filesystem::create_directories(path_);
  const ckpt::base::UniqueFd other(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  EXPECT_THAT(refusal(single_), HasSubstr("another export is writing"));
}

// The child has a file with a hidden name. The signal ends the child and removes the file.
TEST_F(ExportFolderTest, SignalsRemoveHiddenFiles) {
  std::filesystem::create_directories(path_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto file = NewFile::create(path_, "x", 1, NewFile::Way::kHidden);
      if (!file.ok() || entries().size() != 1) ::_exit(1);
      ::raise(signal);
      ::_exit(2);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_THAT(entries(), IsEmpty());
  }
}

}  // namespace
}  // namespace ckptctl

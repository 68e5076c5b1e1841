#include "client/ctl/model_folder.h"

#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/ctl/made_export.h"
#include "tests/support/temp_folder.h"

namespace ckptctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string one_tensor(const std::string& tensor) { return file_of_tensor(tensor); }

class ModelFolderTest : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path_ + "/" + name).parent_path());
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  void clear() {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ModelFolder taken() const {
    auto folder = read_model_folder(path_);
    EXPECT_TRUE(folder.ok()) << folder.error().message;
    return folder.ok() ? std::move(*folder) : ModelFolder();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const TensorFile& file : taken().files) names.push_back(file.name);
    return names;
  }
  // The error of a malformed folder: exit code 1, and the message has its path.
  std::string refusal() const {
    const auto folder = read_model_folder(path_);
    EXPECT_FALSE(folder.ok());
    if (folder.ok()) return "";
    EXPECT_EQ(ckpt::exit_code_for(folder.error().code), 1) << folder.error().message;
    EXPECT_THAT(folder.error().message, HasSubstr(path_));
    return folder.error().message;
  }
  ckpt::test::TempFolder folder_;
  std::string path_ = folder_.path("model");
};

TEST_F(ModelFolderTest, NamesOmittedFiles) {
  put("model.safetensors", one_tensor("a"));
  put("tokenizer.json", "{}");
  put("original/consolidated.pth", "");
  put(".gitattributes", "");
  const ModelFolder folder = taken();
  EXPECT_THAT(folder.left_out, ElementsAre(".gitattributes", "original/", "tokenizer.json"));
  EXPECT_THAT(folder.notes, IsEmpty());
  EXPECT_TRUE(folder.metadata.empty());
}

TEST_F(ModelFolderTest, NamesOmittedFilesInSubfoldersOfIndex) {
  put("part/x.safetensors", one_tensor("a"));
  put("part/tokenizer.json", "{}");
  put("part/more/y.txt", "");
  put("other/z.txt", "");
  put("model.safetensors.index.json", R"({"weight_map": {"a": "part/x.safetensors"}})");
  EXPECT_THAT(taken().left_out, ElementsAre("other/", "part/more/", "part/tokenizer.json"));
}

// mlx_lm writes such an index.
TEST_F(ModelFolderTest, AcceptsIndexOfSingleFile) {
  put("model.safetensors", one_tensor("a"));
  put("model.safetensors.index.json", R"({"weight_map": {"a": "model.safetensors"}})");
  EXPECT_THAT(names(), ElementsAre("model.safetensors"));
  EXPECT_THAT(taken().left_out, IsEmpty());
  put("model.safetensors.index.json", R"({"weight_map": {"b": "model.safetensors"}})");
  EXPECT_THAT(refusal(), HasSubstr("tensor b is said to be in model.safetensors, but no file"));
}

TEST_F(ModelFolderTest, NotesConfigThatDiffersFromExport) {
  put("model.safetensors", one_tensor("a"));
  const auto notes = [&](bool resumable, const std::string& metadata, const std::string& config) {
    const Manifest manifest{.step = 1, .resumable = resumable, .metadata = metadata};
    put("ckptd.json", manifest_json(manifest).dump());
    put("config.json", config);
    return taken().notes;
  };
  const std::string one = R"({"hf_config":{"a":1}})";
  EXPECT_THAT(notes(false, one, R"({ "a": 1 })"), IsEmpty());
  EXPECT_THAT(notes(false, one, R"({"a":2})"),
              ElementsAre(HasSubstr("differs from the one in ckptd.json; exports write the")));
  EXPECT_THAT(notes(true, one, R"({"a":2})"), ElementsAre(HasSubstr("keeps the latter")));
  EXPECT_THAT(notes(false, "", R"({"a":NaN})"), ElementsAre(HasSubstr("NaN or Infinity")));
  EXPECT_THAT(notes(false, "", R"({"a":1})"), IsEmpty());
  EXPECT_EQ(taken().metadata, one);
}

TEST_F(ModelFolderTest, FindsFilesWithoutAnIndex) {
  put("consolidated.safetensors", one_tensor("a"));
  EXPECT_THAT(names(), ElementsAre("consolidated.safetensors"));
  clear();
  put("m-00001-of-00002.safetensors", one_tensor("a"));
  put("m-00002-of-00002.safetensors", one_tensor("b"));
  EXPECT_THAT(names(), ElementsAre("m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"));
  put("consolidated.safetensors", one_tensor("c"));
  EXPECT_THAT(refusal(), HasSubstr("3 files of tensors that are no set"));
  put("model.safetensors.index.json",
      R"({"weight_map": {"a": "m-00001-of-00002.safetensors"}, "other": [1.50]})");
  EXPECT_THAT(names(), ElementsAre("m-00001-of-00002.safetensors"));
  EXPECT_THAT(taken().left_out,
              ElementsAre("consolidated.safetensors", "m-00002-of-00002.safetensors"));
  put("model.safetensors", one_tensor("a"));
  EXPECT_THAT(refusal(), HasSubstr("both model.safetensors and"));
}

TEST_F(ModelFolderTest, FollowsLinksOfHubCache) {
  put("../blobs/1", one_tensor("a"));
  std::filesystem::create_directories(path_);
  std::filesystem::create_symlink("../blobs/1", path_ + "/model.safetensors");
  EXPECT_THAT(names(), ElementsAre("model.safetensors"));
}

TEST_F(ModelFolderTest, ExplainsFilesThatAreNotSafetensors) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "not even a header length"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 4\n", "git lfs pull"},
      {std::string("PK\x03\x04") + std::string(100, '\0'), "ZIP archive"},
      {one_tensor("a").substr(0, 4096), "tensor a: the tensors take 1 bytes"},
      {one_tensor("a") + "more", "the tensors take 1 bytes, the file has 5"}};
  for (const auto& [bytes, says] : cases) {
    put("model.safetensors", bytes);
    EXPECT_THAT(refusal(), HasSubstr("/model.safetensors: "));
    EXPECT_THAT(refusal(), HasSubstr(says));
  }
}

TEST_F(ModelFolderTest, ReportsMissingFilesAndInvalidJson) {
  clear();
  EXPECT_THAT(refusal(),
              HasSubstr("neither model.safetensors nor model.safetensors.index.json, nor "
                        "one lone .safetensors file, nor one whole set "));
  put("model.safetensors", one_tensor("a"));
  put("config.json", "{");
  EXPECT_THAT(refusal(), HasSubstr("config.json: not JSON"));
  std::filesystem::remove(path_ + "/config.json");
  put("ckptd.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("ckptd.json: format is missing"));
  clear();
  put("model.safetensors.index.json", R"({"weight_map": {"a": "x.safetensors"}})");
  EXPECT_THAT(refusal(), HasSubstr("x.safetensors: there is no such file"));
  put("x.safetensors", one_tensor("b"));
  EXPECT_THAT(refusal(), HasSubstr("tensor a is said to be in x.safetensors, but no file has it"));
  const auto none = read_model_folder(folder_.path("nowhere"));
  EXPECT_EQ(ckpt::exit_code_for(none.error().code), 3);
}

// ---- files that are not the export's ------------------------------------------------------------

class ExportedFolder : public ModelFolderTest {
 protected:
  void SetUp() override { make({.step = 7}); }
  void make(const Manifest& manifest) {
    const std::map<std::string, std::string> files = {{kModelName, one_tensor("a")},
                                                      {kConfigName, R"({"a":1})"}};
    auto made = make_export(path_, files, manifest);
    ASSERT_TRUE(made.ok()) << made.error().message;
    ASSERT_TRUE(made->publish().ok());
  }
  void forget_checksums() {
    std::ifstream file(path_ + "/" + kManifestName, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    put(kManifestName, without_checksums(text));
  }
  Status check() const {
    CKPT_ASSIGN(const ModelFolder folder, read_model_folder(path_));
    Progress quiet("check", {.write = [](const std::string&) {}});
    return check_contents(folder, quiet);
  }
  // The error of a folder with these bytes in its file.
  std::string damage(const std::string& bytes) {
    put(kModelName, bytes);
    const Status checked = check();
    EXPECT_FALSE(checked.ok());
    if (checked.ok()) return "";
    EXPECT_EQ(checked.error().code, ckpt::ErrorCode::kCorrupt) << checked.error().message;
    return checked.error().message;
  }
  static std::string changed_value() {
    std::string file = one_tensor("a");
    file.back() = 'y';
    return file;
  }
};

TEST_F(ExportedFolder, DamagedOrExchangedFilesAreCorrupt) {
  EXPECT_TRUE(check().ok());
  const std::string whole = one_tensor("a");
  for (const std::string& bytes : {changed_value(), one_tensor("b")}) {
    const std::string says = damage(bytes);
    EXPECT_THAT(says, testing::StartsWith(path_ + "/" + kModelName +
                                          ": it is not the file that the export of step 7 wrote"));
    EXPECT_THAT(says, testing::EndsWith("like one of another program"));
  }
  put(kModelName, whole);
  make({.step = 8, .resumable = true});
  EXPECT_THAT(damage(changed_value()), HasSubstr("another program, which cannot be resumed"));
  std::filesystem::remove(path_ + "/" + kManifestName);
  EXPECT_TRUE(check().ok()) << "the remedy for a file that was changed on purpose";
}

TEST_F(ExportedFolder, PointerOfGitLfsIsNoDamage) {
  put(kModelName, "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 4\n");
  EXPECT_THAT(refusal(), HasSubstr("git lfs pull"));
}

TEST_F(ExportedFolder, EditedTextsAreTaken) {
  put(kConfigName, R"({"a":2, "more": "than before"})");
  EXPECT_TRUE(check().ok());
  put(kConfigName, R"({"a":2})");
  EXPECT_TRUE(check().ok()) << "also with the same size";
  put(kIndexName, index_of({{"a", kModelName}}));
  EXPECT_TRUE(check().ok());
}

TEST_F(ExportedFolder, FoldersOfOlderVersionsAreNotCompared) {
  forget_checksums();
  for (const std::string& bytes : {changed_value(), one_tensor("b")}) {
    put(kModelName, bytes);
    const Status checked = check();
    EXPECT_TRUE(checked.ok()) << checked.error().message;
  }
  EXPECT_THAT(taken().notes, IsEmpty());
}

TEST_F(ExportedFolder, NotesFilesThatCannotBeCompared) {
  EXPECT_THAT(taken().notes, IsEmpty());
  std::filesystem::rename(path_ + "/" + kModelName, path_ + "/renamed.safetensors");
  EXPECT_TRUE(check().ok());
  EXPECT_THAT(taken().notes,
              ElementsAre("renamed.safetensors: ckptd.json does not list it, so its bytes are not "
                          "checked"));
}

TEST_F(ModelFolderTest, ChecksumCoversAllPartsOfFile) {
  std::string text(20'000'001, 'x');
  for (size_t i = 0; i < text.size(); i += 1009) text[i] = static_cast<char>(i);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{8} << 20, text.size()}) {
    put("file", text.substr(0, bytes));
    const auto input = InputFile::open(path_, "file");
    ASSERT_TRUE(input.ok());
    uint64_t read = 0;
    const auto crc32c = input->crc32c([&](uint64_t part) {
      EXPECT_LE(part, 8u << 20);
      read += part;
      return Status();
    });
    ASSERT_TRUE(crc32c.ok());
    EXPECT_EQ(*crc32c, ckpt::base::crc32c(ckpt::as_bytes(text).first(bytes)));
    EXPECT_EQ(read, bytes);
    EXPECT_EQ(*input->crc32c(), *crc32c);
  }
}

TEST_F(ModelFolderTest, DetectsFileChangedDuringImport) {
  put("model.safetensors", one_tensor("a"));
  const ModelFolder folder = taken();
  EXPECT_TRUE(folder.inputs[0].check_unchanged().ok());
  put("model.safetensors", one_tensor("ab"));
  // Header and file size stay the same (padding), and the file system's clock may be coarse.
  const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5);
  std::filesystem::last_write_time(path_ + "/model.safetensors", later);
  EXPECT_THAT(folder.inputs[0].check_unchanged().error().message, HasSubstr("import it again"));
}

}  // namespace
}  // namespace ckptctl

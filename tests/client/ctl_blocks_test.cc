// Tensors in blocks, against a real daemon: exports write them whole, and a resumable export is the
// run again.
#include <gmock/gmock.h>

#include <array>
#include <map>

#include "formats/safetensors.h"
#include "tests/client/ctl_fixture.h"

namespace ckpt::test {
namespace {

constexpr uint64_t kBigRows = 600'001;
constexpr uint64_t kBigColumns = 120;

// The bytes of columns [start, stop) of a matrix with this many bytes in each row.
std::string columns(const std::string& matrix, uint64_t row_bytes, uint64_t start, uint64_t stop) {
  std::string part;
  for (size_t row = 0; row < matrix.size(); row += row_bytes) {
    part += matrix.substr(row + start, stop - start);
  }
  return part;
}

// A run with a matrix that does not fit into one window of an import, one of two experts in blocks,
// and a block without others.
class Blocks : public Ctl {
 protected:
  void SetUp() override {
    units_[0] = columns(big_, kBigColumns, 0, 1) + columns(big_, kBigColumns, 1, 3) +
                columns(big_, kBigColumns, 3, kBigColumns);
    units_[1] = "rest" + columns(expert_, 20, 12, 20);  // F32: columns 3 and 4 of 5
    units_[2] = columns(expert_, 20, 0, 12);
    units_[3] = "odd one!";
    train_blocks();
  }
  void train_blocks() {
    client::OpenOptions options;
    options.socket = daemon_.socket();
    options.run = "cut";
    options.arena_bytes = 8 << 20;
    options.slab_bytes = 1 << 20;
    auto session = client::Session::open(options);
    ASSERT_OK(session);
    ASSERT_OK(session->register_units(
        {{"big",
          -1,
          -1,
          "",
          units_[0].size(),
          {{"big[:,0:1]", "U8", {kBigRows, 1}, 0},
           {"big[:,1:3]", "U8", {kBigRows, 2}, kBigRows},
           {"big[:,3:120]", "U8", {kBigRows, kBigColumns - 3}, kBigRows * 3}}},
         {"high", -1, -1, "", units_[1].size(), {{"w[1][:,:,3:5]", "F32", {2, 3, 2}, 4}}},
         {"low", -1, -1, "", units_[2].size(), {{"w[1][:,:,0:3]", "F32", {2, 3, 3}, 0}}},
         {"trainer", -1, -1, "", 8, {{"lone[:,1:2]", "F64", {1, 1}, 0}}}},
        ""));
    ASSERT_OK(session->join(as_rank(0, 1)));
    client::SnapshotOptions plan;
    plan.step = 7;
    plan.streams = true;
    for (uint32_t unit = 0; unit < units_.size(); ++unit) {
      plan.units.push_back(unit);
      plan.fragments.push_back({0, unit, 0, units_[unit].size()});
    }
    auto snapshot = session->begin(plan);
    ASSERT_OK(snapshot);
    for (uint32_t unit = 0; unit < units_.size(); ++unit) {
      ASSERT_OK(snapshot->write(unit, 0, units_[unit].data(), units_[unit].size()));
    }
    ASSERT_OK(snapshot->end());
    ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
    ASSERT_OK(session->leave());
  }
  // Exports into a folder of this name. Returns its files, with ckptd.json.
  std::map<std::string, std::string> exported(const std::string& view, const std::string& folder,
                                              const std::vector<std::string>& more = {}) {
    const std::string out = daemon_.folder().path(folder);
    std::vector<std::string> arguments = {"export", view, "--out", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Json document = json(arguments);
    std::map<std::string, std::string> files = {{"ckptd.json", read(out + "/ckptd.json")}};
    for (const Json& name : document["files"]) files[name] = read(out + "/" + std::string(name));
    return files;
  }
  // The bytes of each tensor of the files, by "NAME [SHAPE]".
  static std::map<std::string, std::string> tensors(
      const std::map<std::string, std::string>& files) {
    std::map<std::string, std::string> found;
    for (const auto& [name, bytes] : files) {
      if (!name.ends_with(".safetensors")) continue;
      const auto header = safetensors::parse_header(as_bytes(bytes), bytes.size());
      EXPECT_TRUE(header.ok()) << name;
      if (!header.ok()) continue;
      for (const auto& tensor : header->tensors) {
        found[tensor.name + " " + Json(tensor.shape).dump()] =
            bytes.substr(header->data_offset + tensor.begin, tensor.end - tensor.begin);
      }
    }
    return found;
  }
  static std::string random_text(uint64_t count, uint64_t seed) {
    const auto bytes = random_bytes(count, seed);
    return {bytes.begin(), bytes.end()};
  }

  const std::string big_ = random_text(kBigRows * kBigColumns, 1);
  const std::string expert_ = random_text(2ul * 3 * 5 * 4, 2);
  const std::map<std::string, std::string> model_ = {
      {"big [600001,120]", big_},
      {"w[1] [2,3,5]", expert_},
  };
  std::array<std::string, 4> units_;
};

TEST_F(Blocks, ExportsHaveWholeTensors) {
  // Compared with ==: matchers would print the bytes.
  EXPECT_TRUE(tensors(exported("cut@7", "one")) == model_);
  const auto shards = exported("cut@7", "shards", {"--shard-bytes", "1KiB"});
  EXPECT_EQ(shards.size(), 4u) << "two files, their index and ckptd.json";
  EXPECT_TRUE(tensors(shards) == model_);
  auto every_byte = model_;
  every_byte["lone[:,1:2] [1,1]"] = units_[3];
  every_byte["ckptd.rest.high.0 [4]"] = "rest";
  EXPECT_TRUE(tensors(exported("cut@7", "all", {"--resumable"})) == every_byte);
}

TEST_F(Blocks, ResumableExportIsTheRunAgain) {
  const auto first = exported("cut@7", "first", {"--resumable"});
  const Json imported = json({"import", daemon_.folder().path("first"), "--run", "again"});
  EXPECT_EQ(imported["resumable"], true);
  EXPECT_EQ(imported["units"], 4);
  EXPECT_TRUE(json({"diff", "cut@7", "again@7"})["units"].empty());
  for (const char* unit : {"big", "high", "low", "trainer"}) {
    EXPECT_EQ(json({"unit", "cut", unit})["tensors"], json({"unit", "again", unit})["tensors"]);
  }
  EXPECT_TRUE(exported("again@7", "second", {"--resumable"}) == first);
  EXPECT_EQ(json({"verify", "again"})["errors"].size(), 0u);
}

TEST_F(Blocks, PlainExportIsImportedIntoItsBlocks) {
  const auto first = exported("cut@7", "first");
  json({"import", daemon_.folder().path("first"), "--run", "model"});
  EXPECT_EQ(json({"unit", "model", "big"})["tensors"].size(), 3u);
  const auto second = exported("model@7", "second");
  EXPECT_TRUE(second.at("model.safetensors") == first.at("model.safetensors"));
  // Without ckptd.json the folder is any other program's.
  std::filesystem::remove(daemon_.folder().path("first") + "/ckptd.json");
  json({"import", daemon_.folder().path("first"), "--run", "theirs"});
  EXPECT_EQ(json({"unit", "theirs", "big"})["tensors"][0]["shape"], Json({600'001, 120}));
}

TEST_F(Blocks, ContradictingManifestIsRefused) {
  exported("cut@7", "first", {"--resumable"});
  const std::string folder = daemon_.folder().path("first");
  Json manifest = Json::parse(read(folder + "/ckptd.json"));
  manifest["units"][2]["tensors"][0]["name"] = "w[1][:,:,1:4]";
  std::ofstream(folder + "/ckptd.json") << manifest;
  const Finished refused = ctl({"import", folder, "--run", "hostile"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, testing::HasSubstr("unit low tensor w[1][:,:,1:4]: two units have it"));
}

}  // namespace
}  // namespace ckpt::test

// ckptctl import and export of files as other tools write them, against a real daemon: the files
// return byte for byte, and experts are units.
#include <gmock/gmock.h>

#include <algorithm>

#include "formats/safetensors.h"
#include "tests/client/ctl_fixture.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;

class ModelFiles : public Ctl {
 protected:
  // A file with this header, and bytes of the seed as its data.
  static std::string tensors(const std::string& json, uint64_t data_bytes, uint64_t seed = 1) {
    const uint64_t length = json.size();
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    const auto data = random_bytes(data_bytes, seed);
    return file + json + std::string(data.begin(), data.end());
  }
  void put(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(std::filesystem::path(model_ + "/" + name).parent_path());
    std::ofstream(model_ + "/" + name, std::ios::binary) << bytes;
    files_[name] = bytes;
  }
  // Imports the folder, exports the run, and compares.
  void expect_round_trip(const std::string& run) {
    imported_ = json({"import", model_, "--run", run});
    const std::string out = daemon_.folder().path(run + ".out");
    const Json exported = json({"export", run + "@0", "--out", out});
    EXPECT_EQ(exported["as_imported"], true) << exported["differs"];
    for (const auto& [name, bytes] : files_) EXPECT_EQ(read(out + "/" + name), bytes) << name;
  }
  std::string model_ = daemon_.folder().path("model");
  std::map<std::string, std::string> files_;
  Json imported_;
};

TEST_F(ModelFiles, EveryTensorTypeRoundTrips) {
  const std::vector<std::pair<std::string, uint64_t>> bits = {
      {"BOOL", 8},    {"U8", 8},          {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"I16", 16}, {"U16", 16},    {"F8_E5M2FNUZ", 8},
      {"F16", 16},    {"BF16", 16},       {"I32", 32}, {"U32", 32},    {"F32", 32},
      {"C64", 64},    {"F64", 64},        {"I64", 64}, {"U64", 64},    {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  std::string header = R"({"__metadata__":{"format":"mlx","note":"\u2603"})";
  uint64_t at = 0;
  for (const auto& [dtype, size] : bits) {
    const uint64_t end = at + size;
    header += fmt::format(R"(, "l/{0} é":{{"dtype":"{0}","shape":[2,4],"data_offsets":[{1},{2}]}})",
                          dtype, at, end);
    at = end;
  }
  header += R"(,"none":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]},"":)" +
            fmt::format(R"({{"shape":[],"dtype":"U8","data_offsets":[{},{}]}}}}  )", at, at + 1);
  put("model.safetensors", tensors(header, at + 1));
  put("config.json", "{\"rope\": 1000000000000000019884624838656, \"limit\": [0.0, Infinity]}");
  expect_round_trip("types");
  EXPECT_EQ(imported_["units"], bits.size() + 1);
  EXPECT_THAT(imported_["notes"][0].get<std::string>(), HasSubstr("NaN or Infinity"));
  bool found = false;
  const Json shown = json({"show", "types@0"});
  for (const Json& unit : shown["units"]) {
    found = found || unit["unit"] == "l%2FF4%20%C3%A9";
  }
  EXPECT_TRUE(found) << "unit names are ASCII";
  EXPECT_EQ(json({"verify", "types"})["errors"].size(), 0u);
}

// Regression: "not JSON", though Python reads and writes it.
TEST_F(ModelFiles, ConfigMayHoldAnythingThatPythonReads) {
  put("model.safetensors", tensors(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
  const std::string digits(400, '0');
  int number = 0;
  const std::vector<std::string> values = {"1e400",       "-1E+400",
                                           "1" + digits,  "[0.5, -1" + digits + ".25, 3]",
                                           R"("\ud800")", R"({"\udc00\"x": [NaN, 2e999]})"};
  for (const std::string& value : values) {
    put("config.json", "{\"a\": " + value + "}");
    expect_round_trip("python" + std::to_string(number++));
    EXPECT_THAT(imported_["notes"][0].get<std::string>(), HasSubstr("what strict JSON lacks"));
  }
}

TEST_F(ModelFiles, ConfigThatPythonRefusesIsRefused) {
  put("model.safetensors", tensors(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
  const std::string leading_zero = "0" + std::string(400, '1');
  const std::vector<std::string> values = {"1e",     leading_zero, "1e400.5",  "-",
                                           "1.e400", "2e999x",     R"("\ud8")"};
  for (const std::string& value : values) {
    put("config.json", "{\"a\": " + value + "}");
    const Finished refused = ctl({"import", model_, "--run", "refused"});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, HasSubstr("config.json: not JSON")) << value;
  }
}

TEST_F(ModelFiles, ExpertsAreUnitsAndStackedTensorsRoundTrip) {
  const std::string layer = "model.layers.1.mlp.experts.";
  const std::string header = R"({")" + layer +
                             R"(gate_up_proj_blocks":{"dtype":"U8","shape":[4,2,4],)"
                             R"("data_offsets":[8,40]},")" +
                             layer +
                             R"(down_proj_bias":{"dtype":"BF16","shape":[4,1],)"
                             R"("data_offsets":[0,8]},")" +
                             layer +
                             R"(down_proj_blocks":{"dtype":"U8","shape":[4,2],)"
                             R"("data_offsets":[40,48]}})";
  put("model-00001-of-00002.safetensors", tensors(header, 48));
  put("model-00002-of-00002.safetensors",
      tensors(R"({"model.layers.0.block_sparse_moe.experts.2.w1.weight":)"
              R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
              8, 2));
  std::string index = R"({"weight_map": {)";
  for (const char* name : {"gate_up_proj_blocks", "down_proj_bias", "down_proj_blocks"}) {
    index += fmt::format(R"("{}{}": "model-00001-of-00002.safetensors", )", layer, name);
  }
  put("model.safetensors.index.json",
      index + R"("model.layers.0.block_sparse_moe.experts.2.w1.weight": )"
              R"("model-00002-of-00002.safetensors"}, "metadata": {"total_size": 56.0}})");
  expect_round_trip("stacked");
  EXPECT_EQ(imported_["experts"], 5);
  EXPECT_EQ(imported_["tensors"], 4);
  const Json layers = json({"experts", "stacked"})["layers"];
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0]["experts"][0]["expert"], 2);
  EXPECT_EQ(layers[1]["experts"].size(), 4u);
  EXPECT_EQ(json({"log", "stacked"})[0]["experts"], 5);

  // Another export of the same folder differs in one expert.
  std::string changed = files_.at("model-00001-of-00002.safetensors");
  changed[changed.size() - 40 + 8] ^= 1;  // expert 1 of gate_up_proj_blocks
  put("model-00001-of-00002.safetensors", changed);
  expect_round_trip("changed");
  const Json diff = json({"diff", "stacked@0", "changed@0"});
  ASSERT_EQ(diff["units"].size(), 1u);
  EXPECT_EQ(diff["units"][0]["unit"], layer + "1");
}

TEST_F(ModelFiles, ExportKeepsNumbersOfConfigVerbatim) {
  client::OpenOptions options;
  options.socket = daemon_.socket();
  options.run = "numbers";
  auto session = client::Session::open(options);
  ASSERT_OK(session);
  ASSERT_OK(session->register_units(
      {flat_unit("w", 4)}, R"({"hf_config": {"n": 123456789012345678901234, "e": 1e-05}})"));
  ASSERT_OK(session->join({}));
  client::SnapshotOptions plan;
  plan.step = 1;
  plan.units = {0};
  plan.fragments = {{0, 0, 0, 4}};
  auto snapshot = session->begin(plan);
  ASSERT_OK(snapshot);
  ASSERT_OK(snapshot->write(0, 0, "abcd", 4));
  ASSERT_OK(snapshot->end());
  ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
  const std::string out = daemon_.folder().path("numbers.out");
  json({"export", "numbers@1", "--out", out, "--resumable"});
  EXPECT_EQ(read(out + "/config.json"),
            "{\n  \"n\": 123456789012345678901234,\n  \"e\": 1e-05\n}\n");
  ASSERT_OK(session->leave());
}

// A downloaded folder may have files with any names.
TEST_F(ModelFiles, FileNamesDoNotControlTheTerminal) {
  put("model.safetensors", tensors(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  std::ofstream(model_ + "/a\x1b[8m") << "x";
  std::ofstream(model_ + "/b\nckptctl: all is well") << "x";
  const Finished finished = ctl({"import", model_, "--run", "some"});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("a\\x1b[8m, b\\nckptctl: all is well"));
  EXPECT_EQ(finished.err.find('\x1b'), std::string::npos);
  EXPECT_EQ(finished.err.find("\nckptctl: all"), std::string::npos);

  const Finished none = ctl({"import", "/no\x1b[8m\nckptctl: all is well", "--run", "other"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("/no\\x1b[8m\\nckptctl: all is well"));
}

TEST_F(ModelFiles, ExpertsOfTwoTowersAreCountedApart) {
  std::string header;
  uint64_t at = 0;
  for (const char* tower : {"thinker", "talker"}) {
    for (int expert = 0; expert < 4; ++expert, ++at) {
      header += fmt::format(R"({}"{}.model.layers.0.mlp.experts.{}.up_proj.weight":{{"dtype":"U8",)"
                            R"("shape":[1],"data_offsets":[{},{}]}})",
                            at == 0 ? "{" : ",", tower, expert, at, at + 1);
    }
  }
  put("model.safetensors", tensors(header + "}", at));
  expect_round_trip("towers");
  EXPECT_EQ(imported_["units"], 8);
  EXPECT_EQ(imported_["experts"], 8);
  ASSERT_EQ(imported_["notes"].size(), 1u);
  EXPECT_THAT(imported_["notes"][0].get<std::string>(), HasSubstr("share layer numbers"));
}

TEST_F(ModelFiles, ResumableImportNotesLostShardSizes) {
  std::string header = R"({"a":{"dtype":"U8","shape":[9000],"data_offsets":[0,9000]},)";
  header += R"("b":{"dtype":"U8","shape":[9000],"data_offsets":[9000,18000]}})";
  put("model.safetensors", tensors(header, 18000));
  expect_round_trip("plain");
  const std::string shards = daemon_.folder().path("shards");
  json({"export", "plain@0", "--out", shards, "--resumable", "--shard-bytes", "8KiB"});
  const Json again = json({"import", shards, "--run", "again"});
  EXPECT_TRUE(again["notes"].empty()) << again["notes"] << ": it has the files of the first import";
  json({"export", "tiny@10", "--out", shards + ".2", "--resumable", "--shard-bytes", "4KiB"});
  const Json other = json({"import", shards + ".2", "--run", "other"});
  ASSERT_EQ(other["notes"].size(), 1u);
  EXPECT_THAT(other["notes"][0].get<std::string>(), HasSubstr("shard sizes of this folder"));
}

TEST_F(ModelFiles, ImportReportsOmittedFiles) {
  put("model.safetensors", tensors(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  std::ofstream(model_ + "/tokenizer.json") << "{}";
  const Finished finished = ctl({"import", model_, "--run", "some"});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("left out"));
  EXPECT_THAT(finished.err, HasSubstr("tokenizer.json"));
  const Finished cut = ctl({"export", "some@0", "--out", model_ + ".2", "--shard-bytes", "1GiB"});
  EXPECT_THAT(cut.err, HasSubstr("these are not the files that were imported"));
  const Finished refused = ctl({"export", "some@0", "--out", model_});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("exists and is not from an export"));
}

}  // namespace
}  // namespace ckpt::test

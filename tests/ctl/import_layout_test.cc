#include "client/ctl/import_layout.h"

#include <gmock/gmock.h>

#include "client/ctl/export_layout.h"

namespace ckptctl {
namespace {

using ckpt::DType;
using testing::ElementsAre;
using testing::HasSubstr;

Schema saved_run() {
  Schema schema;
  schema.metadata = {{"hf_config", {{"model_type", "mixtral"}, {"a", 1}}}};
  schema.units = {
      {0, "trainer", 24, {{"step", DType::kU64, {}, 8}}},
      {1, "embed", 64, {{"model.embed.weight", DType::kF32, {4, 4}, 0}}},
      {2,
       "layers.0.experts.1",
       100,
       {{"model.layers.0.w", DType::kBF16, {16}, 0},
        {"optimizer.m.model.layers.0.w", DType::kF32, {16}, 36}},
       0,
       1,
       "weights"},
  };
  return schema;
}

// What an export wrote, as import reads it.
struct Written {
  std::vector<TensorFile> files;
  Manifest manifest;
};
Written write(const ExportOptions& options) {
  const Schema from = saved_run();
  const auto layout = make_export_layout(from, options);
  EXPECT_TRUE(layout.ok());
  Written written;
  for (const ExportFile& file : layout->files) {
    const auto header = ckpt::safetensors::parse_header(file.header, file.bytes);
    EXPECT_TRUE(header.ok());
    written.files.push_back({file.name, *header});
  }
  const Json document = manifest_json({.step = 7,
                                       .resumable = options.resumable,
                                       .metadata = from.metadata.dump(),
                                       .units = layout->exported});
  auto manifest = parse_manifest(document.dump(2));
  EXPECT_TRUE(manifest.ok()) << manifest.error().message;
  written.manifest = std::move(*manifest);
  return written;
}
std::vector<std::string> names(const ImportLayout& layout) {
  std::vector<std::string> names;
  for (const auto& unit : layout.units) names.push_back(unit.name);
  return names;
}
std::string refusal(const Result<ImportLayout>& layout) {
  EXPECT_FALSE(layout.ok());
  return layout.ok() ? "" : layout.error().message;
}

TEST(ImportLayout, AllBytesGiveTheSameUnitsBack) {
  for (const uint64_t shard_bytes : {0, 40}) {
    const Written written = write({.resumable = true, .shard_bytes = shard_bytes});
    EXPECT_EQ(written.manifest.step, 7u);
    const auto layout = make_import_layout(written.files, written.manifest);
    ASSERT_TRUE(layout.ok()) << layout.error().message;
    const std::vector<ViewUnit> before = saved_run().units;
    ASSERT_EQ(layout->units.size(), before.size());
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(layout->units[i], *to_spec(before[i]));
    // The pieces cover every unit, in order.
    std::vector<uint64_t> covered(before.size());
    for (const WantedBytes& piece : layout->pieces) {
      EXPECT_EQ(piece.offset, covered[piece.unit]);
      covered[piece.unit] += piece.length;
    }
    EXPECT_THAT(covered, ElementsAre(24, 64, 100));
  }
}

TEST(ImportLayout, AModelAloneGivesUnitsOfTheModel) {
  const Written written = write({});
  const auto layout = make_import_layout(written.files, written.manifest);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_THAT(names(*layout), ElementsAre("embed", "layers.0.experts.1"));
  EXPECT_EQ(layout->units[1].bytes, 32u);
  EXPECT_EQ(layout->units[1].expert, 1u);
  EXPECT_FALSE(written.manifest.resumable);
}

TEST(ImportLayout, FilesOfOthersGiveAUnitForEachTensor) {
  const Written written = write({.include_optimizer = true});
  const auto layout = make_import_layout(written.files, std::nullopt);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_THAT(names(*layout), ElementsAre("model.embed.weight", "model.layers.0.w",
                                          "optimizer.m.model.layers.0.w"));
  EXPECT_EQ(layout->data_bytes, 64u + 32 + 64);
}

TEST(ImportLayout, SaysWhatDoesNotFit) {
  const Written whole = write({});
  const auto tensors = [&](auto change) {
    Written written = whole;
    change(written.files[0].header.tensors);
    return refusal(make_import_layout(written.files, written.manifest));
  };
  EXPECT_THAT(tensors([](auto& all) { all.pop_back(); }),
              HasSubstr("unit layers.0.experts.1 tensor model.layers.0.w: ckptd.json lists it"));
  EXPECT_THAT(tensors([](auto& all) { all[0].dtype = DType::kI32; }), HasSubstr("ckptd.json says"));
  EXPECT_THAT(tensors([](auto& all) { all[0].shape = {2, 8}; }), HasSubstr("ckptd.json says"));
  EXPECT_THAT(tensors([](auto& all) {
                all.push_back({"a/b", DType::kU8, {1}, 96, 97});
              }),
              HasSubstr("tensor a/b cannot be a unit"));
  EXPECT_THAT(tensors([](auto& all) {
                all.push_back({"none", DType::kU8, {0}, 96, 96});
              }),
              HasSubstr("tensor none cannot be a unit"));
  EXPECT_THAT(tensors([](auto& all) {
                all.push_back({"embed", DType::kU8, {1}, 96, 97});
              }),
              HasSubstr("unit embed: twice"));
  Written twice = whole;
  twice.files.push_back(twice.files[0]);
  EXPECT_THAT(refusal(make_import_layout(twice.files, twice.manifest)),
              HasSubstr("is in another file, too"));
  Written shared = whole;
  shared.manifest.units[1].tensors = shared.manifest.units[0].tensors;
  shared.manifest.units[1].bytes = shared.manifest.units[0].bytes;
  EXPECT_THAT(refusal(make_import_layout(shared.files, shared.manifest)),
              HasSubstr("two units have it"));
  EXPECT_THAT(refusal(make_import_layout({}, std::nullopt)), HasSubstr("no bytes"));
}

TEST(ImportLayout, AnIndexStaysInItsFolder) {
  const auto refused = [](const std::string& text) {
    const auto files = files_of_index(text);
    EXPECT_FALSE(files.ok()) << text;
    return files.ok() ? "" : files.error().message;
  };
  EXPECT_THAT(refused(R"({"weight_map": {"w": "../w.safetensors"}})"), HasSubstr("no name of a"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": "/etc/passwd"}})"), HasSubstr("no name of a file"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": ".."}})"), HasSubstr("no name of a file"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": ""}})"), HasSubstr("no name of a file"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": "a\u0000b"}})"), HasSubstr("no name of a file"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": 1}})"), HasSubstr("no weight_map"));
  EXPECT_THAT(refused(R"({"weight_map": []})"), HasSubstr("no weight_map"));
  EXPECT_THAT(refused(R"({"weight_map": {}})"), HasSubstr("no weight_map"));
  EXPECT_THAT(refused("[1"), HasSubstr("not JSON"));
  EXPECT_THAT(refused(std::string(1000, '[')), HasSubstr("nested"));
  const std::string two = R"({"weight_map": {"b": "2.safetensors", "a": "1.safetensors"}})";
  EXPECT_THAT(*files_of_index(two), ElementsAre("1.safetensors", "2.safetensors"));
  TensorFile one{"1.safetensors", {}};
  one.header.tensors = {{"a", DType::kU8, {1}, 0, 1}};
  TensorFile other{"2.safetensors", {}};
  EXPECT_THAT(check_index(two, {one, other}).error().message, HasSubstr("lists 2 tensors"));
  other.header.tensors = {{"c", DType::kU8, {1}, 0, 1}};
  EXPECT_THAT(check_index(two, {one, other}).error().message, HasSubstr("tensor c of 2"));
  other.header.tensors[0].name = "b";
  EXPECT_TRUE(check_index(two, {one, other}).ok());
}

TEST(Manifest, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const std::string& text) {
    const auto manifest = parse_manifest(text);
    EXPECT_FALSE(manifest.ok()) << text;
    return manifest.ok() ? "" : manifest.error().message;
  };
  EXPECT_THAT(refused("{"), HasSubstr("ckptd.json: not JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("not an object"));
  EXPECT_THAT(refused("{}"), HasSubstr("no format"));
  EXPECT_THAT(refused(R"({"format": 2})"), HasSubstr("format 2, known here is 1"));
  EXPECT_THAT(refused(R"({"format": 1, "step": -1})"), HasSubstr("no step"));
  const std::string head = R"({"format": 1, "step": 1, "resumable": true, "metadata": "")";
  EXPECT_THAT(refused(head + "}"), HasSubstr("not understood"));
  EXPECT_THAT(refused(head + R"(, "units": [{"id": 0}]})"), HasSubstr("not understood"));
  const auto unit = [&](const std::string& bytes, const std::string& tensors) {
    return head + R"(, "units": [{"id": 0, "unit": "u", "bytes": )" + bytes +
           R"(, "layer": null, "expert": null, "part": "", "tensors": [)" + tensors + "]}]}";
  };
  EXPECT_TRUE(parse_manifest(unit("4", "")).ok());
  EXPECT_THAT(refused(unit("0", "")), HasSubstr("unit u"));
  EXPECT_THAT(refused(unit("4", R"({"name": "t", "dtype": "F32", "shape": [2], "offset": 0})")),
              HasSubstr("unit u tensor t"));
  EXPECT_THAT(refused(unit("4", R"({"name": "t", "dtype": "X", "shape": [], "offset": 0})")),
              HasSubstr("not known here"));
}

}  // namespace
}  // namespace ckptctl

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

// An export as import reads it.
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

TEST(ImportLayout, ResumableExportRoundTripsUnits) {
  for (const uint64_t shard_bytes : {0, 40}) {
    const Written written = write({.resumable = true, .shard_bytes = shard_bytes});
    EXPECT_EQ(written.manifest.step, 7u);
    const auto layout = make_import_layout(written.files, written.manifest);
    ASSERT_TRUE(layout.ok()) << layout.error().message;
    const std::vector<ViewUnit> before = saved_run().units;
    ASSERT_EQ(layout->units.size(), before.size());
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(layout->units[i], *to_spec(before[i]));
    // The pieces cover every unit in order.
    std::vector<uint64_t> covered(before.size());
    for (const WantedBytes& piece : layout->pieces) {
      EXPECT_EQ(piece.offset, covered[piece.unit]);
      covered[piece.unit] += piece.length;
    }
    EXPECT_THAT(covered, ElementsAre(24, 64, 100));
  }
}

TEST(ImportLayout, ModelExportGivesModelUnits) {
  const Written written = write({});
  const auto layout = make_import_layout(written.files, written.manifest);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_THAT(names(*layout), ElementsAre("embed", "layers.0.experts.1"));
  EXPECT_EQ(layout->units[1].bytes, 32u);
  EXPECT_EQ(layout->units[1].expert, 1u);
  EXPECT_FALSE(written.manifest.resumable);
}

TEST(ImportLayout, FilesWithoutManifestGiveUnitPerTensor) {
  const Written written = write({.include_optimizer = true});
  const auto layout = make_import_layout(written.files, std::nullopt);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_THAT(names(*layout), ElementsAre("model.embed.weight", "model.layers.0.w",
                                          "optimizer.m.model.layers.0.w"));
  EXPECT_EQ(layout->data_bytes, 64u + 32 + 64);
}

TEST(ImportLayout, RefusesFilesThatContradictManifest) {
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
                all.push_back({std::string("a\0b", 3), DType::kU8, {1}, 96, 97});
              }),
              HasSubstr("cannot be kept"));
  EXPECT_THAT(tensors([](auto& all) {
                all.push_back({"embed", DType::kU8, {1}, 96, 97});
              }),
              HasSubstr("tensor embed would become unit embed, which ckptd.json lists"));
  Written twice = whole;
  twice.files.push_back(twice.files[0]);
  EXPECT_THAT(refusal(make_import_layout(twice.files, twice.manifest)),
              HasSubstr("is also in another file"));
  Written shared = whole;
  shared.manifest.units[1].tensors = shared.manifest.units[0].tensors;
  shared.manifest.units[1].bytes = shared.manifest.units[0].bytes;
  EXPECT_THAT(refusal(make_import_layout(shared.files, shared.manifest)),
              HasSubstr("two units have it"));
  Written listed = whole;
  listed.manifest.units[1].name = listed.manifest.units[0].name;
  EXPECT_THAT(refusal(make_import_layout(listed.files, listed.manifest)),
              HasSubstr("ckptd.json: unit embed is listed twice"));
}

// A file of these tensors, one after another.
TensorFile file_of(const std::string& name, std::vector<ckpt::safetensors::Tensor> tensors) {
  TensorFile file{name, {}};
  file.header.data_offset = 1000;
  for (auto& tensor : tensors) {
    tensor.begin = file.header.data_bytes;
    const auto bytes =
        ckpt::tensor_bytes({.name = "", .dtype = tensor.dtype, .shape = tensor.shape});
    file.header.data_bytes += bytes.value();
    tensor.end = file.header.data_bytes;
  }
  file.header.tensors = std::move(tensors);
  return file;
}

TEST(ImportLayout, ExpertAcrossFilesIsOneUnit) {
  const std::string experts = "model.layers.2.mlp.experts.";
  const std::vector<TensorFile> files = {
      file_of("1", {{experts + "0.up_proj.weight", DType::kF8E4M3, {2, 2}},
                    {experts + "1.up_proj.weight", DType::kF8E4M3, {2, 2}}}),
      file_of("2", {{experts + "0.up_proj.weight_scale_inv", DType::kF32, {1, 1}},
                    {"model.layers.2.mlp.gate.weight", DType::kBF16, {2}}})};
  const auto layout = make_import_layout(files, std::nullopt);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_THAT(names(*layout),
              ElementsAre(experts + "0", experts + "1", "model.layers.2.mlp.gate.weight"));
  EXPECT_EQ(layout->units[0].bytes, 8u);
  EXPECT_EQ(layout->units[0].layer, 2u);
  EXPECT_EQ(layout->units[0].expert, 0u);
  EXPECT_EQ(layout->units[0].part, ckpt::UnitPart::kWeights);
  EXPECT_EQ(layout->units[0].tensors[1].offset, 4u);
  EXPECT_FALSE(layout->units[2].expert);
  EXPECT_EQ(layout->tensors, 4u);
  ASSERT_EQ(layout->pieces.size(), 4u);
  EXPECT_EQ(layout->pieces[1].unit, 0u) << "unit by unit";
  EXPECT_EQ(layout->pieces[1].tag, 1u);
  EXPECT_EQ(layout->pieces[1].destination, 1000u);
}

TEST(ImportLayout, StackedExpertsAreSplitIntoUnits) {
  const std::string experts = "model.layers.0.mlp.experts";
  const auto layout =
      make_import_layout({file_of("1", {{experts + ".down_proj_bias", DType::kBF16, {2, 3}},
                                        {experts + ".down_proj_blocks", DType::kU8, {2, 4, 2}},
                                        {experts + ".down_proj_scale", DType::kF32, {}}})},
                         std::nullopt);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_THAT(names(*layout),
              ElementsAre(experts + ".0", experts + ".1", experts + ".down_proj_scale"));
  const ckpt::UnitSpec& second = layout->units[1];
  EXPECT_EQ(second.expert, 1u);
  EXPECT_EQ(second.bytes, 6u + 8);
  EXPECT_EQ(second.tensors[0].name, experts + ".down_proj_bias[1]");
  EXPECT_EQ(second.tensors[1].shape, (std::vector<uint64_t>{4, 2}));
  EXPECT_EQ(layout->pieces[2].unit, 1u);
  EXPECT_EQ(layout->pieces[2].destination, 1000u + 6);
  EXPECT_EQ(layout->pieces[3].destination, 1000u + 12 + 8);
  EXPECT_EQ(layout->tensors, 3u);
}

TEST(ImportLayout, UnsplittableStackedTensorStaysWhole) {
  const std::string stacked = "model.layers.0.mlp.experts.gate_up_proj";
  const auto units = [&](std::vector<ckpt::safetensors::Tensor> tensors) {
    const auto layout = make_import_layout({file_of("1", std::move(tensors))}, std::nullopt);
    EXPECT_TRUE(layout.ok());
    return names(*layout);
  };
  EXPECT_THAT(units({{stacked, DType::kF4, {2, 1}}}), ElementsAre(stacked)) << "half a byte each";
  EXPECT_THAT(units({{stacked, DType::kU8, {5000, 1}}}), ElementsAre(stacked));
  EXPECT_THAT(units({{stacked, DType::kU8, {2}},
                     {"model.layers.0.mlp.experts.down_proj", DType::kU8, {3}}}),
              ElementsAre(stacked, "model.layers.0.mlp.experts.down_proj"));
  EXPECT_THAT(units({{stacked, DType::kU8, {2}}, {stacked + "[0]", DType::kU8, {1}}}),
              ElementsAre(stacked, stacked + "%5B0%5D"));
}

TEST(ImportLayout, TensorsWithoutBytesAreInTheFilesUnit) {
  const TensorFile file =
      file_of("model.safetensors", {{"none", DType::kF32, {3, 0}}, {"w", DType::kU8, {1}}});
  auto layout = make_import_layout({file}, std::nullopt);
  ASSERT_TRUE(layout.ok());
  ASSERT_TRUE(
      add_files_unit({{"model.safetensors", 1000, 0}, {"config.json", 5, 1}}, *layout).ok());
  EXPECT_THAT(names(*layout), ElementsAre("w", "ckptd.files"));
  const ckpt::UnitSpec& files = layout->units[1];
  EXPECT_EQ(files.bytes, 1005u);
  ASSERT_EQ(files.tensors.size(), 3u);
  EXPECT_EQ(files.tensors[0].name, "ckptd.file:model.safetensors");
  EXPECT_EQ(files.tensors[2].name, "none");
  EXPECT_THAT(add_files_unit({{"config.json", 5, 1}}, *layout).error().message,
              HasSubstr("unit ckptd.files is listed"));
}

// The error names the file and the tensor.
TEST(ImportLayout, NamesTheTensorThatCannotBeKept) {
  const std::string expert = "model.layers.0.mlp.experts.0.";
  const std::string bad_end("\0x", 2);
  const auto refused = [](std::vector<TensorFile> files) {
    return refusal(make_import_layout(files, std::nullopt));
  };
  const TensorFile good = file_of("1", {{expert + "up_proj.weight", DType::kU8, {1}}});
  EXPECT_THAT(
      refused({good, file_of("2", {{expert + "down_proj.weight." + bad_end, DType::kU8, {1}}})}),
      HasSubstr("2: tensor model.layers.0.mlp.experts.0.down_proj.weight."));
  EXPECT_THAT(
      refused(
          {good,
           file_of("2", {{"model.layers.0.mlp.experts.gate_up_proj." + bad_end, DType::kU8, {2, 1}},
                         {"model.layers.0.mlp.experts.gate_up_proj", DType::kU8, {2, 1}}})}),
      HasSubstr("2: tensor model.layers.0.mlp.experts.gate_up_proj."));
  EXPECT_THAT(refused({good, file_of("2", {{"none" + bad_end, DType::kU8, {0}}})}),
              HasSubstr("2: tensor none"));
  const std::string same = "model.layers.0.mlp.experts.0";
  EXPECT_THAT(refused({good, file_of("2", {{same, DType::kU8, {1}}})}),
              HasSubstr("2: tensors " + expert + "up_proj.weight and " + same +
                        " would both become unit " + same));
}

TEST(ImportLayout, ManyTensorsWithoutBytesAreRefusedByNumber) {
  const auto layout_with = [](size_t first, size_t second) {
    const auto empties = [](const std::string& name, size_t count) {
      std::vector<ckpt::safetensors::Tensor> tensors;
      for (size_t i = 0; i < count; ++i) {
        tensors.push_back({name + std::to_string(i), DType::kU8, {0}});
      }
      return file_of(name, std::move(tensors));
    };
    auto layout = make_import_layout({empties("a", first), empties("b", second)}, std::nullopt);
    EXPECT_TRUE(layout.ok());
    return std::move(layout).value();
  };
  ImportLayout many = layout_with(1000, 4000);
  EXPECT_EQ(add_files_unit({{"a", 10, 0}, {"b", 10, 1}}, many).error().message,
            "b: 4000 tensors in it have no bytes, 5000 in the whole folder; a run can keep 4094 of "
            "them beside its 2 files");
  ImportLayout most = layout_with(94, 4000);
  EXPECT_TRUE(add_files_unit({{"a", 10, 0}, {"b", 10, 1}}, most).ok());
}

TEST(ImportLayout, AnIndexStaysInItsFolder) {
  const auto refused = [](const std::string& text) {
    const auto index = WeightIndex::parse(text);
    EXPECT_FALSE(index.ok()) << text;
    return index.ok() ? "" : index.error().message;
  };
  EXPECT_THAT(refused(R"({"weight_map": {"w": "../w.safetensors"}})"),
              HasSubstr("not a relative path"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": "/etc/passwd"}})"), HasSubstr("not a relative path"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": ".."}})"), HasSubstr("not a relative path"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": ""}})"), HasSubstr("not a relative path"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": "a\u0000b"}})"), HasSubstr("not a relative path"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": 1}})"), HasSubstr("no weight_map"));
  EXPECT_THAT(refused(R"({"weight_map": []})"), HasSubstr("no weight_map"));
  EXPECT_THAT(refused(R"({"weight_map": {}})"), HasSubstr("no weight_map"));
  EXPECT_THAT(refused("[1"), HasSubstr("not JSON"));
  EXPECT_THAT(refused(std::string(1000, '[')), HasSubstr("nested"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": "a/../../w.safetensors"}})"),
              HasSubstr("not a relative path"));
  EXPECT_THAT(refused(R"({"weight_map": {"w": "config.json"}})"), HasSubstr("not a relative path"));
  EXPECT_THAT(WeightIndex::parse(R"({"weight_map": {"w": "part/w.safetensors"}})")->files(),
              ElementsAre("part/w.safetensors"));
  const std::string two = R"({"weight_map": {"b": "2.safetensors", "a": "1.safetensors"}})";
  EXPECT_THAT(WeightIndex::parse(two)->files(), ElementsAre("1.safetensors", "2.safetensors"));
  const auto index = WeightIndex::parse(two);
  ASSERT_TRUE(index.ok());
  TensorFile one{"1.safetensors", {}};
  one.header.tensors = {{"a", DType::kU8, {1}, 0, 1}};
  TensorFile other{"2.safetensors", {}};
  EXPECT_THAT(index->check({one, other}).error().message,
              HasSubstr("tensor b is said to be in 2.safetensors, but no file has it"));
  other.header.tensors = {{"b", DType::kU8, {1}, 0, 1}};
  EXPECT_TRUE(index->check({one, other})->empty());
  other.header.tensors.push_back({"c", DType::kU8, {1}, 1, 2});
  EXPECT_THAT(*index->check({one, other}), ElementsAre("c"));
  std::swap(one.header.tensors, other.header.tensors);
  EXPECT_THAT(index->check({one, other}).error().message, HasSubstr("but it is in"));
}

TEST(Manifest, RefusesUnknownOrInvalidContent) {
  const auto refused = [](const std::string& text) {
    const auto manifest = parse_manifest(text);
    EXPECT_FALSE(manifest.ok()) << text;
    return manifest.ok() ? "" : manifest.error().message;
  };
  EXPECT_THAT(refused("{"), HasSubstr("ckptd.json: not JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("not an object"));
  EXPECT_THAT(refused("{}"), HasSubstr("format is missing"));
  EXPECT_THAT(refused(R"({"format": 2})"), HasSubstr("format 2; this ckptctl knows format 1"));
  EXPECT_THAT(refused(R"({"format": 1, "step": -1})"), HasSubstr("step is missing"));
  const std::string head = R"({"format": 1, "step": 1, "resumable": true, "metadata": "")";
  EXPECT_THAT(refused(head + "}"), HasSubstr("not understood"));
  EXPECT_THAT(refused(head + R"(, "units": [{"id": 0}]})"), HasSubstr("not understood"));
  const auto unit = [&](const std::string& bytes, const std::string& tensors) {
    return head + R"(, "units": [{"id": 0, "unit": "u", "bytes": )" + bytes +
           R"(, "layer": null, "expert": null, "part": "", "tensors": [)" + tensors + "]}]}";
  };
  EXPECT_TRUE(parse_manifest(unit("4", "")).ok());
  EXPECT_THAT(refused(unit("0", "")), HasSubstr("unit u"));
  const auto files = [&](const std::string& list) {
    return head + R"(, "units": [], "files": )" + list + "}";
  };
  EXPECT_THAT(refused(files("{}")), HasSubstr("no list"));
  EXPECT_THAT(refused(files(R"([{"name": "../x.safetensors"}])")),
              HasSubstr("is not a name for a file"));
  EXPECT_THAT(refused(files(R"([{"name": "config.json", "bytes": 1, "head_bytes": 2}])")),
              HasSubstr("no sizes"));
  const auto crc32c = [&](const std::string& value) {
    return files(
        R"([{"name": "config.json", "bytes": 1, "head_bytes": 1, "head_crc32c": 1, "crc32c": )" +
        value + "}]");
  };
  EXPECT_TRUE(parse_manifest(crc32c("4294967295")).ok());
  for (const char* value : {"4294967296", "-1", "1.0", "null", "\"1\"", "[1]"}) {
    EXPECT_THAT(refused(crc32c(value)), HasSubstr("config.json: no sizes and checksums")) << value;
  }
  const std::string one =
      R"({"name": "config.json", "bytes": 1, "head_bytes": 1, "head_crc32c": 1})";
  EXPECT_TRUE(parse_manifest(files("[" + one + "]")).ok()) << "of an older version";
  EXPECT_THAT(refused(files("[" + one + "," + one + "]")),
              HasSubstr("config.json is listed twice"));
  EXPECT_THAT(refused(unit("4", R"({"name": "t", "dtype": "F32", "shape": [2], "offset": 0})")),
              HasSubstr("unit u tensor t"));
  EXPECT_THAT(refused(unit("4", R"({"name": "t", "dtype": "X", "shape": [], "offset": 0})")),
              HasSubstr("not known here"));
}

TEST(Manifest, FilesRoundTripWithOrWithoutChecksum) {
  const Manifest manifest{
      .step = 7,
      .files = {{{kModelName, 10, 9, 1, UINT32_MAX}, {kConfigName, 3, 3, 2, 0}}},
      .unfinished = true,
      .replaced = {{kModelName, 10, 9, 1}}};
  const auto parsed = parse_manifest(manifest_json(manifest).dump());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->files, manifest.files);
  EXPECT_EQ(parsed->replaced, manifest.replaced);
  EXPECT_EQ(parsed->files->at(1).crc32c, 0u) << "zero is a checksum";
  EXPECT_FALSE(parsed->replaced.at(0).crc32c.has_value());
}

}  // namespace
}  // namespace ckptctl

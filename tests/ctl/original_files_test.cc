// Imported files are exported again unchanged: the layouts of both directions, without a daemon.
#include "client/ctl/original_files.h"

#include <gmock/gmock.h>

#include <random>

#include "client/ctl/export_layout.h"
#include "client/ctl/import_layout.h"
#include "client/ctl/model_config.h"

namespace ckptctl {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::string& text) {
  const auto view = ckpt::as_bytes(text);
  return {view.begin(), view.end()};
}

// A safetensors file with this JSON and random data.
Bytes file_with(std::string json, uint64_t data_bytes, int seed) {
  Bytes file(8);
  ckpt::base::store(file.data(), uint64_t{json.size()});
  const Bytes text = bytes_of(json);
  file.insert(file.end(), text.begin(), text.end());
  std::mt19937 random(static_cast<unsigned>(seed));
  for (uint64_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<std::byte>(random()));
  return file;
}

// Imports files in memory into units and exports them again, in place of a daemon.
class RoundTrip : public testing::Test {
 protected:
  void add(const std::string& name, Bytes bytes) {
    const auto header = ckpt::safetensors::parse_header(bytes, bytes.size());
    ASSERT_TRUE(header.ok()) << header.error().message;
    kept_.push_back({name, header->data_offset, files_.size()});
    tensors_.push_back({name, *header});
    files_.push_back({name, std::move(bytes)});
  }
  void add_text(const std::string& name, const std::string& text) {
    kept_.push_back({name, text.size(), files_.size()});
    files_.push_back({name, bytes_of(text)});
  }
  void import(const std::optional<Manifest>& manifest = std::nullopt) {
    auto layout = make_import_layout(tensors_, manifest);
    ASSERT_TRUE(layout.ok()) << layout.error().message;
    const Status kept = add_files_unit(kept_, *layout);
    ASSERT_TRUE(kept.ok()) << kept.error().message;
    schema_ = {};
    units_.clear();
    for (const ckpt::UnitSpec& unit : layout->units) {
      const auto id = static_cast<ckpt::UnitId>(schema_.units.size());
      schema_.units.push_back({id, unit.name, unit.bytes, unit.tensors, unit.layer, unit.expert,
                               std::string(ckpt::unit_part_name(unit.part))});
      units_.emplace_back(unit.bytes);
    }
    for (const WantedBytes& piece : layout->pieces) {
      std::copy_n(files_[piece.tag].second.begin() + static_cast<ptrdiff_t>(piece.destination),
                  piece.length, units_[piece.unit].begin() + static_cast<ptrdiff_t>(piece.offset));
    }
  }
  // The files of an export, by name.
  std::map<std::string, Bytes> exported(const ExportOptions& options) {
    const auto originals = parse_original_files(schema_.units.back(), units_.back());
    EXPECT_TRUE(originals.ok()) << originals.error().message;
    auto layout = make_export_layout(schema_, options, *originals);
    EXPECT_TRUE(layout.ok()) << layout.error().message;
    std::map<std::string, Bytes> files;
    for (const ExportFile& file : layout->files) {
      Bytes& bytes = files[file.name];
      bytes = file.header;
      bytes.resize(file.bytes);
      for (const WantedBytes& piece : file.pieces) {
        std::copy_n(units_[piece.unit].begin() + static_cast<ptrdiff_t>(piece.offset), piece.length,
                    bytes.begin() + static_cast<ptrdiff_t>(piece.destination));
      }
    }
    for (const OriginalFiles::Text& text : layout->texts) files[text.name] = text.bytes;
    layout_ = std::move(*layout);
    return files;
  }
  void expect_files_again() {
    const auto files = exported({});
    EXPECT_TRUE(layout_.as_imported) << layout_.differs;
    EXPECT_EQ(files, (std::map<std::string, Bytes>(files_.begin(), files_.end())));
  }

  std::vector<std::pair<std::string, Bytes>> files_;
  std::vector<TensorFile> tensors_;
  std::vector<KeptBytes> kept_;
  Schema schema_;
  std::vector<Bytes> units_;
  ExportLayout layout_;
};

constexpr const char* kStacked =
    R"({"__metadata__":null, "z.layers.1.mlp.experts.down_proj":)"
    R"({"dtype":"BF16","shape":[3,2],"data_offsets":[5,17]},)"
    R"("z.layers.1.mlp.experts.gate_up_proj":{"shape":[3,1],"dtype":"U8","data_offsets":[0,3]},)"
    R"("empty":{"dtype":"F6_E2M3","shape":[0],"data_offsets":[3,3]},)"
    R"("mod\u00e8le":{"dtype":"F4","shape":[4],"data_offsets":[3,5]}}    )";

TEST_F(RoundTrip, ExportReproducesImportedFiles) {
  add("model-00001-of-00002.safetensors", file_with(kStacked, 17, 1));
  add("part/x.safetensors",
      file_with(R"({"__metadata__":{"format":"mlx"},"b":{"dtype":"C64","shape":[],)"
                R"("data_offsets":[0,8]}})",
                8, 2));
  add_text("config.json", "{\"eps\": NaN}");
  add_text("model.safetensors.index.json", "not even read here");
  import();
  size_t experts = 0;
  for (const ViewUnit& unit : schema_.units) experts += unit.expert.has_value() ? 1 : 0;
  EXPECT_EQ(experts, 3u);
  expect_files_again();
}

TEST_F(RoundTrip, AnExportOfAnImportKeepsItsExperts) {
  add("model.safetensors", file_with(kStacked, 17, 1));
  import();
  exported({});
  const auto units = schema_.units;
  import(Manifest{.step = 3, .resumable = false, .metadata = "", .units = layout_.exported});
  ASSERT_EQ(schema_.units.size(), units.size());
  for (size_t i = 0; i < units.size(); ++i) EXPECT_EQ(schema_.units[i].name, units[i].name);
  expect_files_again();
}

TEST_F(RoundTrip, OtherShardSizesKeepStackedTensorsWhole) {
  add("model.safetensors", file_with(kStacked, 17, 1));
  import();
  const auto files = exported({.shard_bytes = 12});
  EXPECT_THAT(layout_.differs, HasSubstr("--shard-bytes"));
  EXPECT_EQ(layout_.tensors, 4u);
  std::vector<TensorFile> again;
  for (const auto& [name, bytes] : files) {
    const auto header = ckpt::safetensors::parse_header(bytes, bytes.size());
    ASSERT_TRUE(header.ok()) << header.error().message;
    for (const auto& tensor : header->tensors) {
      if (!tensor.name.ends_with("down_proj")) continue;
      EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{3, 2}));
      const auto from = files_[0].second.end() - 12;
      EXPECT_TRUE(
          std::equal(from, files_[0].second.end(),
                     bytes.begin() + static_cast<ptrdiff_t>(header->data_offset + tensor.begin)));
    }
    again.push_back({name, *header});
  }
  const Manifest manifest{.step = 3, .resumable = false, .metadata = "", .units = layout_.exported};
  EXPECT_TRUE(make_import_layout(again, manifest).ok());
}

TEST_F(RoundTrip, ResumableExportRoundTripsEveryByte) {
  add("model.safetensors", file_with(kStacked, 17, 1));
  import();
  const auto files = exported({.resumable = true});
  const auto& bytes = files.at("model.safetensors");
  const auto header = ckpt::safetensors::parse_header(bytes, bytes.size());
  ASSERT_TRUE(header.ok());
  const Manifest manifest{.step = 3, .resumable = true, .metadata = "", .units = layout_.exported};
  const auto layout = make_import_layout({{"model.safetensors", *header}}, manifest);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  ASSERT_EQ(layout->units.size(), units_.size());
  std::vector<Bytes> again;
  for (const ckpt::UnitSpec& unit : layout->units) again.emplace_back(unit.bytes);
  for (const WantedBytes& piece : layout->pieces) {
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(piece.destination), piece.length,
                again[piece.unit].begin() + static_cast<ptrdiff_t>(piece.offset));
  }
  EXPECT_EQ(again, units_);
}

TEST_F(RoundTrip, RefusesForgedFilesUnit) {
  const auto refused = [](std::vector<ckpt::TensorSpec> tensors, const Bytes& bytes) {
    const auto originals =
        parse_original_files({0, std::string(kFilesUnit), bytes.size(), std::move(tensors)}, bytes);
    EXPECT_FALSE(originals.ok());
    return originals.ok() ? "" : originals.error().message;
  };
  const Bytes file = file_with("{}", 0, 1);
  const auto kept = [&](const std::string& name, uint64_t bytes) {
    return ckpt::TensorSpec{kept_tensor(name), ckpt::DType::kU8, {bytes}, 0};
  };
  EXPECT_THAT(refused({kept("../x.safetensors", 10)}, file), HasSubstr("not a name for a file"));
  EXPECT_THAT(refused({kept("ckptd.json", 10)}, file), HasSubstr("not a name for a file"));
  EXPECT_THAT(refused({kept("x.safetensors", 9)}, file),
              HasSubstr("x.safetensors: safetensors: a header of 2 bytes in a file of 9"));
  EXPECT_THAT(refused({kept("x.safetensors", 11)}, file), HasSubstr("beyond the unit's end"));
  EXPECT_THAT(refused({kept("x.safetensors", 10), kept("x.safetensors", 10)}, file),
              HasSubstr("kept twice"));
}

TEST(ModelConfig, MetadataKeepsNumbersVerbatim) {
  EXPECT_EQ(config_of_metadata(R"({"training": {"hf_config": 1, "l": [1]}, "hf_config": )"
                               R"({"big":1000000000000000019884624838656,"eps":1e-05 , "e":[ ],)"
                               R"("s":"a\"}{\u00e9","l":[1,{"x":null}]}})"),
            R"({
  "big": 1000000000000000019884624838656,
  "eps": 1e-05,
  "e": [],
  "s": "a\"}{\u00e9",
  "l": [
    1,
    {
      "x": null
    }
  ]
}
)");
  for (const char* none : {"", "{}", "[]", "1", "{\"a\": {\"hf_config\": 1}}", "{\"hf_config\""}) {
    EXPECT_EQ(config_of_metadata(none), "") << none;
  }
}

TEST(ModelConfig, IsComparedByValue) {
  EXPECT_TRUE(same_config("{ \"a\": 1.0 }", R"({"hf_config":{"a":1.0}})"));
  EXPECT_FALSE(same_config("{\"a\": 2}", R"({"hf_config":{"a":1}})"));
  EXPECT_FALSE(same_config("{\"a\": 2}", ""));
}

TEST(ModelConfig, ReadsConfigsWrittenByPython) {
  EXPECT_EQ(read_model_config(R"({"a": 1000000000000000019884624838656})")->metadata,
            R"({"hf_config":{"a": 1000000000000000019884624838656}})");
  const std::vector<std::pair<std::string, std::string>> notes = {
      {R"({"a": [0.0, Infinity], "NaN": "\"NaN"})", "NaN or Infinity"},
      {R"({"a": -Infinity})", "NaN or Infinity"},
      {R"({"a": [-1e400, 1e-400, "\udc00", true, -2E+999]})", "a number that no double holds"},
      {"\xef\xbb\xbf{\"a\": 1}", "byte order mark"},
      {"\xef\xbb\xbf{\"a\": NaN}", "byte order mark"},
      {"{\"a\": \"Andr\xe9\"}", "not UTF-8"},
      {std::string(64, '[') + std::string(64, ']'), "nested more than 64 deep"},
      {"\"" + std::string(1 << 20, 'x') + "\"", "too large"}};
  for (const auto& [text, says] : notes) {
    const auto config = read_model_config(text);
    ASSERT_TRUE(config.ok()) << says;
    EXPECT_TRUE(config->metadata.empty());
    EXPECT_THAT(config->note, HasSubstr(says));
  }
  for (const char* text : {"", "{", "{\"a\": Nan}", "{\"a\": NaNNaN}", "\xe9", "1e400.5", "--1e400",
                           "1e400-1", "-e400", "1.e400"}) {
    EXPECT_FALSE(read_model_config(text).ok()) << text;
  }
  const std::string zero("{\"a\":1}\0x", 9);
  for (const std::string& text : {zero, zero.substr(0, 8)}) {
    EXPECT_THAT(read_model_config(text).error().message, HasSubstr("not JSON: byte 7 is zero"));
  }
}

}  // namespace
}  // namespace ckptctl

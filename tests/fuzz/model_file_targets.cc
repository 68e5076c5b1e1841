// Parsers of model files as other tools write them: imports, and what exports make of them again.
#include <map>
#include <nlohmann/json.hpp>

#include "client/ctl/export_layout.h"
#include "client/ctl/file_windows.h"
#include "client/ctl/import_layout.h"
#include "client/ctl/model_config.h"
#include "formats/json_text.h"
#include "tests/formats/samples.h"
#include "tests/fuzz/target.h"

namespace ckpt::fuzz {
namespace {

using ckptctl::ImportLayout;

// ---- the header of a file that is imported ------------------------------------------------------

std::vector<Bytes> import_seeds() {
  return {test::safetensors_file(
              R"({"__metadata__":null,"m.layers.1.mlp.experts.down_proj_bias":{"dtype":"BF16",)"
              R"("shape":[2,1],"data_offsets":[0,4]},"m.layers.1.mlp.experts.down_proj_blocks":)"
              R"({"dtype":"U8","shape":[2,3],"data_offsets":[4,10]},"e":{"dtype":"F4","shape":[0],)"
              R"("data_offsets":[10,10]}})",
              10),
          test::safetensors_file(
              R"({"layers.0.block_sparse_moe.experts.1.w1.weight":{"dtype":"F6_E2M3","shape":[4],)"
              R"("data_offsets":[0,3]},"a\n\u00e9/[0]":{"dtype":"U8","shape":[1],)"
              R"("data_offsets":[3,4]}})",
              4)};
}
void import_repair(Bytes& bytes) {
  if (bytes.size() < safetensors::kLengthBytes) return;
  const std::string_view text = as_text(ByteView(bytes).subspan(safetensors::kLengthBytes));
  base::store(bytes.data(), uint64_t{text.rfind('}') + 1});
}

// Each unit is covered by its pieces, in order; each piece lies in the file.
void check_pieces(const ImportLayout& layout, uint64_t file_bytes) {
  std::map<UnitId, uint64_t> covered;
  for (const ckptctl::WantedBytes& piece : layout.pieces) {
    CKPT_ASSERT(piece.offset == covered[piece.unit]);
    CKPT_ASSERT(piece.length > 0 && place_of(piece, piece.length - 1) < file_bytes);
    covered[piece.unit] += piece.length;
  }
  for (UnitId unit = 0; unit < layout.units.size(); ++unit) {
    CKPT_ASSERT(validate(layout.units[unit]).ok());
    CKPT_ASSERT(covered[unit] == layout.units[unit].bytes);
  }
}

ckptctl::Schema schema_of(const ImportLayout& layout) {
  ckptctl::Schema schema;
  for (const UnitSpec& unit : layout.units) {
    schema.units.push_back({static_cast<UnitId>(schema.units.size()), unit.name, unit.bytes,
                            unit.tensors, unit.layer, unit.expert,
                            std::string(unit_part_name(unit.part))});
  }
  return schema;
}

bool import_parse(ByteView bytes) {
  const auto header = safetensors::parse_header(bytes, bytes.size());
  if (!header.ok()) return false;
  const std::string name = "model.safetensors";
  auto layout = ckptctl::make_import_layout({{name, *header}}, std::nullopt);
  if (!layout.ok()) return false;
  if (!ckptctl::add_files_unit({{name, header->data_offset, 0}}, *layout).ok()) return false;
  check_pieces(*layout, bytes.size());
  // An import followed by an export gives the file.
  const ckptctl::Schema schema = schema_of(*layout);
  const auto originals =
      ckptctl::parse_original_files(schema.units.back(), bytes.first(header->data_offset));
  CKPT_ASSERT(originals.ok());
  const auto exported =
      ckptctl::make_export_layout(schema, {.include_optimizer = true}, *originals);
  CKPT_ASSERT(exported.ok() && exported->as_imported && exported->files.size() == 1);
  CKPT_ASSERT(exported->files[0].bytes == bytes.size());
  CKPT_ASSERT(as_text(exported->files[0].header) == as_text(bytes.first(header->data_offset)));
  uint64_t written = 0;
  for (const ckptctl::WantedBytes& piece : exported->files[0].pieces) written += piece.length;
  CKPT_ASSERT(written == header->data_bytes);
  return true;
}

// ---- ckptd.json beside the header of a file, which is the first line ----------------------------

std::vector<Bytes> listed_seeds() {
  ckptctl::Manifest manifest{.step = 1, .resumable = true, .units = {}};
  manifest.units = {
      {0, "a", 9, {{"w[0][:,0:1]", DType::kU8, {2, 1}, 0}, {"w[1]", DType::kU8, {2, 3}, 3}}},
      {1, "b", 12, {{"w[0][:,1:3]", DType::kU8, {2, 2}, 0}, {"v[:,0:4]", DType::kF32, {1, 2}, 4}}}};
  const std::string header =
      R"({"w":{"dtype":"U8","shape":[2,2,3],"data_offsets":[0,12]},)"
      R"("v[:,0:4]":{"dtype":"F32","shape":[1,2],"data_offsets":[12,20]},)"
      R"("ckptd.rest.a.2":{"dtype":"U8","shape":[1],"data_offsets":[20,21]}})";
  return texts({header + "\n" + ckptctl::manifest_json(manifest).dump()});
}
bool listed_parse(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return false;
  const auto header =
      safetensors::parse_lone_header(test::safetensors_file(text.substr(0, line), 0));
  const auto manifest = ckptctl::parse_manifest(text.substr(line + 1));
  if (!header.ok() || !manifest.ok()) return false;
  const auto layout = ckptctl::make_import_layout({{"model.safetensors", *header}}, *manifest);
  if (!layout.ok()) return false;
  check_pieces(*layout, header->data_offset + header->data_bytes);
  uint64_t read = 0;
  for (const ckptctl::WantedBytes& piece : layout->pieces) read += piece.length;
  CKPT_ASSERT(read == header->data_bytes);
  if (layout->units.empty()) return true;
  // The run can be exported, in a file without holes.
  const auto exported = ckptctl::make_export_layout(schema_of(*layout), {.resumable = true});
  CKPT_ASSERT(exported.ok() && exported->data_bytes == read);
  const ckptctl::ExportFile& file = exported->files.at(0);
  ckptctl::FileWindows windows(file.pieces, 1ull << 62);
  ckptctl::FileWindow window;
  CKPT_ASSERT(windows.next(window));
  CKPT_ASSERT(window.begin == file.header.size() && window.bytes == read);
  return true;
}

// ---- the files unit of a run that any trainer may have made -------------------------------------

std::vector<Bytes> originals_seeds() {
  return {test::safetensors_file("{}", 0),
          test::safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 0)};
}
bool originals_parse(ByteView bytes) {
  const ckptctl::ViewUnit unit{
      0,
      std::string(ckptctl::kFilesUnit),
      bytes.size(),
      {{ckptctl::kept_tensor("x.safetensors"), DType::kU8, {bytes.size()}, 0}}};
  const auto originals = ckptctl::parse_original_files(unit, bytes);
  if (!originals.ok()) return false;
  CKPT_ASSERT(originals->files.empty() || originals->files[0].header.size() == bytes.size());
  return true;
}

// ---- config.json -------------------------------------------------------------------------------

std::vector<Bytes> model_config_seeds() {
  return texts({R"({"model_type": "x", "limit": [0.0, Infinity, -Infinity, NaN]})",
                "\xef\xbb\xbf{\"a\": \"Andr\xe9 \\\" NaN\"}",
                R"({"n": 1000000000000000019884624838656})"});
}
bool model_config_parse(ByteView bytes) {
  const auto config = ckptctl::read_model_config(as_text(bytes));
  if (!config.ok()) return false;
  CKPT_ASSERT(config->metadata.empty() != config->note.empty());
  CKPT_ASSERT(config->metadata.empty() || check_json(config->metadata).ok());
  if (config->metadata.empty()) return true;
  // Indented again it is the same value.
  const std::string text = ckptctl::config_of_metadata(config->metadata);
  const auto value = nlohmann::json::parse(config->metadata, nullptr, false);
  CKPT_ASSERT(nlohmann::json::parse(text, nullptr, false) == value["hf_config"]);
  return true;
}

}  // namespace

const std::vector<Target>& model_file_targets() {
  static const std::vector<Target> targets = {
      {"import", import_seeds, import_parse, import_repair},
      {"listed", listed_seeds, listed_parse},
      {"originals", originals_seeds, originals_parse, import_repair},
      {"model_config", model_config_seeds, model_config_parse},
  };
  return targets;
}

}  // namespace ckpt::fuzz

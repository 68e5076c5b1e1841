#include "client/ctl/manifest.h"

#include <set>

#include "client/ctl/weight_index.h"
#include "formats/base/printable.h"
#include "formats/json_text.h"

namespace ckptctl {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::base::printable;

namespace {

constexpr uint64_t kFormat = 1;

Result<ckpt::UnitPart> part_from(const ViewUnit& unit) {
  for (const auto part :
       {ckpt::UnitPart::kNone, ckpt::UnitPart::kWeights, ckpt::UnitPart::kOptimizer}) {
    if (unit.part == ckpt::unit_part_name(part)) return part;
  }
  return make_error(ErrorCode::kInvalidArgument, "unit {}: unknown part {}", unit.name, unit.part);
}

Json files_json(const std::vector<ExportedFile>& files) {
  Json list = Json::array();
  for (const ExportedFile& file : files) {
    list.push_back({{"name", file.name},
                    {"bytes", file.bytes},
                    {"head_bytes", file.head_bytes},
                    {"head_crc32c", file.head_crc32c}});
    if (file.crc32c) list.back()["crc32c"] = *file.crc32c;
  }
  return list;
}

// A later export removes the files of these names: they must not point out of the folder.
Result<std::vector<ExportedFile>> files_from(const Json& list) {
  const auto bad = [](std::string_view how) {
    return make_error(ErrorCode::kInvalidArgument, "{}: files: {}", kManifestName, how);
  };
  if (!list.is_array()) return bad("no list");
  std::vector<ExportedFile> files;
  std::set<std::string> names;
  for (const Json& one : list) {
    const auto number = [&](const char* name) {
      const Json value = one.is_object() ? one.value(name, Json()) : Json();
      return value.is_number_unsigned() ? value.get<uint64_t>() : UINT64_MAX;
    };
    const Json name = one.is_object() ? one.value("name", Json()) : Json();
    if (!name.is_string()) return bad("a file without a name");
    ExportedFile file{name.get<std::string>(), number("bytes"), number("head_bytes"), 0};
    const uint64_t head_crc = number("head_crc32c");
    const bool has_crc = one.contains("crc32c");
    const uint64_t crc = has_crc ? number("crc32c") : 0;
    const bool text = file.name == kIndexName || file.name == kConfigName;
    if (!text && !is_weight_file(file.name)) {
      return bad(fmt::format("{} is not a name for a file of a model", printable(file.name)));
    }
    if (file.bytes == UINT64_MAX || file.head_bytes > file.bytes || head_crc > UINT32_MAX ||
        crc > UINT32_MAX) {
      return bad(fmt::format("{}: no sizes and checksums", printable(file.name)));
    }
    if (!names.insert(file.name).second) {
      return bad(fmt::format("{} is listed twice", printable(file.name)));
    }
    file.head_crc32c = static_cast<uint32_t>(head_crc);
    if (has_crc) file.crc32c = static_cast<uint32_t>(crc);
    files.push_back(std::move(file));
  }
  return files;
}

template <typename T>
Result<T> required(const Json& document, const char* name, bool right_type) {
  if (right_type) return document.at(name).get<T>();
  return make_error(ErrorCode::kInvalidArgument, "{}: {} is missing or has the wrong type",
                    kManifestName, name);
}

}  // namespace

Json manifest_json(const Manifest& manifest) {
  Json document{{"format", kFormat},
                {"step", manifest.step},
                {"resumable", manifest.resumable},
                {"metadata", manifest.metadata},
                {"units", units_json(manifest.units)}};
  if (manifest.files) document["files"] = files_json(*manifest.files);
  if (!manifest.unfinished) return document;
  document["unfinished"] = true;
  document["replaced"] = files_json(manifest.replaced);
  return document;
}

Result<ckpt::UnitSpec> to_spec(const ViewUnit& unit) {
  ckpt::UnitSpec spec;
  spec.name = unit.name;
  spec.layer = unit.layer;
  spec.expert = unit.expert;
  CKPT_ASSIGN(spec.part, part_from(unit));
  spec.bytes = unit.bytes;
  spec.tensors = unit.tensors;
  CKPT_TRY(ckpt::validate(spec));
  return spec;
}

Result<Manifest> parse_manifest(std::string_view text) {
  if (const Status json = ckpt::check_json(text); !json.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {}", kManifestName, json.error().message);
  }
  // Parses as nlohmann::json first: objects of Json are lists, and one with a million members would
  // take hours.
  const Json document(nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (!document.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "{}: not an object", kManifestName);
  }
  const auto at = [&](const char* name) { return document.value(name, Json()); };
  CKPT_ASSIGN(const uint64_t format,
              required<uint64_t>(document, "format", at("format").is_number_unsigned()));
  if (format != kFormat) {
    return make_error(ErrorCode::kVersionMismatch, "{}: format {}; this ckptctl knows format {}",
                      kManifestName, format, kFormat);
  }
  Manifest manifest;
  CKPT_ASSIGN(manifest.step, required<uint64_t>(document, "step", at("step").is_number_unsigned()));
  CKPT_ASSIGN(manifest.resumable,
              required<bool>(document, "resumable", at("resumable").is_boolean()));
  CKPT_ASSIGN(manifest.metadata,
              required<std::string>(document, "metadata", at("metadata").is_string()));
  CKPT_ASSIGN(manifest.units, units_from_json(kManifestName, document));
  for (const ViewUnit& unit : manifest.units) {
    const auto spec = to_spec(unit);
    if (!spec.ok()) {
      return make_error(spec.error().code, "{}: {}", kManifestName, spec.error().message);
    }
  }
  if (document.contains("files")) {
    CKPT_ASSIGN(manifest.files, files_from(at("files")));
  }
  if (document.contains("replaced")) {
    CKPT_ASSIGN(manifest.replaced, files_from(at("replaced")));
  }
  manifest.unfinished = at("unfinished") == true;
  return manifest;
}

}  // namespace ckptctl

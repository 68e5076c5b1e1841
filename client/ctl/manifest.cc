#include "client/ctl/manifest.h"

#include "formats/json_text.h"

namespace ckptctl {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr uint64_t kFormat = 1;

Result<ckpt::UnitPart> part_from(const ViewUnit& unit) {
  for (const auto part :
       {ckpt::UnitPart::kNone, ckpt::UnitPart::kWeights, ckpt::UnitPart::kOptimizer}) {
    if (unit.part == ckpt::unit_part_name(part)) return part;
  }
  return make_error(ErrorCode::kInvalidArgument, "unit {}: there is no part {}", unit.name,
                    unit.part);
}

template <typename T>
Result<T> member(const Json& document, const char* name, bool right_type) {
  if (right_type) return document.at(name).get<T>();
  return make_error(ErrorCode::kInvalidArgument, "{}: no {}, or of another type", kManifestName,
                    name);
}

}  // namespace

Json manifest_json(const Manifest& manifest) {
  return {{"format", kFormat},
          {"step", manifest.step},
          {"resumable", manifest.resumable},
          {"metadata", manifest.metadata},
          {"units", units_json(manifest.units)}};
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
  // By way of json: Json's objects are lists, and a hostile one of a million members takes hours.
  const Json document(nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (!document.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "{}: not an object", kManifestName);
  }
  const auto at = [&](const char* name) { return document.value(name, Json()); };
  CKPT_ASSIGN(const uint64_t format,
              member<uint64_t>(document, "format", at("format").is_number_unsigned()));
  if (format != kFormat) {
    return make_error(ErrorCode::kVersionMismatch, "{}: format {}, known here is {}", kManifestName,
                      format, kFormat);
  }
  Manifest manifest;
  CKPT_ASSIGN(manifest.step, member<uint64_t>(document, "step", at("step").is_number_unsigned()));
  CKPT_ASSIGN(manifest.resumable,
              member<bool>(document, "resumable", at("resumable").is_boolean()));
  CKPT_ASSIGN(manifest.metadata,
              member<std::string>(document, "metadata", at("metadata").is_string()));
  CKPT_ASSIGN(manifest.units, units_from_json(kManifestName, document));
  for (const ViewUnit& unit : manifest.units) {
    const auto spec = to_spec(unit);
    if (!spec.ok()) {
      return make_error(spec.error().code, "{}: {}", kManifestName, spec.error().message);
    }
  }
  return manifest;
}

}  // namespace ckptctl

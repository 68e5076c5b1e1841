#include "client/ctl/original_files.h"

#include <algorithm>
#include <set>

#include "client/ctl/manifest.h"
#include "formats/base/checked.h"
#include "formats/base/printable.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

constexpr std::string_view kPrefix = "ckptd.file:";

ckpt::Error bad(std::string_view file, std::string_view how) {
  return make_error(ErrorCode::kFailedPrecondition, "unit {}: {}: {}", kFilesUnit,
                    ckpt::base::printable(file), how);
}

}  // namespace

std::string kept_tensor(std::string_view file) { return fmt::format("{}{}", kPrefix, file); }

std::string_view kept_file(const ckpt::TensorSpec& tensor) {
  const std::string_view name = tensor.name;
  const auto bytes = ckpt::tensor_bytes(tensor);
  const bool kept = bytes.ok() && *bytes > 0 && name.starts_with(kPrefix);
  return kept ? name.substr(kPrefix.size()) : std::string_view();
}

const OriginalFiles::Text* OriginalFiles::text(std::string_view name) const {
  const auto found = std::ranges::find(texts, name, &Text::name);
  return found == texts.end() ? nullptr : &*found;
}

Result<OriginalFiles> parse_original_files(const ViewUnit& unit, ckpt::ByteView bytes) {
  OriginalFiles originals;
  std::set<std::string_view> names;
  for (const ckpt::TensorSpec& tensor : unit.tensors) {
    const std::string_view name = kept_file(tensor);
    if (name.empty()) continue;
    CKPT_ASSIGN(const uint64_t length, ckpt::tensor_bytes(tensor));
    if (!ckpt::base::range_fits(tensor.offset, length, bytes.size())) {
      return bad(name, "it lies beyond the unit's end");
    }
    if (!names.insert(name).second) return bad(name, "it is kept twice");
    const ckpt::ByteView kept = bytes.subspan(tensor.offset, length);
    if (name == kConfigName || name == kIndexName) {
      originals.texts.push_back({std::string(name), {kept.begin(), kept.end()}});
      continue;
    }
    if (!is_weight_file(name)) return bad(name, "it is not a name for a file of tensors");
    auto header = ckpt::safetensors::parse_lone_header(kept);
    if (!header.ok()) return bad(name, header.error().message);
    originals.files.push_back(
        {{std::string(name), *std::move(header)}, {kept.begin(), kept.end()}});
  }
  return originals;
}

Result<OriginalFiles> load_original_files(Link& link, const View& view, const Schema& schema) {
  const auto unit = std::ranges::find(schema.units, kFilesUnit, &ViewUnit::name);
  if (unit == schema.units.end()) return OriginalFiles();
  if (unit->bytes > kFilesUnitBytesMax) {
    return make_error(ErrorCode::kFailedPrecondition, "unit {}: {} bytes; the limit is {}",
                      kFilesUnit, unit->bytes, kFilesUnitBytesMax);
  }
  std::vector<std::byte> bytes(unit->bytes);
  uint64_t at = 0;
  for (const auto& batch : in_batches({{unit->id, 0, unit->bytes, 0, 0}})) {
    uint64_t length = 0;
    for (const WantedBytes& piece : batch) length += piece.length;
    CKPT_TRY(read_batch(link, view, batch, ckpt::MutableByteView(bytes).subspan(at, length)));
    at += length;
  }
  return parse_original_files(*unit, bytes);
}

}  // namespace ckptctl

#include "client/ctl/diff.h"

#include <fmt/ranges.h>

#include <map>
#include <string_view>

#include "client/ctl/norm.h"
#include "client/ctl/view.h"

namespace ckptctl {
namespace {

// Origin of a piece: its changed unit and element type.
struct Measured {
  size_t unit = 0;  // index in the document's units
  ckpt::DType dtype = ckpt::DType::kF32;
};

// Pieces to read from both views, in pairs: each view has its own units and offsets.
struct Pairs {
  std::vector<WantedBytes> from;
  std::vector<WantedBytes> to;
  std::vector<Measured> measured;  // by WantedBytes::tag
};

using UnitsByName = std::map<std::string_view, const ViewUnit*>;
UnitsByName by_name(const Schema& schema) {
  UnitsByName units;
  for (const ViewUnit& unit : schema.units) units[unit.name] = &unit;
  return units;
}

using TensorsByName = std::map<std::string_view, const ckpt::TensorSpec*>;
TensorsByName measured_tensors(const ViewUnit& unit) {
  TensorsByName tensors;
  for (const ckpt::TensorSpec& tensor : unit.tensors) {
    if (ChangeNorm::measures(tensor.dtype)) tensors[tensor.name] = &tensor;
  }
  return tensors;
}

std::string describe_tensor(const ckpt::TensorSpec& tensor) {
  return fmt::format("{} [{}]", ckpt::dtype_name(tensor.dtype), fmt::join(tensor.shape, ", "));
}

// Why the tensors cannot be subtracted; empty: both units have the same tensors.
std::string why_not(const TensorsByName& from, const TensorsByName& to) {
  for (const auto& [name, tensor] : from) {
    const auto other = to.find(name);
    if (other == to.end()) return fmt::format("tensor {} is only in the first view", name);
    if (tensor->dtype == other->second->dtype && tensor->shape == other->second->shape) continue;
    return fmt::format("tensor {} is {}, then {}", name, describe_tensor(*tensor),
                       describe_tensor(*other->second));
  }
  for (const auto& [name, tensor] : to) {
    if (!from.contains(name)) return fmt::format("tensor {} is only in the second view", name);
  }
  return from.empty() ? "it has no floating-point tensors" : "";
}

Status add_pair(size_t index, const ViewUnit& from, const ViewUnit& to, Json& unit, Pairs& pairs) {
  const TensorsByName before = measured_tensors(from);
  const TensorsByName after = measured_tensors(to);
  if (std::string reason = why_not(before, after); !reason.empty()) {
    unit["reason"] = std::move(reason);
    return ckpt::ok_status();
  }
  for (const auto& [name, tensor] : before) {
    CKPT_ASSIGN(const uint64_t bytes, ckpt::tensor_bytes(*tensor));
    const size_t tag = pairs.measured.size();
    pairs.from.push_back({from.id, tensor->offset, bytes, 0, tag});
    pairs.to.push_back({to.id, after.at(name)->offset, bytes, 0, tag});
    pairs.measured.push_back({index, tensor->dtype});
  }
  return ckpt::ok_status();
}

Status measure(Link& link, const View& from, const View& to, const Pairs& pairs,
               std::vector<ChangeNorm>& norms) {
  std::vector<std::byte> before(kReadBytes);
  std::vector<std::byte> after(kReadBytes);
  // Pieces of equal lengths are cut into equal batches.
  const auto batches_from = in_batches(pairs.from);
  const auto batches_to = in_batches(pairs.to);
  for (size_t i = 0; i < batches_from.size(); ++i) {
    CKPT_TRY(read_batch(link, from, batches_from[i], before));
    CKPT_TRY(read_batch(link, to, batches_to[i], after));
    uint64_t at = 0;
    for (const WantedBytes& piece : batches_from[i]) {
      const Measured& measured = pairs.measured[piece.tag];
      norms[measured.unit].add(measured.dtype, ckpt::ByteView(before).subspan(at, piece.length),
                               ckpt::ByteView(after).subspan(at, piece.length));
      at += piece.length;
    }
  }
  return ckpt::ok_status();
}

// Two runs may have registered their units differently; only the names are shared.
Status add_norms(Link& link, const View& from, const View& to, Json& document) {
  CKPT_ASSIGN(const Schema schema_from, load_schema(link, from.run));
  Schema other;
  if (to.run != from.run) {
    CKPT_ASSIGN(other, load_schema(link, to.run));
  }
  const Schema& schema_to = to.run == from.run ? schema_from : other;
  const UnitsByName units_from = by_name(schema_from);
  const UnitsByName units_to = by_name(schema_to);

  Json& units = document["units"];
  Pairs pairs;
  for (size_t i = 0; i < units.size(); ++i) {
    units[i]["relative_norm"] = nullptr;
    if (units[i].value("change", "") != "changed") continue;
    const std::string name = units[i].value("unit", "");
    const auto unit_from = units_from.find(name);
    const auto unit_to = units_to.find(name);
    if (unit_from == units_from.end() || unit_to == units_to.end()) {
      units[i]["reason"] = "the schema does not name it";
      continue;
    }
    CKPT_TRY(add_pair(i, *unit_from->second, *unit_to->second, units[i], pairs));
  }
  std::vector<ChangeNorm> norms(units.size());
  CKPT_TRY(measure(link, from, to, pairs, norms));
  for (const Measured& measured : pairs.measured) {
    Json& unit = units[measured.unit];
    if (const auto norm = norms[measured.unit].relative()) {
      unit["relative_norm"] = *norm;
    } else {
      unit["reason"] = norms[measured.unit].no_norm_reason();
    }
  }
  return ckpt::ok_status();
}

}  // namespace

Result<Json> diff_document(Link& link, const std::string& from, const std::string& to,
                           bool with_norms) {
  if (!with_norms) return link.document("diff", {{"from", from}, {"to", to}});
  // Both views are held until their tensors are read.
  CKPT_ASSIGN(const View view_from, hold_view(link, from));
  CKPT_ASSIGN(const View view_to, hold_view(link, to));
  CKPT_ASSIGN(Json document, link.document("diff", {{"from", exact_target(view_from)},
                                                    {"to", exact_target(view_to)}}));
  CKPT_TRY(add_norms(link, view_from, view_to, document));
  return document;
}

}  // namespace ckptctl

#include "client/ctl/diff.h"

#include <map>

#include "client/ctl/norm.h"
#include "client/ctl/view.h"

namespace ckptctl {
namespace {

// Where a piece belongs: which changed unit, which type of element.
struct Measured {
  size_t unit = 0;  // index in the document's units
  ckpt::DType dtype = ckpt::DType::kF32;
};

Result<View> view_of(const Json& point) {
  View view;
  view.run = point.value("run", "");
  view.lineage = point.value("lineage", 0u);
  view.step = point.value("step", uint64_t{0});
  if (view.run.empty()) {
    return ckpt::make_error(ckpt::ErrorCode::kVersionMismatch,
                            "diff: the daemon's answer names no run");
  }
  return view;
}

Status add_norms(Link& link, Json& document) {
  CKPT_ASSIGN(const View from, view_of(document["from"]));
  CKPT_ASSIGN(const View to, view_of(document["to"]));
  CKPT_ASSIGN(const Schema schema, load_schema(link, from.run));
  std::map<std::string, const ViewUnit*> by_name;
  for (const ViewUnit& unit : schema.units) by_name[unit.name] = &unit;

  Json& units = document["units"];
  std::vector<WantedBytes> wanted;
  std::vector<Measured> measured;  // by WantedBytes::tag
  for (size_t i = 0; i < units.size(); ++i) {
    units[i]["relative_norm"] = nullptr;
    const auto unit = by_name.find(units[i].value("unit", ""));
    if (units[i].value("change", "") != "changed" || unit == by_name.end()) continue;
    for (const ckpt::TensorSpec& tensor : unit->second->tensors) {
      if (!ChangeNorm::measures(tensor.dtype)) continue;
      CKPT_ASSIGN(const uint64_t bytes, ckpt::tensor_bytes(tensor));
      wanted.push_back({unit->second->id, tensor.offset, bytes, 0, measured.size()});
      measured.push_back({i, tensor.dtype});
    }
  }

  std::vector<ChangeNorm> norms(units.size());
  std::vector<std::byte> before(kReadBytes);
  std::vector<std::byte> after(kReadBytes);
  for (const auto& batch : in_batches(wanted)) {
    CKPT_TRY(read_batch(link, from, batch, before));
    CKPT_TRY(read_batch(link, to, batch, after));
    uint64_t at = 0;
    for (const WantedBytes& piece : batch) {
      const Measured& what = measured[piece.tag];
      norms[what.unit].add(what.dtype, ckpt::ByteView(before).subspan(at, piece.length),
                           ckpt::ByteView(after).subspan(at, piece.length));
      at += piece.length;
    }
  }
  for (size_t i = 0; i < units.size(); ++i) {
    if (const auto norm = norms[i].relative()) units[i]["relative_norm"] = *norm;
  }
  return ckpt::ok_status();
}

}  // namespace

Result<Json> diff_document(Link& link, const std::string& from, const std::string& to,
                           bool with_norms) {
  CKPT_ASSIGN(Json document, link.document("diff", {{"from", from}, {"to", to}}));
  if (with_norms) CKPT_TRY(add_norms(link, document));
  return document;
}

}  // namespace ckptctl

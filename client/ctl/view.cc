#include "client/ctl/view.h"

#include <algorithm>
#include <utility>

#include "formats/base/checked.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

Json attribute(const std::optional<uint32_t>& value) { return value ? Json(*value) : Json(); }
std::optional<uint32_t> attribute_from(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<uint32_t>());
}

Result<ckpt::TensorSpec> tensor_from(const Json& json) {
  ckpt::TensorSpec tensor;
  tensor.name = json.at("name").get<std::string>();
  const auto dtype = ckpt::dtype_from_name(json.at("dtype").get<std::string>());
  if (!dtype) {
    return make_error(ErrorCode::kVersionMismatch, "tensor {}: dtype {} is not known here",
                      tensor.name, json.at("dtype").dump());
  }
  tensor.dtype = *dtype;
  tensor.shape = json.at("shape").get<std::vector<uint64_t>>();
  tensor.offset = json.at("offset").get<uint64_t>();
  return tensor;
}

// nlohmann's access throws if a member is missing or has another type.
template <typename Body>
auto read_document(const char* what, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Json::exception& error) {
    return make_error(ErrorCode::kVersionMismatch, "{}: not understood: {}", what, error.what());
  }
}

Result<uint64_t> lowest_step(const Json& log) {
  return read_document("log: the daemon's answer", [&]() -> Result<uint64_t> {
    uint64_t lowest = UINT64_MAX;
    for (const Json& commit : log) lowest = std::min(lowest, commit.at("step").get<uint64_t>());
    return lowest;
  });
}

}  // namespace

Result<Schema> load_schema(Link& link, const std::string& run) {
  Schema schema;
  constexpr const char* kWhat = "schema: the daemon's answer";
  CKPT_TRY(link.pages("schema", {{"target", run}}, [&](AnswerPage page) -> Status {
    CKPT_ASSIGN(std::vector<ViewUnit> units, units_from_json(kWhat, page.document));
    for (ViewUnit& unit : units) schema.units.push_back(std::move(unit));
    if (page.document.contains("metadata")) schema.metadata = page.document["metadata"];
    const Json text = page.document.value("metadata_text", Json());
    if (text.is_string()) schema.metadata_text = text.get<std::string>();
    return ckpt::ok_status();
  }));
  // A daemon of an older version sends no text of the metadata.
  if (schema.metadata_text.empty() && !schema.metadata.is_null()) {
    schema.metadata_text = schema.metadata.dump();
  }
  return schema;
}

Json units_json(const std::vector<ViewUnit>& units) {
  Json list = Json::array();
  for (const ViewUnit& unit : units) {
    Json tensors = Json::array();
    for (const ckpt::TensorSpec& tensor : unit.tensors) {
      tensors.push_back({{"name", tensor.name},
                         {"dtype", ckpt::dtype_name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"offset", tensor.offset}});
    }
    list.push_back({{"id", unit.id},
                    {"unit", unit.name},
                    {"bytes", unit.bytes},
                    {"layer", attribute(unit.layer)},
                    {"expert", attribute(unit.expert)},
                    {"part", unit.part},
                    {"tensors", std::move(tensors)}});
  }
  return list;
}

Result<std::vector<ViewUnit>> units_from_json(const char* what, const Json& document) {
  return read_document(what, [&]() -> Result<std::vector<ViewUnit>> {
    std::vector<ViewUnit> units;
    for (const Json& json : document.at("units")) {
      ViewUnit unit;
      unit.id = json.at("id").get<ckpt::UnitId>();
      unit.name = json.at("unit").get<std::string>();
      unit.bytes = json.at("bytes").get<uint64_t>();
      unit.layer = attribute_from(json.at("layer"));
      unit.expert = attribute_from(json.at("expert"));
      unit.part = json.at("part").get<std::string>();
      for (const Json& tensor : json.at("tensors")) {
        CKPT_ASSIGN(ckpt::TensorSpec spec, tensor_from(tensor));
        unit.tensors.push_back(std::move(spec));
      }
      units.push_back(std::move(unit));
    }
    return units;
  });
}

Result<View> load_view(Link& link, const std::string& target) {
  View view;
  bool first = true;
  CKPT_TRY(link.pages("show", {{"target", target}}, [&](const AnswerPage& page) {
    return read_document("show: the daemon's answer", [&]() -> Status {
      const Json& document = page.document;
      if (std::exchange(first, false)) {
        view.run = document.at("run").get<std::string>();
        view.lineage = document.at("lineage").get<uint32_t>();
        view.step = document.at("step").get<uint64_t>();
        view.complete = document.at("complete").get<bool>();
        view.lost = document.value("lost", "");
        view.blobs = document.value("blobs", Json::array()).size();  // older daemons know none
        for (const Json& stretch : document.at("path")) {
          view.path.push_back(
              {stretch.at("lineage").get<uint32_t>(), stretch.at("newest_step").get<uint64_t>()});
        }
      }
      for (const Json& unit : document.at("units")) {
        const std::string name = unit.at("unit").get<std::string>();
        view.units.insert(name);
        if (unit.at("version_step").is_null()) {
          view.missing.push_back(name);
        } else if (unit.at("staleness").get<uint64_t>() > 0) {
          view.stale.push_back(name);
        }
      }
      return ckpt::ok_status();
    });
  }));
  return view;
}

void keep_units_of(const View& view, Schema& schema) {
  std::erase_if(schema.units,
                [&](const ViewUnit& unit) { return !view.units.contains(unit.name); });
}

std::string exact_target(const View& view) {
  return fmt::format("{}~{}@{}", view.run, view.lineage, view.step);
}

Result<View> hold_view(Link& link, const std::string& target) {
  constexpr int kTries = 3;  // the commit of `latest` may be removed before the hold
  for (int tried = 1;; ++tried) {
    CKPT_ASSIGN(const Json head, link.head("show", {{"target", target}}));
    View view;
    CKPT_TRY(read_document("show: the daemon's answer", [&]() -> Status {
      view.run = head.at("run").get<std::string>();
      view.lineage = head.at("lineage").get<uint32_t>();
      view.step = head.at("step").get<uint64_t>();
      return ckpt::ok_status();
    }));
    auto hold = link.hold(view.run, view.lineage, view.step);
    if (hold.ok()) {
      view.hold = std::move(hold).value();
      return view;
    }
    if (hold.error().code != ErrorCode::kNotFound || tried == kTries) return hold.error();
  }
}

Result<View> load_held_view(Link& link, const std::string& target) {
  CKPT_ASSIGN(View held, hold_view(link, target));
  CKPT_ASSIGN(View view, load_view(link, exact_target(held)));
  view.hold = std::move(held.hold);
  return view;
}

Status keep_holding(const View& view) {
  if (view.hold == nullptr) return ckpt::ok_status();
  const auto renewed = view.hold->renew();
  return renewed ? ckpt::ok_status() : Status(as_error(renewed.error()));
}

// Reads a page of each lineage in turn, from the view's step down. Commits of one lineage are in
// the order of their steps, except for the few that are open at a time.
Result<std::optional<uint64_t>> find_older_step(Link& link, const View& view) {
  constexpr size_t kAtOnce = 16;
  for (const View::Stretch& stretch : view.path) {
    uint64_t before = std::min(view.step, stretch.newest_step + 1);
    while (true) {
      CKPT_ASSIGN(const Json log,
                  link.document("log", {{"target", fmt::format("{}~{}", view.run, stretch.lineage)},
                                        {"before", before},
                                        {"limit", kAtOnce}}));
      if (log.empty()) break;
      CKPT_ASSIGN(const auto older, older_step(view, log));
      if (older) return older;
      CKPT_ASSIGN(before, lowest_step(log));
    }
  }
  return std::optional<uint64_t>();
}

Result<std::optional<uint64_t>> older_step(const View& view, const Json& log) {
  return read_document("log: the daemon's answer", [&]() -> Result<std::optional<uint64_t>> {
    std::optional<uint64_t> older;
    for (const Json& commit : log) {
      const auto lineage = commit.at("lineage").get<uint32_t>();
      const auto step = commit.at("step").get<uint64_t>();
      const bool seen =
          std::any_of(view.path.begin(), view.path.end(), [&](const View::Stretch& stretch) {
            return stretch.lineage == lineage && step <= stretch.newest_step;
          });
      if (!seen || step >= view.step || commit.at("level") == "damaged") continue;
      older = std::max(older.value_or(0), step);
    }
    return older;
  });
}

std::vector<std::vector<WantedBytes>> in_batches(const std::vector<WantedBytes>& wanted) {
  constexpr uint64_t kElementMax = 8;
  constexpr size_t kPiecesMax = 1 << 16;  // half of the daemon's limit of ranges per restore
  std::vector<std::vector<WantedBytes>> batches;
  uint64_t room = 0;
  for (const WantedBytes& piece : wanted) {
    for (uint64_t at = 0; at < piece.length;) {
      uint64_t length = piece.length - at;
      const bool full = !batches.empty() && batches.back().size() == kPiecesMax;
      if (length > room) {
        length = length > kReadBytes ? ckpt::base::align_down(room, kElementMax) : 0;
      }
      if (full) length = 0;
      if (length == 0) {
        batches.emplace_back();
        room = kReadBytes;
        continue;
      }
      batches.back().push_back(part_of(piece, at, length));
      room -= length;
      at += length;
    }
  }
  return batches;
}

Status read_batch(Link& link, const View& view, const std::vector<WantedBytes>& batch,
                  ckpt::MutableByteView buffer) {
  std::vector<ckpt_range> ranges;
  uint64_t at = 0;
  for (const WantedBytes& piece : batch) {
    CKPT_ASSERT(ckpt::base::range_fits(at, piece.length, buffer.size()));
    ranges.push_back({piece.unit, piece.offset, piece.length, buffer.data() + at});
    at += piece.length;
  }
  CKPT_TRY(keep_holding(view));
  return link.read(view.run, view.lineage, view.step, ranges);
}

}  // namespace ckptctl

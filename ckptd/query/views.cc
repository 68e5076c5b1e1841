// Documents about a view: what each unit is as of a step.
#include <algorithm>
#include <map>

#include "ckptd/query/documents.h"

namespace ckptd {
namespace {

using Specs = std::vector<ckpt::UnitSpec>;

struct View {
  Resolved at;
  std::shared_ptr<const Specs> specs;
  std::vector<std::optional<UnitVersion>> versions;  // by unit
};

// `name` is the argument that selects the view.
Result<View> read_view(const QueryContext& context, const QueryArgs& args,
                       const std::string& name) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector(name));
  View view;
  CKPT_ASSIGN(view.at, resolve_selector(context, selector));
  CKPT_ASSIGN(view.specs, context.catalog.units(view.at.run.id));
  CKPT_ASSIGN(const bool memory, args.flag("memory"));
  std::optional<MemoryVersions> in_memory;
  if (memory && context.memory_versions) in_memory.emplace(context.memory_versions(view.at.run.id));
  const auto path = context.catalog.path(view.at.run.id, view.at.point);
  view.versions.reserve(view.specs->size());
  for (ckpt::UnitId unit = 0; unit < view.specs->size(); ++unit) {
    auto version =
        context.catalog.newest_version(view.at.run.id, unit, view.at.point, std::nullopt);
    auto kept = in_memory ? in_memory->of(unit) : std::nullopt;
    if (shows_memory(path, version, kept)) version = std::move(kept);
    view.versions.push_back(std::move(version));
  }
  CKPT_TRY(context.catalog.health());
  return view;
}

Json point_json(const View& view) {
  return {
      {"run", view.at.run.name}, {"step", view.at.point.step}, {"lineage", view.at.point.lineage}};
}

// Ancestors' steps are never after the view's: staleness is never negative.
ckpt::Step staleness(const View& view, ckpt::Step version_step) {
  return view.at.point.step - std::min(view.at.point.step, version_step);
}

// An expert is as old as the oldest of its units, and missing if one of them is.
struct ExpertAge {
  bool missing = false;
  std::optional<ViewPoint> oldest;  // the commit of that unit

  void take(const std::optional<UnitVersion>& version) {
    if (!version) {
      missing = true;
    } else if (!oldest || version->snapshot.step < oldest->step) {
      oldest = {version->snapshot.lineage, version->snapshot.step};
    }
  }
};

using Experts = std::map<uint32_t, std::map<uint32_t, ExpertAge>>;  // by layer, then expert

Experts expert_ages(const View& view) {
  Experts layers;
  for (ckpt::UnitId unit = 0; unit < view.versions.size(); ++unit) {
    const ckpt::UnitSpec& spec = (*view.specs)[unit];
    if (spec.expert) layers[spec.layer.value_or(0)][*spec.expert].take(view.versions[unit]);
  }
  return layers;
}

// Tokens between a version and the view, and those lost before. Commits are read once each: a view
// has as many as its oldest unit is snapshots old.
class LostTokens {
 public:
  LostTokens(const QueryContext& context, const View& view)
      : catalog_(context.catalog),
        run_(view.at.run.id),
        point_(view.at.point),
        at_view_(read(point_)) {}

  // null: the view's commit or the version's was not told, or they contradict each other.
  Json lost(uint32_t layer, uint32_t expert, const ExpertAge& age) {
    if (age.missing || !age.oldest) return nullptr;
    if (age.oldest->step >= point_.step) return 0;
    const auto now = ckpt::counts_of(at_view_.counts, layer, expert);
    if (!now) return nullptr;
    auto [then, added] = by_commit_.try_emplace(*age.oldest);
    if (added) then->second = read(*age.oldest);
    const auto before = ckpt::counts_of(then->second.counts, layer, expert);
    if (then->second.told != at_view_.told) return nullptr;
    if (!before || before->held() > now->held()) return nullptr;
    return now->held() - before->held();
  }

  // By recoveries, as of the view's step. null: its commit was not told.
  Json so_far(uint32_t layer, uint32_t expert) const {
    const auto now = ckpt::counts_of(at_view_.counts, layer, expert);
    return at_view_.told && now ? Json(now->lost) : Json();
  }

 private:
  struct Counts {
    ckpt::ExpertTokenCounts counts;
    bool told = false;  // what was lost, too
  };
  Counts read(ViewPoint commit) const {
    const auto info = catalog_.commit(run_, commit.lineage, commit.step);
    return {catalog_.expert_tokens(run_, commit), info && losses_told(*info)};
  }

  const Catalog& catalog_;
  const ckpt::RunId run_;
  const ViewPoint point_;
  const Counts at_view_;
  std::map<ViewPoint, Counts> by_commit_;
};

Json unit_json(const View& view, ckpt::UnitId unit, LostTokens& tokens) {
  const ckpt::UnitSpec& spec = (*view.specs)[unit];
  const auto& version = view.versions[unit];
  Json document = {{"unit", spec.name}};
  document["version_step"] = version ? Json(version->snapshot.step) : Json();
  document["version_lineage"] = version ? Json(version->snapshot.lineage) : Json();
  document["staleness"] = version ? Json(staleness(view, version->snapshot.step)) : Json();
  document["level"] = version ? Json(memory_only(*version) ? "staged" : "durable") : Json();
  document["bytes"] = spec.bytes;
  document["crc32c"] = version ? Json(hex32(version->crc32c)) : Json();
  document["layer"] = attribute(spec.layer);
  document["expert"] = attribute(spec.expert);
  document["part"] = ckpt::unit_part_name(spec.part);
  ExpertAge age;
  age.take(version);
  document["lost_tokens"] =
      spec.expert ? tokens.lost(spec.layer.value_or(0), *spec.expert, age) : Json();
  return document;
}

Json expert_json(const View& view, uint32_t layer, uint32_t expert, const ExpertAge& age,
                 LostTokens& tokens) {
  const bool known = !age.missing && age.oldest;
  return {{"expert", expert},
          {"version_step", known ? Json(age.oldest->step) : Json()},
          {"staleness", known ? Json(staleness(view, age.oldest->step)) : Json()},
          {"lost_tokens", tokens.lost(layer, expert, age)},
          {"lost_so_far", tokens.so_far(layer, expert)}};
}

Json change_json(const std::string& unit, const std::optional<UnitVersion>& from,
                 const std::optional<UnitVersion>& to) {
  const char* change = !from ? "added" : !to ? "removed" : "changed";
  return {{"unit", unit},
          {"change", change},
          {"from_step", from ? Json(from->snapshot.step) : Json()},
          {"to_step", to ? Json(to->snapshot.step) : Json()},
          {"bytes", to ? to->bytes : from->bytes}};
}

bool differs(const std::optional<UnitVersion>& from, const std::optional<UnitVersion>& to) {
  if (!from || !to) return from.has_value() != to.has_value();
  return from->snapshot != to->snapshot && (from->bytes != to->bytes || from->crc32c != to->crc32c);
}

}  // namespace

Result<Json> show_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const View view, read_view(context, args, "target"));
  Json document = point_json(view);
  document["complete"] = !view.versions.empty() &&
                         std::all_of(view.versions.begin(), view.versions.end(),
                                     [](const auto& version) { return version.has_value(); });
  const ViewPoint point = view.at.point;
  const auto commit = context.catalog.commit(view.at.run.id, point.lineage, point.step);
  if (commit && commit->damaged) document["damaged"] = commit->reason;
  document["path"] = Json::array();
  for (const ViewPoint& stretch : context.catalog.path(view.at.run.id, point)) {
    document["path"].push_back({{"lineage", stretch.lineage}, {"newest_step", stretch.step}});
  }
  document["units"] = Json::array();
  LostTokens tokens(context, view);
  for (ckpt::UnitId unit = 0; unit < view.versions.size(); ++unit) {
    document["units"].push_back(unit_json(view, unit, tokens));
  }
  return document;
}

Result<Json> experts_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const View view, read_view(context, args, "target"));
  LostTokens tokens(context, view);
  Json document = point_json(view);
  document["layers"] = Json::array();
  for (const auto& [layer, experts] : expert_ages(view)) {
    Json list = Json::array();
    for (const auto& [expert, age] : experts) {
      list.push_back(expert_json(view, layer, expert, age, tokens));
    }
    document["layers"].push_back({{"layer", layer}, {"experts", std::move(list)}});
  }
  return document;
}

Result<Json> diff_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const View from, read_view(context, args, "from"));
  CKPT_ASSIGN(const View to, read_view(context, args, "to"));
  // Two runs may hold different units: what they share is the names.
  std::map<std::string, std::pair<std::optional<UnitVersion>, std::optional<UnitVersion>>> units;
  for (ckpt::UnitId unit = 0; unit < from.versions.size(); ++unit) {
    units[(*from.specs)[unit].name].first = from.versions[unit];
  }
  for (ckpt::UnitId unit = 0; unit < to.versions.size(); ++unit) {
    units[(*to.specs)[unit].name].second = to.versions[unit];
  }
  Json list = Json::array();
  uint64_t bytes = 0;
  for (const auto& [name, versions] : units) {
    if (!differs(versions.first, versions.second)) continue;
    list.push_back(change_json(name, versions.first, versions.second));
    bytes += versions.second ? versions.second->bytes : versions.first->bytes;
  }
  return Json{{"from", point_json(from)},
              {"to", point_json(to)},
              {"bytes", bytes},
              {"units", std::move(list)}};
}

Result<Json> restore_plan_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  CKPT_ASSIGN(const Resolved at, resolve_selector(context, selector));
  CKPT_ASSIGN(const auto specs, context.catalog.units(at.run.id));
  RestoreRequest request{.run = at.run.id, .point = at.point, .wants = {}};
  for (ckpt::UnitId unit = 0; unit < specs->size(); ++unit) {
    request.wants.push_back({unit, 0, (*specs)[unit].bytes});
  }
  CKPT_ASSIGN(const RestorePlan plan,
              plan_restore(request, catalog_oracle(context.catalog, request, context.in_memory)));

  Json sources = Json::array();
  const auto add = [&](Source source, uint64_t bytes, double bytes_per_second) {
    if (bytes == 0) return;
    const double seconds = static_cast<double>(bytes) / bytes_per_second;
    sources.push_back({{"source", source_name(source)},
                       {"bytes", bytes},
                       {"seconds", bytes_per_second > 0 ? Json(seconds) : Json()}});
  };
  add(Source::kMemory, plan.bytes_memory, context.memory_bytes_per_second);
  add(Source::kSegment, plan.bytes_segment, context.segment_bytes_per_second);
  return Json{{"run", at.run.name},
              {"step", at.point.step},
              {"lineage", at.point.lineage},
              {"sources", std::move(sources)}};
}

}  // namespace ckptd

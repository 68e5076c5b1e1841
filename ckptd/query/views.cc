// Documents about a view: what each unit is as of a step.
#include <algorithm>
#include <map>

#include "ckptd/query/documents.h"
#include "ckptd/query/rows.h"

namespace ckptd {
namespace {

using Specs = std::vector<ckpt::UnitSpec>;

// A unit as of the view: its version, without the places of its bytes.
struct Seen {
  ViewPoint commit;  // that it came with
  uint32_t crc32c = 0;
  bool memory_only = false;
};

struct View {
  Resolved at;
  std::shared_ptr<const Specs> specs;
  std::vector<std::optional<Seen>> units;  // by id; nullopt: the view lacks it
};

std::optional<ViewPoint> commit_of(const std::optional<Seen>& seen) {
  return seen ? std::optional(seen->commit) : std::nullopt;
}

std::optional<uint64_t> step_of(const std::optional<Seen>& seen) {
  return seen ? std::optional(seen->commit.step) : std::nullopt;
}

// What is in memory only takes the place of what is older.
void show_memory(const std::vector<ViewPoint>& path, MemoryVersions memory, View& view) {
  for (ckpt::UnitId unit = 0; unit < view.units.size(); ++unit) {
    const auto kept = memory.of(unit);
    if (!kept) continue;
    const Seen seen{{kept->snapshot.lineage, kept->snapshot.step}, kept->crc32c, true};
    if (shows_memory(path, commit_of(view.units[unit]), seen.commit)) view.units[unit] = seen;
  }
}

// `name` is the argument that selects the view.
Result<View> read_view(const QueryContext& context, const QueryArgs& args,
                       const std::string& name) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector(name));
  View view;
  CKPT_ASSIGN(view.at, resolve_selector(context, selector));
  CKPT_ASSIGN(view.specs, context.catalog.units(view.at.run.id));
  CKPT_ASSIGN(const bool memory, args.flag("memory"));
  const ckpt::RunId run = view.at.run.id;
  view.units.resize(view.specs->size());
  const std::vector<std::optional<UnitSum>> sums = context.catalog.newest_sums(run, view.at.point);
  for (ckpt::UnitId unit = 0; unit < std::min(sums.size(), view.units.size()); ++unit) {
    if (!sums[unit]) continue;
    view.units[unit] = Seen{{sums[unit]->lineage, sums[unit]->step}, sums[unit]->crc32c, false};
  }
  if (memory && context.memory_versions) {
    show_memory(context.catalog.path(run, view.at.point), context.memory_versions(run), view);
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

  void take(const std::optional<Seen>& seen) {
    if (!seen) {
      missing = true;
    } else if (!oldest || seen->commit.step < oldest->step) {
      oldest = seen->commit;
    }
  }
};

using Experts = std::map<uint32_t, std::map<uint32_t, ExpertAge>>;  // by layer, then expert

Experts expert_ages(const View& view) {
  Experts layers;
  for (ckpt::UnitId unit = 0; unit < view.units.size(); ++unit) {
    const ckpt::UnitSpec& spec = (*view.specs)[unit];
    if (spec.expert) layers[spec.layer.value_or(0)][*spec.expert].take(view.units[unit]);
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

  // nullopt: the view's commit or the version's was not told, or they contradict each other.
  std::optional<uint64_t> lost(uint32_t layer, uint32_t expert, const ExpertAge& age) {
    if (age.missing || !age.oldest) return std::nullopt;
    if (age.oldest->step >= point_.step) return 0;
    const auto now = ckpt::counts_of(at_view_.counts, layer, expert);
    if (!now) return std::nullopt;
    auto [then, added] = by_commit_.try_emplace(*age.oldest);
    if (added) then->second = read(*age.oldest);
    const auto before = ckpt::counts_of(then->second.counts, layer, expert);
    if (then->second.told != at_view_.told) return std::nullopt;
    if (!before || before->held() > now->held()) return std::nullopt;
    return now->held() - before->held();
  }

  // By recoveries, as of the view's step. nullopt: its commit was not told.
  std::optional<uint64_t> so_far(uint32_t layer, uint32_t expert) const {
    const auto now = ckpt::counts_of(at_view_.counts, layer, expert);
    return at_view_.told && now ? std::optional(now->lost) : std::nullopt;
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

void add_unit(Rows& rows, const View& view, ckpt::UnitId unit, LostTokens& tokens) {
  const ckpt::UnitSpec& spec = (*view.specs)[unit];
  const std::optional<Seen>& seen = view.units[unit];
  rows.begin();
  rows.add("unit", spec.name);
  rows.add("version_step", step_of(seen));
  if (seen) {
    rows.add("version_lineage", seen->commit.lineage);
    rows.add("staleness", staleness(view, seen->commit.step));
    rows.add("level", seen->memory_only ? "staged" : "durable");
  } else {
    for (const char* name : {"version_lineage", "staleness", "level"}) {
      rows.add(name, std::nullopt);
    }
  }
  rows.add("bytes", spec.bytes);
  if (seen) {
    rows.add("crc32c", hex32(seen->crc32c));
  } else {
    rows.add("crc32c", std::nullopt);
  }
  rows.add("layer", spec.layer);
  rows.add("expert", spec.expert);
  rows.add("part", ckpt::unit_part_name(spec.part));
  ExpertAge age;
  age.take(seen);
  rows.add("lost_tokens",
           spec.expert ? tokens.lost(spec.layer.value_or(0), *spec.expert, age) : std::nullopt);
}

Json expert_json(const View& view, uint32_t layer, uint32_t expert, const ExpertAge& age,
                 LostTokens& tokens) {
  const bool known = !age.missing && age.oldest;
  return {{"expert", expert},
          {"version_step", known ? Json(age.oldest->step) : Json()},
          {"staleness", known ? Json(staleness(view, age.oldest->step)) : Json()},
          {"lost_tokens", attribute(tokens.lost(layer, expert, age))},
          {"lost_so_far", attribute(tokens.so_far(layer, expert))}};
}

// A unit of either view: two runs may hold different ones, what they share is the names.
struct Change {
  std::optional<Seen> from;
  std::optional<Seen> to;
  uint64_t from_bytes = 0;
  uint64_t to_bytes = 0;

  bool differs() const {
    if (!from || !to) return from.has_value() != to.has_value();
    return from_bytes != to_bytes || from->crc32c != to->crc32c;
  }
  uint64_t bytes() const { return to ? to_bytes : from_bytes; }
};

std::map<std::string_view, Change> changes_between(const View& from, const View& to) {
  std::map<std::string_view, Change> changes;
  for (ckpt::UnitId unit = 0; unit < from.units.size(); ++unit) {
    const ckpt::UnitSpec& spec = (*from.specs)[unit];
    Change& change = changes[spec.name];
    change.from = from.units[unit];
    change.from_bytes = spec.bytes;
  }
  for (ckpt::UnitId unit = 0; unit < to.units.size(); ++unit) {
    const ckpt::UnitSpec& spec = (*to.specs)[unit];
    Change& change = changes[spec.name];
    change.to = to.units[unit];
    change.to_bytes = spec.bytes;
  }
  return changes;
}

}  // namespace

Result<std::string> show_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const View view, read_view(context, args, "target"));
  Json document = point_json(view);
  document["complete"] =
      !view.units.empty() && std::ranges::all_of(view.units, &std::optional<Seen>::has_value);
  const ViewPoint point = view.at.point;
  const auto commit = context.catalog.commit(view.at.run.id, point.lineage, point.step);
  if (commit && commit->damaged) document["damaged"] = commit->reason;
  document["path"] = Json::array();
  for (const ViewPoint& stretch : context.catalog.path(view.at.run.id, point)) {
    document["path"].push_back({{"lineage", stretch.lineage}, {"newest_step", stretch.step}});
  }
  LostTokens tokens(context, view);
  Rows rows(document, "units", view.units.size());
  for (ckpt::UnitId unit = 0; unit < view.units.size(); ++unit) add_unit(rows, view, unit, tokens);
  return std::move(rows).text();
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

Result<std::string> diff_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const View from, read_view(context, args, "from"));
  CKPT_ASSIGN(const View to, read_view(context, args, "to"));
  std::map<std::string_view, Change> changes = changes_between(from, to);
  std::erase_if(changes, [](const auto& change) { return !change.second.differs(); });
  uint64_t bytes = 0;
  for (const auto& [name, change] : changes) bytes += change.bytes();
  const Json document = {{"from", point_json(from)}, {"to", point_json(to)}, {"bytes", bytes}};
  Rows rows(document, "units", changes.size());
  for (const auto& [name, change] : changes) {
    rows.begin();
    rows.add("unit", name);
    rows.add("change", !change.from ? "added" : !change.to ? "removed" : "changed");
    rows.add("from_step", step_of(change.from));
    rows.add("to_step", step_of(change.to));
    rows.add("bytes", change.bytes());
  }
  return std::move(rows).text();
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

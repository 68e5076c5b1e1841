// Documents about a view: the version of each unit as of a step.
#include <algorithm>
#include <map>

#include "ckptd/catalog/lost_views.h"
#include "ckptd/query/blobs.h"
#include "ckptd/query/known_damage.h"
#include "ckptd/query/line.h"
#include "ckptd/query/rows.h"
#include "ckptd/query/view.h"

namespace ckptd {
namespace {

// The run's newest undamaged commit, if the run has no complete view: the map marks missing units.
Result<Resolved> newest_point(const QueryContext& context, const ckpt::Selector& selector) {
  auto complete = resolve_selector(context, selector);
  if (complete.ok() || selector.kind != ckpt::Selector::Kind::kRun) return complete;
  CKPT_ASSIGN(RunInfo run, selected_run(context, selector));
  const ckpt::LineageId lineage = selector.lineage != 0 ? selector.lineage : run.current_lineage;
  std::optional<ViewPoint> newest;
  context.catalog.visit_commits(run.id, [&](const CommitInfo& commit) {
    const ViewPoint point{commit.snapshot.lineage, commit.snapshot.step};
    if (!commit.deleted && !commit.damaged && point.lineage == lineage) newest = point;
    return !newest;
  });
  if (!newest) return complete;
  return Resolved{std::move(run), *newest};
}

// Clamped, so that staleness is never negative.
ckpt::Step staleness(const View& view, ckpt::Step version_step) {
  return view.at.point.step - std::min(view.at.point.step, version_step);
}

// An expert is as old as the oldest of its units, and missing if any of them is missing.
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
    if (!spec.expert || view.absent[unit]) continue;
    layers[spec.layer.value_or(0)][*spec.expert].take(view.units[unit]);
  }
  return layers;
}

// Tokens that experts lose if the view is restored, and tokens lost earlier. Each commit is read
// once: a view has as many commits as its oldest unit is snapshots old.
class LostTokens {
 public:
  LostTokens(const QueryContext& context, const View& view)
      : catalog_(context.catalog),
        run_(view.at.run.id),
        point_(view.at.point),
        at_view_(read(point_)) {}

  // nullopt: one of the two commits lacks counts, or their counts contradict each other.
  std::optional<uint64_t> lost(uint32_t layer, uint32_t expert, const ExpertAge& age) {
    if (age.missing || !age.oldest) return std::nullopt;
    if (age.oldest->step >= point_.step) return 0;
    const auto now = ckpt::counts_of(at_view_.counts, layer, expert);
    if (!now) return std::nullopt;
    auto [then, added] = by_commit_.try_emplace(*age.oldest);
    if (added) then->second = read(*age.oldest);
    const auto before = ckpt::counts_of(then->second.counts, layer, expert);
    if (then->second.losses_recorded != at_view_.losses_recorded) return std::nullopt;
    if (!before || before->held() > now->held()) return std::nullopt;
    return now->held() - before->held();
  }

  // Tokens lost in recoveries, up to the view's step. nullopt: its commit lacks counts.
  std::optional<uint64_t> so_far(uint32_t layer, uint32_t expert) const {
    const auto now = ckpt::counts_of(at_view_.counts, layer, expert);
    return at_view_.losses_recorded && now ? std::optional(now->lost) : std::nullopt;
  }

 private:
  struct Counts {
    ckpt::ExpertTokenCounts counts;
    bool losses_recorded = false;  // by the commit
  };
  Counts read(ViewPoint commit) const {
    const auto info = catalog_.commit(run_, commit.lineage, commit.step);
    return {catalog_.expert_tokens(run_, commit), info && losses_recorded(*info)};
  }

  const Catalog& catalog_;
  const ckpt::RunId run_;
  const ViewPoint point_;
  const Counts at_view_;
  std::map<ViewPoint, Counts> by_commit_;
};

// The damage that took the first of the missing units that damage took; empty: none is known.
std::string damage_of_missing(const QueryContext& context, const View& view) {
  size_t looked_up_left = 1024;  // most look-ups of one answer
  for (ckpt::UnitId unit = 0; unit < view.units.size() && looked_up_left > 0; ++unit) {
    if (view.units[unit] || view.absent[unit]) continue;
    --looked_up_left;
    std::string lost = damage_of_unit(context.catalog, view.at.run, view.at.point, unit);
    if (!lost.empty()) return lost;
  }
  return {};
}

bool is_complete(const View& view) {
  for (size_t unit = 0; unit < view.units.size(); ++unit) {
    if (!view.units[unit] && !view.absent[unit]) return false;
  }
  return !view.units.empty();
}

// Known damage of the version of a unit that the view shows; null: none.
const ScrubDamage* damage_of(const KnownDamage& damage, const View& view, ckpt::UnitId unit) {
  const std::optional<Seen>& seen = view.units[unit];
  return seen && !seen->memory_only ? damage.of(seen->commit, unit) : nullptr;
}

bool add_unit(Rows& rows, const View& view, ckpt::UnitId unit, LostTokens& tokens,
              const ScrubDamage* damage) {
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
  if (damage != nullptr) {
    rows.add("damage", damage->reason);
    rows.add("damage_found", iso_time(damage->found_ns));
  }
  return rows.end();
}

// Maximum size of an expert in a page, in bytes.
constexpr size_t kExpertBytes = 192;

Json expert_json(const View& view, uint32_t layer, uint32_t expert, const ExpertAge& age,
                 LostTokens& tokens) {
  const bool known = !age.missing && age.oldest;
  return {{"expert", expert},
          {"version_step", known ? Json(age.oldest->step) : Json()},
          {"staleness", known ? Json(staleness(view, age.oldest->step)) : Json()},
          {"lost_tokens", attribute(tokens.lost(layer, expert, age))},
          {"lost_so_far", attribute(tokens.so_far(layer, expert))}};
}

}  // namespace

// A page's position: a unit of a view.
Result<Page> show_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const Position from, args.position(kViewNumbers + 1));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  CKPT_ASSIGN(const View view, read_view(context, args, "target", from));
  Json document = point_json(view);
  document["complete"] = is_complete(view);
  if (!view.damaged.empty()) document["damaged"] = view.damaged;
  if (std::string lost = damage_of_missing(context, view); !lost.empty()) {
    document["lost"] = std::move(lost);
  }
  const KnownDamage damage(context, view.at.run, *view.specs);
  uint64_t damaged_units = 0;
  for (ckpt::UnitId unit = 0; !damage.empty() && unit < view.units.size(); ++unit) {
    if (damage_of(damage, view, unit) != nullptr) ++damaged_units;
  }
  document["damaged_units"] = damaged_units;
  if (damaged_units > 0) {
    document["remedy"] = damage_remedy(CommitNames(context.catalog, view.at.run).of(view.at.point));
  }
  if (from.empty()) {
    document["path"] = Json::array();
    for (const ViewPoint& stretch : context.catalog.path(view.at.run.id, view.at.point)) {
      document["path"].push_back({{"lineage", stretch.lineage}, {"newest_step", stretch.step}});
    }
    document["blobs"] = blobs_json(context, view);
  }
  LostTokens tokens(context, view);
  const uint64_t first = from.empty() ? 0 : from.back();
  Rows rows(document, "units", room, view.units.size() - std::min(first, view.units.size()));
  Page page{.json = {}, .lists = {"units"}};
  for (uint64_t unit = first; unit < view.units.size(); ++unit) {
    const auto id = static_cast<ckpt::UnitId>(unit);
    if (view.absent[id]) continue;
    if (add_unit(rows, view, id, tokens, damage_of(damage, view, id))) continue;
    page.next = view_position(view);
    page.next.push_back(unit);
    break;
  }
  page.json = std::move(rows).text();
  return page;
}

// A page's position: an expert of a layer of a view. A split layer continues on the next page.
Result<Page> experts_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const Position from, args.position(kViewNumbers + 2));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  CKPT_ASSIGN(const View view, read_view(context, args, "target", from, newest_point));
  const std::pair<uint64_t, uint64_t> first =
      from.empty() ? std::pair<uint64_t, uint64_t>() : std::pair(from[5], from[6]);
  LostTokens tokens(context, view);
  Rows rows(point_json(view), "layers", room);
  Page page{.json = {}, .lists = {"layers"}};
  const size_t at_once = args.paged() ? std::max<size_t>(1, room / kExpertBytes) : SIZE_MAX;
  for (const auto& [layer, experts] : expert_ages(view)) {
    auto expert = experts.begin();
    if (layer <= first.first) {
      if (layer < first.first) continue;
      expert =
          std::ranges::find_if(experts, [&](const auto& e) { return e.first >= first.second; });
    }
    while (expert != experts.end() && page.next.empty()) {
      const uint32_t begin = expert->first;
      Json list = Json::array();
      for (; expert != experts.end() && list.size() < at_once; ++expert) {
        list.push_back(expert_json(view, layer, expert->first, expert->second, tokens));
      }
      if (rows.add_row({{"layer", layer}, {"experts", std::move(list)}})) continue;
      page.next = view_position(view);
      page.next.insert(page.next.end(), {layer, begin});
    }
    if (!page.next.empty()) break;
  }
  page.json = std::move(rows).text();
  return page;
}

namespace {

// True if the first source of a fragment is the segments. Known damage is theirs: scrub and verify
// read nothing else.
bool reads_segments(const PlaceOracle& places, const UnitVersion& version) {
  return std::ranges::any_of(version.fragments, [&](const auto& fragment) {
    const auto place = places.first(version.snapshot, version.unit, fragment);
    return !place || place->source == SourceId::kSegment;
  });
}

// A restore that reads a damaged version takes the version before it. The plan does so for versions
// that are known to be damaged. `damage` must outlive the oracle.
RestoreOracle passing_over_damage(RestoreOracle oracle, const KnownDamage& damage) {
  if (damage.empty()) return oracle;
  const auto damage_of = [places = oracle.places, &damage](const UnitVersion& version) {
    return reads_segments(places, version)
               ? damage.of({version.snapshot.lineage, version.snapshot.step}, version.unit)
               : nullptr;
  };
  const auto newest = oracle.newest_version;
  oracle.newest_version = [newest, damage_of](ckpt::UnitId unit, const auto& before) {
    std::optional<UnitVersion> version = newest(unit, before);
    while (version && damage_of(*version) != nullptr) {
      const ckpt::SnapshotKey damaged = version->snapshot;
      version = newest(unit, damaged);
    }
    return version;
  };
  oracle.damaged_version = [newest, damage_of, of_commits = oracle.damaged_version](
                               ckpt::UnitId unit) -> std::optional<DamagedVersion> {
    if (auto of_commit = of_commits(unit)) return of_commit;
    const std::optional<UnitVersion> own = newest(unit, std::nullopt);
    const ScrubDamage* found = own ? damage_of(*own) : nullptr;
    if (found == nullptr) return std::nullopt;
    return DamagedVersion{own->snapshot, found->reason};
  };
  return oracle;
}

// Units that the plan takes from an older step. At most a screenful; the rest is counted.
Json plan_notes(const RestorePlan& plan) {
  constexpr size_t kNotesMax = 16;
  Json notes = Json::array();
  size_t left_out = 0;
  for (const WantedVersion& version : plan.versions) {
    if (version.note.empty()) continue;
    if (notes.size() < kNotesMax) {
      notes.push_back(version.note);
    } else {
      ++left_out;
    }
  }
  if (left_out > 0) notes.push_back(fmt::format("and {} more of the kind", left_out));
  return notes;
}

}  // namespace

Result<Page> restore_plan_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  CKPT_ASSIGN(const Resolved at, resolve_selector(context, selector));
  CKPT_ASSIGN(const auto specs, context.catalog.units(at.run.id));
  RestoreRequest request{.run = at.run.id, .point = at.point, .wants = {}};
  for (ckpt::UnitId unit = 0; unit < specs->size(); ++unit) {
    if (!context.catalog.belongs(at.run.id, unit, at.point)) continue;
    request.wants.push_back({unit, 0, (*specs)[unit].bytes});
  }
  const Sources none;
  const Sources& list = context.sources != nullptr ? *context.sources : none;
  const KnownDamage damage(context, at.run, *specs);
  CKPT_ASSIGN(const RestorePlan plan,
              plan_restore(request, passing_over_damage(catalog_oracle(context.catalog, request,
                                                                       list.places(context.uid)),
                                                        damage)));

  Json sources = Json::array();
  for (const auto& source : list.in_order()) {
    const uint64_t bytes = plan.bytes[source->id()];
    if (bytes == 0) continue;
    const double bytes_per_second = source->expected_bandwidth();
    const double seconds = static_cast<double>(bytes) / bytes_per_second;
    sources.push_back({{"source", source->name()},
                       {"bytes", bytes},
                       {"seconds", bytes_per_second > 0 ? Json(seconds) : Json()}});
  }
  const Json document = {{"run", at.run.name},
                         {"step", at.point.step},
                         {"lineage", at.point.lineage},
                         {"sources", std::move(sources)},
                         {"notes", plan_notes(plan)}};
  return Page{.json = dump(document), .lists = {"sources"}};
}

}  // namespace ckptd

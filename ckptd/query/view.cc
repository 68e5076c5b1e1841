#include "ckptd/query/view.h"

#include <algorithm>

namespace ckptd {
namespace {

std::optional<ViewPoint> commit_of(const std::optional<Seen>& seen) {
  return seen ? std::optional(seen->commit) : std::nullopt;
}

// A version in memory replaces only an older durable version.
void show_memory(const std::vector<ViewPoint>& path, MemoryVersions memory, View& view) {
  for (ckpt::UnitId unit = 0; unit < view.units.size(); ++unit) {
    const auto kept = memory.of(unit);
    if (!kept) continue;
    const Seen seen{{kept->snapshot.lineage, kept->snapshot.step}, kept->crc32c, true};
    if (shows_memory(path, commit_of(view.units[unit]), seen.commit)) view.units[unit] = seen;
  }
}

// The view of the previous pages; its commit must be unchanged.
Result<Resolved> point_at(const QueryContext& context, const ckpt::Selector& selector,
                          std::span<const uint64_t> position) {
  CKPT_ASSIGN(RunInfo run, selected_run(context, selector));
  if (position[1] > UINT32_MAX) return changed_meanwhile(run.name);
  const ViewPoint point{static_cast<ckpt::LineageId>(position[1]), position[2]};
  const auto commit = context.catalog.commit(run.id, point.lineage, point.step);
  if (run.id != position[0] || !commit || commit->deleted || commit->sequence != position[3]) {
    return changed_meanwhile(run.name);
  }
  return Resolved{std::move(run), point};
}

}  // namespace

Position view_position(const View& view) {
  return {view.at.run.id, view.at.point.lineage, view.at.point.step, view.sequence,
          view.units.size()};
}

Result<View> read_view(const QueryContext& context, const QueryArgs& args, const std::string& name,
                       std::span<const uint64_t> position, Resolve resolve) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector(name));
  View view;
  CKPT_ASSIGN(view.at, position.empty() ? resolve(context, selector)
                                        : point_at(context, selector, position));
  CKPT_ASSIGN(view.specs, context.catalog.units(view.at.run.id));
  CKPT_ASSIGN(const bool memory, args.flag("memory"));
  const ckpt::RunId run = view.at.run.id;
  const ViewPoint point = view.at.point;
  if (const auto commit = context.catalog.commit(run, point.lineage, point.step)) {
    view.sequence = commit->sequence;
    if (commit->damaged) view.damaged = commit->reason;
  }
  // Units registered after the first page are left out.
  view.units.resize(position.empty() ? view.specs->size()
                                     : std::min<uint64_t>(position[4], view.specs->size()));
  const std::vector<std::optional<UnitSum>> sums = context.catalog.newest_sums(run, point);
  for (ckpt::UnitId unit = 0; unit < std::min(sums.size(), view.units.size()); ++unit) {
    if (!sums[unit]) continue;
    view.units[unit] = Seen{{sums[unit]->lineage, sums[unit]->step}, sums[unit]->crc32c, false};
  }
  if (memory && context.memory_versions) {
    show_memory(context.catalog.path(run, point), context.memory_versions(run), view);
  }
  view.absent.resize(view.units.size(), false);
  for (ckpt::UnitId unit = context.catalog.base_units(run); unit < view.units.size(); ++unit) {
    view.absent[unit] = !view.units[unit] && !context.catalog.belongs(run, unit, point);
  }
  CKPT_TRY(context.catalog.health());
  return view;
}

Json point_json(const View& view) {
  return {
      {"run", view.at.run.name}, {"step", view.at.point.step}, {"lineage", view.at.point.lineage}};
}

std::optional<ckpt::Step> step_of(const std::optional<Seen>& seen) {
  return seen ? std::optional(seen->commit.step) : std::nullopt;
}

}  // namespace ckptd

// Documents of the history: runs, their units, a unit's versions. Commits: log.cc.
#include <algorithm>
#include <map>
#include <utility>

#include "ckptd/query/known_damage.h"
#include "ckptd/query/line.h"
#include "ckptd/query/rows.h"
#include "formats/base/printable.h"
#include "formats/json_text.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

Json parent_json(const Catalog& catalog, const RunInfo& run) {
  if (run.parent == 0) return nullptr;
  const auto parent = catalog.run(run.parent);
  const std::string name = parent.ok() ? parent->name : fmt::format("number {}", run.parent);
  return ckpt::commit_name(name, run.parent_lineage, run.parent_step);
}

Json last_step_json(const Catalog& catalog, const RunInfo& run) {
  Json step;
  catalog.visit_commits(run.id, [&](const CommitInfo& commit) {
    if (commit.deleted || commit.damaged) return true;
    step = commit.snapshot.step;
    return false;
  });
  return step;
}

// An earlier version of ckptd may have accepted metadata without checking its depth.
Json metadata_json(const std::string& metadata) {
  if (!ckpt::check_json(metadata).ok()) return nullptr;
  return Json::parse(metadata, nullptr, /*allow_exceptions=*/false);
}

Json spec_json(const ckpt::UnitSpec& spec) {
  return {{"unit", spec.name},
          {"bytes", spec.bytes},
          {"layer", attribute(spec.layer)},
          {"expert", attribute(spec.expert)},
          {"part", ckpt::unit_part_name(spec.part)},
          {"tensors", tensors_json(spec)}};
}

// Stored size of the version's bases, in bytes.
uint64_t base_bytes(const UnitVersion& version) {
  uint64_t bytes = 0;
  for (const FragmentPlace& place : version.fragments) {
    if (place.base) bytes += base_of(place).stored_bytes();
  }
  return bytes;
}

uint64_t stored_bytes(const UnitVersion& version, bool shared) {
  uint64_t bytes = 0;
  for (const FragmentPlace& place : version.fragments) {
    if (place.shared() == shared) bytes += place.stored_bytes();
  }
  return bytes;
}

Json version_json(const UnitVersion& version, const CommitInfo& commit, const ScrubDamage* damage) {
  Json json = {{"step", version.snapshot.step},
               {"lineage", version.snapshot.lineage},
               {"time", iso_time(commit.time_ns)},
               {"bytes", version.bytes},
               {"stored_bytes", stored_bytes(version, /*shared=*/false)},
               {"shared_bytes", stored_bytes(version, /*shared=*/true)},
               {"base_bytes", base_bytes(version)},
               {"crc32c", hex32(version.crc32c)},
               {"fragments", version.fragments.size()}};
  if (damage != nullptr) {
    json["damage"] = damage->reason;
    json["damage_found"] = iso_time(damage->found_ns);
  }
  return json;
}

Json run_json(const Catalog& catalog, const RunInfo& run) {
  return {{"run", run.name},
          {"parent", parent_json(catalog, run)},
          {"created", iso_time(run.created_ns)},
          {"last_step", last_step_json(catalog, run)},
          {"commits", run.commits},
          {"bytes", run.bytes}};
}

// Document of a removed run.
Json removed_json(const RunInfo& run) {
  return {{"run", run.name},
          {"created", iso_time(run.created_ns)},
          {"removed", iso_time(run.removed_ns)},
          {"reason", run.removed_reason},
          {"commits", run.commits},
          {"bytes", run.bytes}};
}

}  // namespace

// A page's position: a run's number.
Result<Page> runs_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const bool removed, args.flag("removed"));
  CKPT_ASSIGN(const Position from, args.position(1));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  Rows rows(Json(), "", room);
  Page page;
  for (const RunInfo& run : removed ? context.catalog.removed_runs() : context.catalog.runs()) {
    if (!from.empty() && run.id < from[0]) continue;
    if (context.may_read && !context.may_read(run)) continue;
    if (rows.add_row(removed ? removed_json(run) : run_json(context.catalog, run))) continue;
    page.next = {run.id};
    break;
  }
  page.json = std::move(rows).text();
  return page;
}

// A page's position: run and unit. Members other than the list are on the first page.
Result<Page> schema_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  CKPT_ASSIGN(const RunInfo run, selected_run(context, selector));
  CKPT_ASSIGN(const auto specs, context.catalog.units(run.id));
  CKPT_ASSIGN(const Position from, args.position(2));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  if (!from.empty() && from[0] != run.id) return changed_meanwhile(run.name);
  Json document = {{"run", run.name}};
  if (from.empty()) {
    document["metadata"] = metadata_json(run.metadata);
    // The text as the trainer gave it: parsing may change the form of numbers.
    document["metadata_text"] = run.metadata;
  }
  const size_t base = context.catalog.base_units(run.id);
  Rows rows(document, "units", room);
  Page page{.json = {}, .lists = {"units"}};
  for (size_t id = from.empty() ? 0 : from[1]; id < specs->size(); ++id) {
    Json unit = {{"id", id}};
    unit.update(spec_json((*specs)[id]));
    if (id >= base) unit["grown"] = true;
    if (rows.add_row(unit)) continue;
    page.next = {run.id, id};
    break;
  }
  page.json = std::move(rows).text();
  return page;
}

// A page's position: the record of a version's commit.
Result<Page> unit_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  CKPT_ASSIGN(const CommitFilter filter, CommitFilter::make(context, selector));
  const RunInfo& run = filter.run();
  CKPT_ASSIGN(const std::string name, args.text("unit"));
  CKPT_ASSIGN(const auto specs, context.catalog.units(run.id));
  const auto spec =
      std::find_if(specs->begin(), specs->end(),
                   [&](const ckpt::UnitSpec& candidate) { return candidate.name == name; });
  if (spec == specs->end()) {
    return make_error(ErrorCode::kNotFound,
                      "run {} unit {}: no such unit; `ckptctl show {}` lists the units", run.name,
                      ckpt::base::printable(name), run.name);
  }
  const auto unit = static_cast<ckpt::UnitId>(spec - specs->begin());

  CKPT_ASSIGN(const Position from, args.position(1));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  // In journal order, like the log.
  std::map<uint64_t, Json, std::greater<>> versions;
  const KnownDamage damage(context, run, *specs);
  for (const UnitVersion& version : context.catalog.versions(run.id, unit)) {
    const ckpt::SnapshotKey& key = version.snapshot;
    if (!filter.matches({key.lineage, key.step})) continue;
    const auto commit = context.catalog.commit(run.id, key.lineage, key.step);
    if (!commit || (!from.empty() && commit->sequence > from[0])) continue;
    versions[commit->sequence] =
        version_json(version, *commit, damage.of({key.lineage, key.step}, unit));
  }
  Json document = {{"run", run.name}};
  document.update(from.empty() ? spec_json(*spec) : Json{{"unit", spec->name}});
  Rows rows(document, "versions", room);
  Page page{.json = {}, .lists = {"versions"}};
  for (const auto& [sequence, version] : versions) {
    if (rows.add_row(version)) continue;
    page.next = {sequence};
    break;
  }
  page.json = std::move(rows).text();
  return page;
}

}  // namespace ckptd

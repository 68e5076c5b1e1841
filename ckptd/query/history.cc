// Documents about what happened: runs, their commits, a unit's versions.
#include <algorithm>
#include <map>
#include <utility>

#include "ckptd/query/documents.h"
#include "ckptd/query/rows.h"
#include "formats/base/printable.h"
#include "formats/json_text.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using Specs = std::vector<ckpt::UnitSpec>;

Json parent_json(const Catalog& catalog, const RunInfo& run) {
  if (run.parent == 0) return nullptr;
  const auto parent = catalog.run(run.parent);
  const std::string name = parent.ok() ? parent->name : fmt::format("number {}", run.parent);
  return fmt::format("{}@{}", name, run.parent_step);
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

// Counts the distinct experts of commits: of thousands of units, once for each commit of a log.
class ExpertCount {
 public:
  explicit ExpertCount(const Specs& specs) {
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers;
    of_unit_.reserve(specs.size());
    for (const ckpt::UnitSpec& spec : specs) {
      if (!spec.expert) {
        of_unit_.push_back(kNone);
        continue;
      }
      const auto next = static_cast<uint32_t>(numbers.size());
      of_unit_.push_back(
          numbers.try_emplace({spec.layer.value_or(0), *spec.expert}, next).first->second);
    }
    seen_in_.resize(numbers.size());
  }
  size_t of(const CommitInfo& commit) {
    ++commits_;
    size_t experts = 0;
    for (const ckpt::UnitId unit : commit.units) {
      if (unit >= of_unit_.size() || of_unit_[unit] == kNone) continue;
      uint32_t& seen_in = seen_in_[of_unit_[unit]];
      if (seen_in != commits_) ++experts;
      seen_in = commits_;
    }
    return experts;
  }

 private:
  static constexpr uint32_t kNone = ~0u;
  std::vector<uint32_t> of_unit_;  // the number of the unit's expert
  std::vector<uint32_t> seen_in_;  // by that number: the last commit it was counted in
  uint32_t commits_ = 0;
};

// What the trainer has counted wins: it knows of faults.
Json plt_json(const CommitInfo& commit) {
  const auto plt = commit.metrics.find("plt");
  if (plt != commit.metrics.end()) return plt->second;
  return commit.full ? Json(0) : Json();
}

// What is left to say of one: when and why it went, and how much of it stays for views of others.
Json deleted_json(const CommitInfo& commit) {
  return {{"step", commit.snapshot.step},     {"lineage", commit.snapshot.lineage},
          {"time", iso_time(commit.time_ns)}, {"deleted", iso_time(commit.ended_ns)},
          {"reason", commit.reason},          {"units_left", commit.units.size()}};
}

Json commit_json(const CommitInfo& commit, ExpertCount& experts,
                 const std::multimap<ViewPoint, std::string>& tags) {
  Json names = Json::array();
  const auto [first, last] = tags.equal_range({commit.snapshot.lineage, commit.snapshot.step});
  for (auto tag = first; tag != last; ++tag) names.push_back(tag->second);
  Json metrics = Json::object();
  for (const auto& [name, value] : commit.metrics) metrics[name] = value;

  Json document = {{"step", commit.snapshot.step},
                   {"lineage", commit.snapshot.lineage},
                   {"time", iso_time(commit.time_ns)},
                   {"level", commit.damaged ? "damaged" : "durable"},
                   {"units", commit.units.size()},
                   {"experts", experts.of(commit)},
                   {"bytes", commit.bytes},
                   {"tags", std::move(names)},
                   {"metrics", std::move(metrics)},
                   {"plt", plt_json(commit)},
                   {"lost_so_far", losses_told(commit) ? Json(commit.lost_tokens) : Json()},
                   {"alarms", commit.alarms.total()}};
  if (commit.damaged) document["reason"] = commit.reason;
  return document;
}

// A store may hold what an earlier daemon took in without a look at its depth.
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

// What the disk has of it: by its own commit, or by earlier ones, whose bytes it shares.
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

Json version_json(const UnitVersion& version, const CommitInfo& commit) {
  return {{"step", version.snapshot.step},
          {"lineage", version.snapshot.lineage},
          {"time", iso_time(commit.time_ns)},
          {"bytes", version.bytes},
          {"stored_bytes", stored_bytes(version, /*shared=*/false)},
          {"shared_bytes", stored_bytes(version, /*shared=*/true)},
          {"base_bytes", base_bytes(version)},
          {"crc32c", hex32(version.crc32c)},
          {"fragments", version.fragments.size()}};
}

Json run_json(const Catalog& catalog, const RunInfo& run) {
  return {{"run", run.name},
          {"parent", parent_json(catalog, run)},
          {"created", iso_time(run.created_ns)},
          {"last_step", last_step_json(catalog, run)},
          {"commits", run.commits},
          {"bytes", run.bytes}};
}

// What is left to say of one that is gone.
Json removed_json(const RunInfo& run) {
  return {{"run", run.name},
          {"created", iso_time(run.created_ns)},
          {"removed", iso_time(run.removed_ns)},
          {"reason", run.removed_reason},
          {"commits", run.commits},
          {"bytes", run.bytes}};
}

}  // namespace

// A page begins at a run's number.
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

// A page begins at a commit's record, with as many commits listed before it.
Result<Page> log_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  CKPT_ASSIGN(const RunInfo run, run_or_lineage(context, selector, "log"));
  CKPT_ASSIGN(const uint64_t limit, args.number("limit", ~uint64_t{0}));
  CKPT_ASSIGN(const uint64_t before, args.number("before", ~uint64_t{0}));
  CKPT_ASSIGN(const bool deleted, args.flag("deleted"));
  CKPT_ASSIGN(const Position from, args.position(2));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  CKPT_ASSIGN(const auto specs, context.catalog.units(run.id));
  std::multimap<ViewPoint, std::string> tags;
  for (const auto& [tag, point] : context.catalog.tags(run.id)) tags.emplace(point, tag);

  ExpertCount experts(*specs);
  Rows rows(Json(), "", room);
  Page page;
  uint64_t listed = from.empty() ? 0 : from[1];
  const auto list = [&](const CommitInfo& commit) {
    if (listed >= limit) return false;
    const bool wanted = commit.deleted == deleted && commit.snapshot.step < before &&
                        (selector.lineage == 0 || selector.lineage == commit.snapshot.lineage);
    if (!wanted) return true;
    if (!rows.add_row(deleted ? deleted_json(commit) : commit_json(commit, experts, tags))) {
      page.next = {commit.sequence, listed};
      return false;
    }
    return ++listed < limit;
  };
  context.catalog.visit_commits(run.id, list, from.empty() ? ~uint64_t{0} : from[0]);
  page.json = std::move(rows).text();
  return page;
}

// A page begins at a unit. What is no list is in the first.
Result<Page> schema_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  CKPT_ASSIGN(const RunInfo run, selected_run(context, selector));
  CKPT_ASSIGN(const auto specs, context.catalog.units(run.id));
  CKPT_ASSIGN(const Position from, args.position(2));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  if (!from.empty() && from[0] != run.id) return changed_meanwhile(run.name);
  Json document = {{"run", run.name}};
  if (from.empty()) document["metadata"] = metadata_json(run.metadata);
  Rows rows(document, "units", room);
  Page page{.json = {}, .lists = {"units"}};
  for (size_t id = from.empty() ? 0 : from[1]; id < specs->size(); ++id) {
    Json unit = {{"id", id}};
    unit.update(spec_json((*specs)[id]));
    if (rows.add_row(unit)) continue;
    page.next = {run.id, id};
    break;
  }
  page.json = std::move(rows).text();
  return page;
}

// A page begins at the record of a version's commit.
Result<Page> unit_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  CKPT_ASSIGN(const RunInfo run, run_or_lineage(context, selector, "unit"));
  CKPT_ASSIGN(const std::string name, args.text("unit"));
  CKPT_ASSIGN(const auto specs, context.catalog.units(run.id));
  const auto spec =
      std::find_if(specs->begin(), specs->end(),
                   [&](const ckpt::UnitSpec& candidate) { return candidate.name == name; });
  if (spec == specs->end()) {
    return make_error(ErrorCode::kNotFound, "run {} unit {}: no such unit", run.name,
                      ckpt::base::printable(name));
  }
  const auto unit = static_cast<ckpt::UnitId>(spec - specs->begin());

  CKPT_ASSIGN(const Position from, args.position(1));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  // In the order of the journal, as the log has it.
  std::map<uint64_t, Json, std::greater<>> versions;
  for (const UnitVersion& version : context.catalog.versions(run.id, unit)) {
    const ckpt::SnapshotKey& key = version.snapshot;
    if (selector.lineage != 0 && key.lineage != selector.lineage) continue;
    const auto commit = context.catalog.commit(run.id, key.lineage, key.step);
    if (!commit || (!from.empty() && commit->sequence > from[0])) continue;
    versions[commit->sequence] = version_json(version, *commit);
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

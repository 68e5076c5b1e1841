// The log: the commits of a run.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "ckptd/query/known_damage.h"
#include "ckptd/query/line.h"
#include "ckptd/query/rows.h"

namespace ckptd {
namespace {

using Specs = std::vector<ckpt::UnitSpec>;

// Counts the distinct experts of a commit. Fast, because a log has thousands of units per commit.
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
  std::vector<uint32_t> of_unit_;  // index of the unit's expert
  std::vector<uint32_t> seen_in_;  // by that index: the last commit that counted it
  uint32_t commits_ = 0;
};

// The trainer's own metric takes precedence, because it includes losses by faults.
Json plt_json(const CommitInfo& commit) {
  const auto plt = commit.metrics.find("plt");
  if (plt != commit.metrics.end()) return plt->second;
  return commit.full ? Json(0) : Json();
}

// Document of a deleted commit: when and why it was deleted, and how many units views still need.
Json deleted_json(const CommitInfo& commit, const CommitNames& names) {
  return {{"step", commit.snapshot.step},
          {"lineage", commit.snapshot.lineage},
          {"time", iso_time(commit.time_ns)},
          {"deleted", iso_time(commit.ended_ns)},
          {"reason", commit.reason},
          {"units_left", commit.units.size()},
          {"name", names.of({commit.snapshot.lineage, commit.snapshot.step})}};
}

// Data for building the rows of a log.
struct LogRows {
  ExpertCount experts;
  CommitNames names;
  std::multimap<ViewPoint, std::string> tags;
  std::map<ckpt::LineageId, Lineage> lineages;
  std::shared_ptr<const Specs> specs;
  KnownDamage damage;
};

// Adds the damaged units of a commit, the first few by name, and what to do about them.
void add_damage(const LogRows& of_run, ViewPoint commit, Json& document) {
  constexpr size_t kNamedMax = 16;
  const KnownDamage::Units& units = of_run.damage.of(commit);
  document["damaged_units"] = units.size();
  if (units.empty()) return;
  Json named = Json::array();
  for (const auto& [unit, damage] : units) {
    if (named.size() == kNamedMax) break;
    named.push_back({{"unit", (*of_run.specs)[unit].name},
                     {"reason", damage->reason},
                     {"found", iso_time(damage->found_ns)}});
  }
  document["damage"] = std::move(named);
  document["remedy"] = damage_remedy(of_run.names.of(commit));
}

Json forked_from_json(const LogRows& of_run, ckpt::LineageId id) {
  const auto lineage = of_run.lineages.find(id);
  if (lineage == of_run.lineages.end() || lineage->second.parent == 0) return nullptr;
  return {{"step", lineage->second.fork_step}, {"lineage", lineage->second.parent}};
}

Json commit_json(const CommitInfo& commit, LogRows& of_run) {
  const ViewPoint point{commit.snapshot.lineage, commit.snapshot.step};
  Json names = Json::array();
  const auto [first, last] = of_run.tags.equal_range(point);
  for (auto tag = first; tag != last; ++tag) names.push_back(tag->second);
  Json metrics = Json::object();
  for (const auto& [name, value] : commit.metrics) metrics[name] = value;

  Json document = {{"step", commit.snapshot.step},
                   {"lineage", commit.snapshot.lineage},
                   {"time", iso_time(commit.time_ns)},
                   {"level", commit.damaged ? "damaged" : "durable"},
                   {"units", commit.units.size()},
                   {"experts", of_run.experts.of(commit)},
                   {"bytes", commit.bytes},
                   {"tags", std::move(names)},
                   {"metrics", std::move(metrics)},
                   {"plt", plt_json(commit)},
                   {"lost_so_far", losses_recorded(commit) ? Json(commit.lost_tokens) : Json()},
                   {"alarms", commit.alarms.total()},
                   {"name", of_run.names.of(point)},
                   {"forked_from", forked_from_json(of_run, point.lineage)}};
  if (commit.grown > 0) document["grown"] = commit.grown;
  if (commit.damaged) document["reason"] = commit.reason;
  add_damage(of_run, point, document);
  return document;
}

Result<LogRows> log_rows(const QueryContext& context, const RunInfo& run) {
  CKPT_ASSIGN(const auto specs, context.catalog.units(run.id));
  CKPT_ASSIGN(const auto lineages, context.catalog.lineages(run.id));
  LogRows rows{.experts = ExpertCount(*specs),
               .names = CommitNames(context.catalog, run),
               .tags = {},
               .lineages = {},
               .specs = specs,
               .damage = KnownDamage(context, run, *specs)};
  for (const auto& [tag, point] : context.catalog.tags(run.id)) rows.tags.emplace(point, tag);
  for (const Lineage& lineage : lineages) rows.lineages.emplace(lineage.id, lineage);
  return rows;
}

}  // namespace

// A page's position: a commit's record, and the number of commits listed before it.
Result<Page> log_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  std::string lineages;
  if (args.has("lineages")) {
    CKPT_ASSIGN(lineages, args.text("lineages"));
  }
  CKPT_ASSIGN(const CommitFilter filter, CommitFilter::make(context, selector, lineages));
  CKPT_ASSIGN(const uint64_t limit, args.number("limit", ~uint64_t{0}));
  const bool bounded = args.has("before");
  CKPT_ASSIGN(const uint64_t before, args.number("before", 0));
  CKPT_ASSIGN(const bool deleted, args.flag("deleted"));
  CKPT_ASSIGN(const Position from, args.position(2));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  CKPT_ASSIGN(LogRows of_run, log_rows(context, filter.run()));

  Rows rows(Json(), "", room);
  Page page;
  uint64_t listed = from.empty() ? 0 : from[1];
  const auto list = [&](const CommitInfo& commit) {
    if (listed >= limit) return false;
    const bool wanted = commit.deleted == deleted && (!bounded || commit.snapshot.step < before) &&
                        filter.matches({commit.snapshot.lineage, commit.snapshot.step});
    if (!wanted) return true;
    if (!rows.add_row(deleted ? deleted_json(commit, of_run.names) : commit_json(commit, of_run))) {
      page.next = {commit.sequence, listed};
      return false;
    }
    return ++listed < limit;
  };
  if (!filter.matches_nothing()) {
    context.catalog.visit_commits(filter.run().id, list, from.empty() ? ~uint64_t{0} : from[0]);
  }
  page.json = std::move(rows).text();
  return page;
}

}  // namespace ckptd

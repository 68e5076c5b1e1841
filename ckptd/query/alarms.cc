// Alarms of snapshots, refused ones included.
#include <functional>

#include "ckptd/query/line.h"
#include "ckptd/query/rows.h"

namespace ckptd {
namespace {

using ckpt::fb::AlarmKind;
using Specs = std::vector<ckpt::UnitSpec>;

// A snapshot that raised alarms: a commit, or a refusal.
struct Raised {
  uint64_t sequence = 0;
  ckpt::SnapshotKey snapshot;
  uint64_t time_ns = 0;
  bool refused = false;
  ckpt::AlarmList alarms;
};

Json snapshot_json(const Raised& raised) {
  return {{"step", raised.snapshot.step},
          {"lineage", raised.snapshot.lineage},
          {"attempt", raised.snapshot.attempt},
          {"time", iso_time(raised.time_ns)},
          {"refused", raised.refused}};
}

Json alarm_json(const Raised& raised, const ckpt::Alarm& alarm, const Specs& specs) {
  Json document = snapshot_json(raised);
  const bool known = alarm.unit < specs.size();
  const bool floats = alarm.kind == AlarmKind::NotFinite;
  document["kind"] = ckpt::alarm_kind_name(alarm.kind);
  document["unit"] = known ? Json(specs[alarm.unit].name) : Json();
  document["layer"] = known ? attribute(specs[alarm.unit].layer) : Json();
  document["expert"] = known ? attribute(specs[alarm.unit].expert) : Json();
  document["part"] = known ? Json(ckpt::unit_part_name(specs[alarm.unit].part)) : Json();
  document["floats"] = floats ? Json(alarm.value) : Json();
  document["version_step"] = floats ? Json() : Json(alarm.value);
  document["text"] = describe(alarm, raised.snapshot.step, specs);
  return document;
}

// Newest first, starting at record `newest`, one at a time, until `visit` returns false. Keeps all
// refusals in memory, because there are few, but reads commits one by one.
void visit_raised(const Catalog& catalog, ckpt::RunId run, uint64_t newest,
                  const std::function<bool(const Raised&)>& visit) {
  std::vector<Refusal> refusals = catalog.refusals(run);  // oldest first
  while (!refusals.empty() && refusals.back().sequence > newest) refusals.pop_back();
  bool more = true;
  const auto visit_refusals_after = [&](uint64_t sequence) {
    while (more && !refusals.empty() && refusals.back().sequence > sequence) {
      Refusal& last = refusals.back();
      more = visit({last.sequence, last.snapshot, last.time_ns, true, std::move(last.alarms)});
      refusals.pop_back();
    }
  };
  const auto visit_commit = [&](const CommitInfo& commit) {
    visit_refusals_after(commit.sequence);
    if (more && !commit.deleted && !commit.alarms.empty()) {
      more = visit({commit.sequence, commit.snapshot, commit.time_ns, false, commit.alarms});
    }
    return more;
  };
  catalog.visit_commits(run, visit_commit, newest);
  visit_refusals_after(0);
}

// Chooses snapshots: RUN all, RUN~L those of lineage L, a commit's name that commit. A refused
// snapshot has no commit; RUN@STEP and RUN~L@STEP find it by its step.
class AlarmFilter {
 public:
  static Result<AlarmFilter> make(const QueryContext& context, const ckpt::Selector& selector) {
    if (selector.kind == ckpt::Selector::Kind::kRun) {
      CKPT_ASSIGN(RunInfo run, selected_run(context, selector));
      return AlarmFilter(std::move(run), selector.lineage, std::nullopt);
    }
    Result<Resolved> commit = resolve_selector(context, selector);
    if (commit.ok()) return AlarmFilter(std::move(commit->run), 0, commit->point);
    const bool by_step = selector.kind == ckpt::Selector::Kind::kStep;
    if (!by_step || commit.error().code != ckpt::ErrorCode::kNotFound) return commit.error();
    CKPT_ASSIGN(RunInfo run, selected_run(context, selector));
    const Line line(context.catalog.path(run.id, {selector.lineage, selector.step}));
    for (const Refusal& refusal : context.catalog.refusals(run.id)) {
      const ViewPoint at{refusal.snapshot.lineage, refusal.snapshot.step};
      if (at.step == selector.step && line.has(at)) return AlarmFilter(std::move(run), 0, at);
    }
    return commit.error();
  }
  const RunInfo& run() const { return run_; }
  bool matches(ViewPoint snapshot) const {
    if (at_) return snapshot == *at_;
    return lineage_ == 0 || snapshot.lineage == lineage_;
  }

 private:
  AlarmFilter(RunInfo run, ckpt::LineageId lineage, std::optional<ViewPoint> at)
      : run_(std::move(run)), lineage_(lineage), at_(at) {}

  RunInfo run_;
  ckpt::LineageId lineage_ = 0;  // 0: every lineage
  std::optional<ViewPoint> at_;
};

// The alarms of one snapshot, and the number of those left out.
std::vector<Json> alarm_rows(const Raised& raised, const Specs& specs) {
  std::vector<Json> rows;
  rows.reserve(raised.alarms.alarms.size() + 1);
  for (const ckpt::Alarm& alarm : raised.alarms.alarms) {
    rows.push_back(alarm_json(raised, alarm, specs));
  }
  if (raised.alarms.left_out > 0) {
    Json more = snapshot_json(raised);
    more["kind"] = "more";
    more["count"] = raised.alarms.left_out;
    rows.push_back(std::move(more));
  }
  return rows;
}

}  // namespace

// A page's position: a snapshot's record, the index of an alarm in it, the count listed before it.
Result<Page> alarms_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  CKPT_ASSIGN(const AlarmFilter filter, AlarmFilter::make(context, selector));
  const RunInfo& run = filter.run();
  CKPT_ASSIGN(const uint64_t limit, args.number("limit", ~uint64_t{0}));
  CKPT_ASSIGN(const auto specs, context.catalog.units(run.id));
  CKPT_ASSIGN(const Position from, args.position(3));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  Rows rows(Json(), "", room);
  Page page;
  uint64_t listed = from.empty() ? 0 : from[2];
  const auto list = [&](const Raised& raised) {
    if (listed >= limit) return false;
    if (!filter.matches({raised.snapshot.lineage, raised.snapshot.step})) return true;
    const std::vector<Json> alarms = alarm_rows(raised, *specs);
    const bool continues = !from.empty() && raised.sequence == from[0];
    for (size_t i = continues ? from[1] : 0; i < alarms.size(); ++i) {
      if (!rows.add_row(alarms[i])) {
        page.next = {raised.sequence, i, listed};
        return false;
      }
      if (++listed >= limit) return false;
    }
    return true;
  };
  visit_raised(context.catalog, run.id, from.empty() ? ~uint64_t{0} : from[0], list);
  page.json = std::move(rows).text();
  return page;
}

}  // namespace ckptd

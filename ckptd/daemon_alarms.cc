// Alarms: suspicious values in a snapshot, and the reaction. The executor scans the bytes during
// the check after every write. History is looked up here, once per line of history, and then kept
// in memory.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/daemon_impl.h"
#include "ckptd/observe/log_event.h"
#include "formats/base/crc32c.h"

namespace ckptd {

namespace {

// Sums of all its fragments, as the ranks sealed them and the check after the write confirmed.
std::vector<std::pair<ckpt::UnitId, uint32_t>> saved_sums(
    const std::vector<WrittenExtent>& extents) {
  std::vector<const ckpt::ExtentFragment*> fragments;
  for (const WrittenExtent& extent : extents) {
    for (const ckpt::ExtentFragment& fragment : extent.fragments) fragments.push_back(&fragment);
  }
  std::sort(fragments.begin(), fragments.end(), [](const auto* a, const auto* b) {
    return std::pair(a->unit, a->offset) < std::pair(b->unit, b->offset);
  });
  std::vector<std::pair<ckpt::UnitId, uint32_t>> sums;
  for (const ckpt::ExtentFragment* fragment : fragments) {
    if (sums.empty() || sums.back().first != fragment->unit) {
      sums.emplace_back(fragment->unit, fragment->crc32c);
    } else {
      uint32_t& crc = sums.back().second;
      crc = ckpt::base::crc32c_combine(crc, fragment->crc32c, fragment->length);
    }
  }
  return sums;
}

void add_versions(const SnapshotFacts& facts, ckpt::LineageId lineage, NewestVersions& versions) {
  for (const auto& [unit, crc] : facts.saved) {
    if (unit < versions.size() && (!versions[unit] || versions[unit]->step <= facts.step)) {
      versions[unit] = UnitSum{lineage, facts.step, crc};
    }
  }
}

// Judged snapshots of the same line of history that are not in the index yet. Snapshots may follow
// each other faster than the journal is synced.
using Pending = std::map<ckpt::Step, const SnapshotFacts*>;
Pending pending_before(const SnapshotKey& key,
                       const std::map<SnapshotKey, OpenSnapshotState>& open_snapshots) {
  Pending pending;
  for (const auto& [other, open] : open_snapshots) {
    const bool earlier =
        other.run == key.run && other.lineage == key.lineage && other.step < key.step;
    if (earlier && !open.facts.saved.empty()) pending[other.step] = &open.facts;
  }
  return pending;
}

}  // namespace

// Keeps the strictest of the members' policies, and the smallest of their bounds.
void Daemon::Impl::note_alarms(const Session& session, const SnapshotKey& key,
                               const fb::BeginSnapshotT& message) {
  OpenSnapshotState& open = open_snapshots.at(key);
  open.alarm_policy = std::max(open.alarm_policy, session.alarms);
  if (message.staleness_max == 0) return;
  open.staleness_max = open.staleness_max == 0
                           ? message.staleness_max
                           : std::min(open.staleness_max, message.staleness_max);
}

// Scans the floats of a slab while its bytes are checked.
PayloadObserver Daemon::Impl::observe_floats(const SnapshotKey& key,
                                             const std::shared_ptr<NotFiniteScan>& scan) const {
  if (open_snapshots.at(key).alarm_policy == fb::AlarmPolicy::Off) return {};
  return [scan](const ckpt::ExtentFragment& fragment, ckpt::ByteView bytes, uint64_t from,
                uint64_t to) { scan->look(fragment, bytes, from, to); };
}

// Last version of each unit of the run. Read once per line of history; each commit is added.
const NewestVersions& Daemon::Impl::newest_of_run(const SnapshotKey& key, size_t units) {
  static const NewestVersions unknown;
  RunNewest& newest = newest_by_run[key.run];
  if (newest.lineage == key.lineage && newest.versions.size() == units) return newest.versions;
  newest = {.lineage = key.lineage,
            .versions = history.catalog().newest_sums(key.run, {key.lineage, ~ckpt::Step{0}}),
            .cuts = {}};
  const bool whole = history.catalog().health().ok();
  if (whole && newest.versions.size() == units) return newest.versions;
  // An incomplete index would make everything look stale.
  newest_by_run.erase(key.run);
  return unknown;
}

void Daemon::Impl::add_to_newest(const SnapshotKey& key, const OpenSnapshotState& open) {
  const auto found = newest_by_run.find(key.run);
  if (found == newest_by_run.end() || found->second.lineage != key.lineage) return;
  add_versions(open.facts, key.lineage, found->second.versions);
  add_to_newest_cuts(key, open.extents, found->second);
}

// For a snapshot that was in progress when its epoch ended: the end of the epoch could not drop the
// versions that the snapshot looked up later.
void Daemon::Impl::forget_newest_if_ended(const SnapshotKey& key) {
  const auto ended = ended_epochs.find(key.run);
  if (ended != ended_epochs.end() && key.epoch <= ended->second) newest_by_run.erase(key.run);
}

ckpt::AlarmList Daemon::Impl::raise_alarms(const Ingest::CommitAction& action) {
  const SnapshotKey& key = action.snapshot;
  OpenSnapshotState& open = open_snapshots.at(key);
  const auto units = history.catalog().units(key.run);
  const auto lineages = history.catalog().lineages(key.run);
  SnapshotFacts facts;
  facts.step = key.step;
  facts.saved = saved_sums(open.extents);
  facts.tokens = action.expert_tokens;
  if (open.alarm_policy == fb::AlarmPolicy::Off || !units.ok() || !lineages.ok()) {
    open.facts = std::move(facts);
    return {};
  }
  facts.staleness_max = open.staleness_max;
  facts.constant = [this, run = open.run_name](ckpt::UnitId unit) {
    return unit_flags.constant(run, unit);
  };
  for (const Lineage& lineage : *lineages) {
    if (lineage.id == key.lineage) facts.lineage_began = lineage.fork_step;
  }
  for (const auto& scan : open.scans) {
    for (const auto& [unit, count] : scan->found()) facts.not_finite[unit] += count;
  }
  const Pending pending = pending_before(key, open_snapshots);
  const NewestVersions& indexed = newest_of_run(key, (*units)->size());
  NewestVersions with_pending;
  if (!indexed.empty() && !pending.empty()) {
    with_pending = indexed;
    for (const auto& [step, earlier] : pending) add_versions(*earlier, key.lineage, with_pending);
  }
  const auto tokens_at = [&](ViewPoint commit) {
    const auto on_its_way = pending.find(commit.step);
    const bool is_pending = on_its_way != pending.end() && commit.lineage == key.lineage;
    return is_pending ? on_its_way->second->tokens
                      : history.catalog().expert_tokens(key.run, commit);
  };
  Judgement judgement =
      judge(facts, **units, with_pending.empty() ? indexed : with_pending, tokens_at);
  // Without the catalog the experts' token counts are unknown: judge only the bytes
  // themselves.
  if (!history.catalog().health().ok())
    judgement = judge(facts, **units, NewestVersions(), tokens_at);
  forget_newest_if_ended(key);
  ckpt::AlarmList& alarms = judgement.alarms;
  open.alarms = alarms.empty() ? "" : describe(alarms, key.step, **units);
  if (!alarms.empty()) {
    for (size_t kind = 0; kind < judgement.raised.size(); ++kind) {
      counters.alarms[kind] += judgement.raised[kind];
    }
    log_event(spdlog::level::warn, "alarm",
              {{"run", open.run_name},
               {"lineage", key.lineage},
               {"epoch", key.epoch},
               {"step", key.step},
               {"reason", open.alarms}},
              "run {} step {}: ALARM: {}", open.run_name, key.step, open.alarms);
  }
  open.facts = std::move(facts);
  return std::move(alarms);
}

// The snapshot is not committed: its extents become dead space, and the last good commit stays.
void Daemon::Impl::refuse_commit(const SnapshotKey& key, const ckpt::AlarmList& alarms) {
  fb::SnapshotRefusedT refused;
  refused.run = key.run;
  refused.lineage = key.lineage;
  refused.epoch = key.epoch;
  refused.step = key.step;
  refused.attempt = key.attempt;
  refused.time_ns = turn.wall_clock_ns();
  refused.alarms = ckpt::to_fb(alarms);
  refused.alarms_left_out = alarms.left_out;
  std::vector<fb::RecordT> records;
  records.push_back(make_record(std::move(refused)));
  const std::string& run_name = open_snapshots.at(key).run_name;
  history.record(std::move(records), [run_name, step = key.step](const Status& status) {
    if (status.ok()) return;
    spdlog::error("run {} step {}: that it was refused is not in the history: {}", run_name, step,
                  status.error().message);
  });
  carry_out(ingest.committed(key, make_error(ErrorCode::kFailedPrecondition, "refused: {}",
                                             open_snapshots.at(key).alarms)));
}

}  // namespace ckptd

#include "ckptd/snapshots/alarm_check.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/observe/log_event.h"
#include "formats/base/crc32c.h"
#include "formats/blob.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::SnapshotKey;

namespace {

// Sums of all its units, as the ranks sealed them and the check after the write confirmed.
std::vector<std::pair<ckpt::UnitId, uint32_t>> saved_sums(
    const std::vector<WrittenExtent>& extents) {
  std::vector<const ckpt::ExtentFragment*> fragments;
  for (const WrittenExtent& extent : extents) {
    for (const ckpt::ExtentFragment& fragment : extent.fragments) {
      if (!ckpt::is_blob(fragment.unit)) fragments.push_back(&fragment);
    }
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

// Judged snapshots of the same line of history that are not in the index yet. Snapshots may follow
// each other faster than the journal is synced.
using Pending = std::map<ckpt::Step, const SnapshotFacts*>;
Pending pending_before(const SnapshotKey& key, const OpenSnapshots& snapshots) {
  Pending pending;
  for (const auto& [other, open] : snapshots) {
    const bool earlier =
        other.run == key.run && other.lineage == key.lineage && other.step < key.step;
    if (earlier && !open.facts.saved.empty()) pending[other.step] = &open.facts;
  }
  return pending;
}

}  // namespace

void AlarmCheck::note(const Session& session, const fb::BeginSnapshotT& message,
                      OpenSnapshotState& open) {
  open.alarm_policy = std::max(open.alarm_policy, session.alarms);
  if (message.staleness_max == 0) return;
  open.staleness_max = open.staleness_max == 0
                           ? message.staleness_max
                           : std::min(open.staleness_max, message.staleness_max);
}

PayloadObserver AlarmCheck::observe_floats(const OpenSnapshotState& open,
                                           const std::shared_ptr<NotFiniteScan>& scan) {
  if (open.alarm_policy == fb::AlarmPolicy::Off) return {};
  return [scan](const ckpt::ExtentFragment& fragment, ckpt::ByteView bytes, uint64_t from,
                uint64_t to) { scan->check(fragment, bytes, from, to); };
}

ckpt::AlarmList AlarmCheck::raise(const Ingest::CommitAction& action, OpenSnapshots& snapshots) {
  const Catalog& catalog = needs_.history.catalog();
  const SnapshotKey& key = action.snapshot;
  OpenSnapshotState& open = snapshots.at(key);
  const UnitSpecList& units = open.units;
  const auto lineages = catalog.lineages(key.run);
  SnapshotFacts facts;
  facts.step = key.step;
  facts.saved = saved_sums(open.extents);
  facts.tokens = action.expert_tokens;
  if (open.alarm_policy == fb::AlarmPolicy::Off || !lineages.ok()) {
    open.facts = std::move(facts);
    return {};
  }
  facts.staleness_max = open.staleness_max;
  facts.base_units = catalog.base_units(key.run);
  facts.constant = [&registered = registrations_, run = open.run_name](ckpt::UnitId unit) {
    return registered.constant(run, unit);
  };
  for (const Lineage& lineage : *lineages) {
    if (lineage.id == key.lineage) facts.lineage_began = lineage.fork_step;
  }
  for (const auto& scan : open.scans) {
    for (const auto& [unit, count] : scan->found()) facts.not_finite[unit] += count;
  }
  const Pending pending = pending_before(key, snapshots);
  const NewestVersions& indexed = newest_.of(key, units->size());
  NewestVersions with_pending;
  if (!indexed.empty() && !pending.empty()) {
    with_pending = indexed;
    for (const auto& [step, earlier] : pending) add_versions(*earlier, key.lineage, with_pending);
  }
  const auto tokens_at = [&](ViewPoint commit) {
    const auto in_flight = pending.find(commit.step);
    const bool is_pending = in_flight != pending.end() && commit.lineage == key.lineage;
    return is_pending ? in_flight->second->tokens : catalog.expert_tokens(key.run, commit);
  };
  Judgement judgement =
      judge(facts, *units, with_pending.empty() ? indexed : with_pending, tokens_at);
  // Without the catalog the experts' token counts are unknown: judge only the bytes
  // themselves.
  if (!catalog.health().ok()) judgement = judge(facts, *units, NewestVersions(), tokens_at);
  newest_.forget_if_ended(key);
  ckpt::AlarmList& alarms = judgement.alarms;
  open.alarms = alarms.empty() ? "" : describe(alarms, key.step, *units);
  if (!alarms.empty()) {
    for (size_t kind = 0; kind < judgement.raised.size(); ++kind) {
      counters_.alarms[kind] += judgement.raised[kind];
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

}  // namespace ckptd

#include "ckptd/catalog/salvage.h"

#include <algorithm>
#include <map>

#include "formats/codec.h"
#include "formats/wire/convert.h"

namespace ckptd {
namespace {

namespace fb = ckpt::fb;
using Records = std::vector<fb::RecordT>;

template <typename BodyT>
void add(Records& records, BodyT body) {
  records.emplace_back();
  records.back().body.Set(std::move(body));
}

Result<Salvage::Run> take_run(const Catalog& ahead, const RunInfo& info) {
  Salvage::Run run;
  run.info = info;
  CKPT_ASSIGN(run.units, ahead.units(info.id));
  run.base_units = ahead.base_units(info.id);
  CKPT_ASSIGN(run.lineages, ahead.lineages(info.id));
  run.tags = ahead.tags(info.id);
  run.rules = ahead.keep_rules(info.id);
  run.pins = ahead.pins(info.id);
  return run;
}

void take_commits(const Catalog& ahead, ckpt::RunId run, uint64_t last_sequence, Salvage& salvage) {
  ahead.visit_commits(run, [&](const CommitInfo& commit) {
    if (commit.damaged || commit.deleted) salvage.ended.push_back(commit);
    const bool lost = commit.sequence > last_sequence;
    if (!lost && commit.moved <= last_sequence) return true;
    const ckpt::SnapshotKey& key = commit.snapshot;
    auto record = lost ? ahead.record_any(run, key.lineage, key.step)
                       : ahead.record(run, key.lineage, key.step);
    if (record) (lost ? salvage.commits : salvage.moved).push_back({commit, std::move(*record)});
    return true;
  });
}

void add_run(const RunInfo& info, Records& records) {
  fb::RunCreatedT created;
  created.run = info.id;
  created.name = info.name;
  created.uid = info.uid;
  created.time_ns = info.created_ns;
  created.parent_run = info.parent;
  created.parent_lineage = info.parent_lineage;
  created.parent_step = info.parent_step;
  created.metadata = info.metadata;
  add(records, std::move(created));
}

// The base and the grown units among [known, end of the run's list), each in a record of its own.
void add_units(const Salvage::Run& run, size_t known, Records& records) {
  const std::vector<ckpt::UnitSpec>& units = *run.units;
  const auto add_range = [&](size_t from, size_t to, bool grown) {
    if (from >= to) return;
    fb::UnitsRegisteredT registered;
    registered.run = run.info.id;
    registered.schema = ckpt::wire::to_fb(
        ckpt::schema_hash({units.begin(), units.begin() + static_cast<ptrdiff_t>(to)}));
    registered.grown = grown;
    for (size_t unit = from; unit < to; ++unit) {
      registered.units.push_back(
          std::make_unique<fb::UnitT>(ckpt::wire::to_fb(units[unit], static_cast<uint32_t>(unit))));
    }
    add(records, std::move(registered));
  };
  add_range(known, run.base_units, false);
  add_range(std::max<size_t>(known, run.base_units), units.size(), true);
}

// Lineages are numbered in the order they were opened: parents come first.
void add_lineages(const Salvage::Run& run, const std::vector<Lineage>& known, uint64_t time_ns,
                  Records& records) {
  for (const Lineage& lineage : run.lineages) {
    if (std::find(known.begin(), known.end(), lineage) != known.end()) continue;
    fb::LineageOpenedT opened;
    opened.run = run.info.id;
    opened.lineage = lineage.id;
    opened.parent = lineage.parent;
    opened.fork_step = lineage.fork_step;
    opened.time_ns = time_ns;
    add(records, std::move(opened));
  }
}

// Records the last epoch, so that its number is not issued again. Its members are lost (size 0),
// unless the epoch's record is among those that can still be read.
void add_epoch(const Salvage& salvage, const RunInfo& info, ckpt::Epoch known, uint64_t time_ns,
               Records& records) {
  if (info.last_epoch <= known) return;
  const auto read = salvage.epochs.find(info.id);
  if (read != salvage.epochs.end() && read->second.epoch == info.last_epoch) {
    return add(records, fb::EpochOpenedT(read->second));
  }
  fb::EpochOpenedT opened;
  opened.run = info.id;
  opened.epoch = info.last_epoch;
  opened.lineage = info.current_lineage;
  opened.time_ns = time_ns;
  opened.reason = "put back from the catalog, the journal had lost it";
  add(records, std::move(opened));
}

void add_tags(const Salvage::Run& run, const std::map<std::string, ViewPoint>& known,
              uint64_t time_ns, Records& records) {
  for (const auto& [tag, point] : run.tags) {
    const auto found = known.find(tag);
    if (found != known.end() && found->second == point) continue;
    fb::TaggedT tagged;
    tagged.run = run.info.id;
    tagged.lineage = point.lineage;
    tagged.step = point.step;
    tagged.tag = tag;
    tagged.time_ns = time_ns;
    add(records, std::move(tagged));
  }
  for (const auto& [tag, point] : known) {
    if (run.tags.contains(tag)) continue;
    fb::UntaggedT untagged;
    untagged.run = run.info.id;
    untagged.tag = tag;
    untagged.time_ns = time_ns;
    add(records, std::move(untagged));
  }
}

void add_grants(const RunInfo& run, const Catalog& behind, uint64_t time_ns, Records& records) {
  const auto known = behind.run(run.id);
  const ckpt::Grants before = known.ok() ? known->grants : ckpt::Grants();
  const auto grant = [&](uint32_t uid, const ckpt::Rights& rights) {
    fb::GrantedT granted = ckpt::to_fb(uid, rights);
    granted.run = run.id;
    granted.time_ns = time_ns;
    add(records, granted);
  };
  for (const auto& [uid, rights] : run.grants) {
    const auto found = before.find(uid);
    if (found == before.end() || found->second != rights) grant(uid, rights);
  }
  for (const auto& [uid, rights] : before) {
    if (!run.grants.contains(uid)) grant(uid, {});
  }
}

void add_pins_and_rules(const Salvage::Run& run, const Catalog& behind, uint64_t time_ns,
                        Records& records) {
  const std::vector<ViewPoint> known = behind.pins(run.info.id);
  const auto add_missing = [&]<typename BodyT>(const std::vector<ViewPoint>& from,
                                               const std::vector<ViewPoint>& in, BodyT body) {
    for (const ViewPoint& point : from) {
      if (std::binary_search(in.begin(), in.end(), point)) continue;
      body.run = run.info.id;
      body.lineage = point.lineage;
      body.step = point.step;
      body.time_ns = time_ns;
      add(records, body);
    }
  };
  add_missing(run.pins, known, fb::PinnedT());
  add_missing(known, run.pins, fb::UnpinnedT());
  if (run.rules == behind.keep_rules(run.info.id)) return;
  fb::RulesSetT rules = ckpt::to_fb(run.rules);
  rules.run = run.info.id;
  rules.time_ns = time_ns;
  add(records, std::move(rules));
}

void add_refusal(const Refusal& refusal, Records& records) {
  fb::SnapshotRefusedT refused;
  ckpt::set_key(refused, refusal.snapshot);
  refused.time_ns = refusal.time_ns;
  refused.alarms = ckpt::to_fb(refusal.alarms);
  refused.alarms_left_out = refusal.alarms.left_out;
  add(records, std::move(refused));
}

template <typename BodyT>
void add_end(const CommitInfo& commit, BodyT body, Records& records) {
  body.run = commit.snapshot.run;
  body.lineage = commit.snapshot.lineage;
  body.step = commit.snapshot.step;
  body.reason = commit.reason;
  body.time_ns = commit.ended_ns;
  add(records, std::move(body));
}

void add_deletion(const CommitInfo& commit, const CommitInfo& known, Records& records) {
  const bool same =
      known.deleted && known.units == commit.units && known.kept_tokens == commit.kept_tokens;
  if (same) return;
  fb::DeletedT deletion;
  deletion.kept = commit.units;
  deletion.kept_tokens = commit.kept_tokens;
  add_end(commit, std::move(deletion), records);
}

void add_removal(const RunInfo& info, Records& records) {
  fb::RunRemovedT removed;
  removed.run = info.id;
  removed.time_ns = info.removed_ns;
  removed.reason = info.removed_reason;
  removed.commits = info.commits;
  removed.bytes = info.bytes;
  add(records, std::move(removed));
}

}  // namespace

Result<Salvage> take_salvage(const Catalog& ahead, uint64_t last_sequence) {
  Salvage salvage;
  salvage.removed = ahead.removed_runs();
  for (const RunInfo& info : ahead.runs()) {
    CKPT_ASSIGN(Salvage::Run run, take_run(ahead, info));
    salvage.runs.push_back(std::move(run));
    take_commits(ahead, info.id, last_sequence, salvage);
    for (Refusal& refusal : ahead.refusals(info.id)) {
      if (refusal.sequence > last_sequence) salvage.refused.push_back(std::move(refusal));
    }
  }
  CKPT_TRY(ahead.health());
  std::sort(salvage.commits.begin(), salvage.commits.end(),
            [](const auto& a, const auto& b) { return a.info.sequence < b.info.sequence; });
  return salvage;
}

Records missing_before_commits(const Salvage& salvage, const Catalog& behind, uint64_t time_ns) {
  Records records;
  // Removals first: a newer run may have the name of a removed one.
  for (const RunInfo& removed : salvage.removed) {
    const auto known = behind.run(removed.id);
    if (!known.ok()) add_run(removed, records);
    if (!known.ok() || known->removed_ns == 0) add_removal(removed, records);
  }
  for (const Salvage::Run& run : salvage.runs) {
    const auto known = behind.run(run.info.id);
    if (!known.ok()) add_run(run.info, records);
    const auto units = behind.units(run.info.id);
    add_units(run, units.ok() ? (*units)->size() : 0, records);
    const auto lineages = behind.lineages(run.info.id);
    add_lineages(run, lineages.ok() ? *lineages : std::vector<Lineage>(), time_ns, records);
    add_epoch(salvage, run.info, known.ok() ? known->last_epoch : 0, time_ns, records);
  }
  return records;
}

Records missing_after_commits(const Salvage& salvage, const Catalog& behind, uint64_t time_ns) {
  Records records;
  for (const CommitInfo& ended : salvage.ended) {
    const ckpt::SnapshotKey& key = ended.snapshot;
    const auto known = behind.commit(key.run, key.lineage, key.step);
    if (!known || known->snapshot != key) continue;
    // A removed commit stays marked: a run whose views it took is not begun anew (lost_views.h).
    if (ended.damaged && !known->damaged && !known->deleted) {
      add_end(ended, fb::CommitDamagedT(), records);
    }
    if (ended.deleted) add_deletion(ended, *known, records);
  }
  for (const Refusal& refusal : salvage.refused) add_refusal(refusal, records);
  for (const Salvage::Run& run : salvage.runs) {
    add_tags(run, behind.tags(run.info.id), time_ns, records);
    add_pins_and_rules(run, behind, time_ns, records);
    add_grants(run.info, behind, time_ns, records);
  }
  return records;
}

std::optional<fb::RecordT> missing_move(const Salvage::Commit& moved, const Catalog& behind,
                                        uint64_t time_ns) {
  const ckpt::SnapshotKey& key = moved.info.snapshot;
  std::set<ExtentBegin> before;
  std::set<ExtentBegin> now;
  for (const fb::ExtentT& extent : behind.extents(key.run, {key.lineage, key.step})) {
    if (!ckpt::is_shared(extent)) before.insert({extent.segment, extent.offset});
  }
  fb::MovedT body;
  std::map<uint32_t, uint32_t> numbers;  // of extents: in the commit -> in this record
  for (uint32_t i = 0; i < moved.record.extents.size(); ++i) {
    const fb::ExtentT& extent = *moved.record.extents[i];
    if (ckpt::is_shared(extent)) continue;
    now.insert({extent.segment, extent.offset});
    if (before.contains({extent.segment, extent.offset})) continue;
    numbers[i] = static_cast<uint32_t>(body.extents.size());
    body.extents.push_back(std::make_unique<fb::ExtentT>(extent));
  }
  for (const ExtentBegin& place : before) {
    if (!now.contains(place)) body.from.emplace_back(place.first, place.second);
  }
  if (body.from.empty()) return std::nullopt;
  ckpt::EncodedFragments encoded(moved.record.encoded);
  for (const fb::Fragment& fragment : moved.record.fragments) {
    const auto encoding = encoded.next();
    const auto number = numbers.find(fragment.extent());
    if (number == numbers.end()) continue;
    const auto at = static_cast<uint32_t>(body.fragments.size());
    if (encoding) body.encoded.emplace_back(at, encoding->crc32c(), encoding->bytes());
    body.fragments.emplace_back(fragment.unit(), number->second, fragment.offset(),
                                fragment.length(), fragment.payload_offset(), fragment.crc32c(),
                                fragment.codec());
  }
  ckpt::set_key(body, key);
  body.time_ns = time_ns;
  fb::RecordT record;
  record.body.Set(std::move(body));
  return record;
}

}  // namespace ckptd

// The fold: one journal record -> one batch. The result depends only on the records.
#include <algorithm>

#include "ckptd/catalog/commit_places.h"
#include "ckptd/catalog/growth.h"
#include "ckptd/catalog/moves.h"
#include "ckptd/catalog/run_changes.h"
#include "formats/wire/convert.h"

namespace ckptd {
namespace {

using keys::CommitIndex;
namespace fb = ckpt::fb;

class Folder {
 public:
  Folder(const Catalog::Impl& catalog, uint64_t sequence, const fb::RecordT& record)
      : catalog_(catalog),
        sequence_(sequence),
        record_(record),
        space_(catalog, sequence, change_) {}

  Result<Change> fold() {
    CKPT_TRY(dispatch());
    space_.finish();
    change_.put(Family::kMeta, std::string(keys::kApplied), keys::number(sequence_));
    change_.put(Family::kMeta, std::string(keys::kFormat), keys::number(kCatalogFormat));
    return std::move(change_);
  }

 private:
  Status dispatch() {
    const auto& body = record_.body;
    switch (body.type) {
      case fb::RecordBody::StoreOpened:
        return store_opened(*body.AsStoreOpened());
      case fb::RecordBody::StoreClosed:
        return {};
      case fb::RecordBody::RunCreated:
        return run_created(*body.AsRunCreated());
      case fb::RecordBody::UnitsRegistered:
        return units_registered(*body.AsUnitsRegistered());
      case fb::RecordBody::LineageOpened:
        return lineage_opened(*body.AsLineageOpened());
      case fb::RecordBody::EpochOpened:
        return epoch_opened(*body.AsEpochOpened());
      case fb::RecordBody::Committed:
        return committed(*body.AsCommitted());
      case fb::RecordBody::CommitDamaged:
        return commit_damaged(*body.AsCommitDamaged());
      case fb::RecordBody::Tagged:
        change_.put(Family::kTags, keys::tag(body.AsTagged()->run, body.AsTagged()->tag),
                    values::encode(record_));
        return use_run(body.AsTagged()->run);
      case fb::RecordBody::Untagged:
        change_.remove(Family::kTags, keys::tag(body.AsUntagged()->run, body.AsUntagged()->tag));
        return use_run(body.AsUntagged()->run);
      case fb::RecordBody::Deleted:
        return deleted(*body.AsDeleted());
      case fb::RecordBody::SnapshotRefused:
        change_.put(Family::kCommits, keys::refused(body.AsSnapshotRefused()->run, sequence_),
                    values::encode(record_));
        return use_run(body.AsSnapshotRefused()->run);
      case fb::RecordBody::RulesSet:
        return rules_set(*body.AsRulesSet());
      case fb::RecordBody::Pinned:
        change_.put(Family::kCommits, pin_key(*body.AsPinned()), "");
        return use_run(body.AsPinned()->run);
      case fb::RecordBody::Unpinned:
        change_.remove(Family::kCommits, pin_key(*body.AsUnpinned()));
        return use_run(body.AsUnpinned()->run);
      case fb::RecordBody::SpaceFreed:
        return space_freed(*body.AsSpaceFreed());
      case fb::RecordBody::RunRemoved:
        CKPT_TRY(use_run(body.AsRunRemoved()->run));
        remove_run(catalog_, *body.AsRunRemoved(), change_, space_);
        return {};
      case fb::RecordBody::Granted:
        CKPT_TRY(use_run(body.AsGranted()->run));
        return set_grant(record_, change_);
      case fb::RecordBody::Moved:
        CKPT_TRY(use_run(body.AsMoved()->run));
        return move_bytes(catalog_, sequence_, *body.AsMoved(), change_, space_);
      case fb::RecordBody::NONE:
        break;
    }
    return contradiction("of unknown kind {}", static_cast<int>(body.type));
  }

  static std::string index_key(CommitIndex index, const ckpt::SnapshotKey& key) {
    return keys::commit(key.run, index, key.lineage, key.step);
  }

  Status store_opened(const fb::StoreOpenedT& opened) {
    change_.put(Family::kMeta, std::string(keys::kStore),
                ckpt::base::to_hex(ckpt::wire::from_fb(opened.store)));
    change_.put(Family::kMeta, keys::opened(sequence_), keys::number(opened.time_ns));
    return {};
  }

  // Loads the run into the change, for modification.
  Status use_run(ckpt::RunId id) {
    const RunEntry* run = catalog_.find(id);
    if (run == nullptr) return contradiction("run number {} was never created", id);
    change_.run = *run;
    return {};
  }

  Status run_created(const fb::RunCreatedT& created) {
    if (created.run == 0 || catalog_.find(created.run) != nullptr ||
        catalog_.run_by_name.contains(created.name)) {
      return contradiction("run {} (number {}) is created twice", created.name, created.run);
    }
    change_.run.emplace();
    RunInfo& info = change_.run->info;
    info.id = created.run;
    info.name = created.name;
    info.uid = created.uid;
    info.created_ns = created.time_ns;
    info.parent = created.parent_run;
    info.parent_lineage = created.parent_lineage;
    info.parent_step = created.parent_step;
    info.metadata = created.metadata;
    change_.put(Family::kRuns, keys::run(created.run), values::encode(record_));
    put_run_state(change_);
    return {};
  }

  Status units_registered(const fb::UnitsRegisteredT& registered) {
    CKPT_TRY(use_run(registered.run));
    CKPT_ASSIGN(const ckpt::UnitId first,
                take_units(registered.units, registered.grown, *change_.run));
    if (first == change_.run->units->size()) return {};
    change_.put(Family::kUnits, keys::units(registered.run, first), values::encode(record_));
    return {};
  }

  Status lineage_opened(const fb::LineageOpenedT& opened) {
    CKPT_TRY(use_run(opened.run));
    auto& lineages = change_.run->lineages;
    // Parents come before their children, so following parents always ends.
    if (opened.lineage == 0 || lineages.contains(opened.lineage) ||
        (opened.parent != 0 && !lineages.contains(opened.parent))) {
      return contradiction("run {} lineage {}: opened twice, or before its parent {}",
                           change_.run->info.name, opened.lineage, opened.parent);
    }
    lineages[opened.lineage] = {opened.lineage, opened.parent, opened.fork_step};
    change_.run->info.current_lineage = opened.lineage;
    change_.put(Family::kLineages, keys::lineage(opened.run, opened.lineage),
                values::encode(record_));
    put_run_state(change_);
    return {};
  }

  Status epoch_opened(const fb::EpochOpenedT& opened) {
    CKPT_TRY(use_run(opened.run));
    change_.run->info.last_epoch = std::max(change_.run->info.last_epoch, opened.epoch);
    put_run_state(change_);
    return {};
  }

  Status committed(const fb::CommittedT& commit) {
    CKPT_TRY(use_run(commit.run));
    if (!change_.run->lineages.contains(commit.lineage)) {
      return contradiction("run {} step {}: lineage {} was never opened", change_.run->info.name,
                           commit.step, commit.lineage);
    }
    const size_t known = change_.run->units->size();
    CKPT_TRY(take_growth(commit, change_));
    const UnitSpecs& specs = *change_.run->units;
    CKPT_ASSIGN(const PlacesByUnit units, places_by_unit(commit, specs));
    CKPT_TRY(check_growth_contained(commit, units, known, specs));
    CKPT_TRY(blobs_of(commit));
    if (const auto before = catalog_.read_commit(commit.run, commit.lineage, commit.step)) {
      replace(*before);
    }
    CKPT_ASSIGN(const auto tokens, token_counts(commit));
    values::CommitValue value = values::commit_value(commit);
    value.info.sequence = sequence_;
    value.info.bytes = value.info.blob_bytes;
    for (const auto& [unit, places] : units) value.info.bytes += specs[unit].bytes;
    put_versions(value.info, units, false);
    put_indices(value.info);
    space_.take(value, units);
    put_sums(value.info.snapshot, units);
    put_tokens(value.info.snapshot, tokens);
    change_.put(Family::kCommits, keys::commit_sequence(commit.run, sequence_),
                keys::lineage_step(commit.lineage, commit.step));
    put_commit(value);
    change_.run->info.commits += 1;
    change_.run->info.bytes += value.info.bytes;
    put_run_state(change_);
    return {};
  }

  Status commit_damaged(const fb::CommitDamagedT& damaged) {
    CKPT_TRY(use_run(damaged.run));
    auto value = catalog_.read_commit(damaged.run, damaged.lineage, damaged.step);
    if (!value || value->info.deleted) return {};
    const bool lifts = damaged.reason.empty();
    value->info.damaged = !lifts;
    value->info.reason = damaged.reason;
    value->info.ended_ns = lifts ? 0 : damaged.time_ns;
    values::UnitCrcs sums;
    for (const ckpt::UnitId unit : value->info.units) {
      auto version = catalog_.read_version(damaged.run, unit, damaged.lineage, damaged.step);
      if (!version) continue;
      version->damaged = !lifts;
      sums.emplace_back(unit, version->crc32c);
      change_.put(Family::kVersions,
                  keys::version(damaged.run, unit, damaged.lineage, damaged.step),
                  values::encode(*version));
    }
    if (lifts) {
      put_indices(value->info);
      change_.put(Family::kCommits, index_key(CommitIndex::kSums, value->info.snapshot),
                  values::encode(sums));
    } else {
      remove_indices(value->info);
    }
    put_commit(*value);
    return {};
  }

  // A deleted commit may keep some versions: units that views of later commits need.
  Status deleted(const fb::DeletedT& deletion) {
    CKPT_TRY(use_run(deletion.run));
    auto value = catalog_.read_commit(deletion.run, deletion.lineage, deletion.step);
    if (!value) return {};
    CommitInfo& info = value->info;
    const std::vector<ckpt::UnitId>& kept = deletion.kept;
    if (!std::is_sorted(kept.begin(), kept.end()) ||
        !std::includes(info.units.begin(), info.units.end(), kept.begin(), kept.end())) {
      return contradiction("run {} step {}: its deletion keeps units that it does not have",
                           change_.run->info.name, deletion.step);
    }
    const SpaceRanges held = space_.detach(*value);
    if (!info.deleted) {
      remove_live_indices(info);
      uncount(info);
      put_run_state(change_);
      info.deleted = true;
      info.reason = deletion.reason;
      info.ended_ns = deletion.time_ns;
    }
    CommitInfo gone = info;
    gone.units.clear();
    std::set_difference(info.units.begin(), info.units.end(), kept.begin(), kept.end(),
                        std::back_inserter(gone.units));
    remove_versions(gone);
    keep_sums(info.snapshot, kept);
    if (!deletion.kept_tokens) remove_tokens(info.snapshot);
    info.kept_tokens = deletion.kept_tokens;
    info.units = kept;
    value->drop_blobs();   // no view of another commit needs them
    value->drop_growth();  // the run has these units
    space_.shrink(*value, held);
    put_commit(*value);
    return {};
  }

  Status rules_set(const fb::RulesSetT& set) {
    CKPT_TRY(use_run(set.run));
    auto rules = ckpt::from_fb(set);
    if (!rules.ok()) return contradiction("run {}: {}", set.run, rules.error().message);
    change_.run->rules = std::move(rules).value();
    change_.put(Family::kRuns, keys::run_rules(set.run), values::encode(record_));
    return {};
  }
  Status space_freed(const fb::SpaceFreedT& freed) {
    for (const uint64_t record : freed.records) {
      change_.remove(Family::kCommits, keys::dead(freed.run, record));
    }
    return use_run(freed.run);
  }
  template <typename BodyT>
  static std::string pin_key(const BodyT& pin) {
    return keys::commit(pin.run, CommitIndex::kPinned, pin.lineage, pin.step);
  }

  // Replaces a commit by another one of the same lineage and step.
  void replace(const values::CommitValue& before) {
    space_.release(before);
    remove_indices(before.info);
    remove_versions(before.info);
    remove_tokens(before.info.snapshot);
    change_.remove(Family::kCommits,
                   keys::commit_sequence(before.info.snapshot.run, before.info.sequence));
    if (!before.info.deleted) uncount(before.info);
  }

  void uncount(const CommitInfo& info) {
    change_.run->info.commits -= 1;
    change_.run->info.bytes -= info.bytes;
  }

  void put_commit(const values::CommitValue& value) {
    const ckpt::SnapshotKey& key = value.info.snapshot;
    change_.put(Family::kCommits, index_key(CommitIndex::kCommit, key), values::encode(value));
  }

  void put_versions(const CommitInfo& info, const PlacesByUnit& units, bool damaged) {
    const ckpt::SnapshotKey& key = info.snapshot;
    for (const auto& [unit, places] : units) {
      change_.put(Family::kVersions, keys::version(key.run, unit, key.lineage, key.step),
                  values::encode(values::VersionValue{key.epoch, key.attempt,
                                                      (*change_.run->units)[unit].bytes,
                                                      unit_crc32c(places), damaged, places}));
    }
  }
  void remove_versions(const CommitInfo& info) {
    const ckpt::SnapshotKey& key = info.snapshot;
    for (const ckpt::UnitId unit : info.units) {
      change_.remove(Family::kVersions, keys::version(key.run, unit, key.lineage, key.step));
    }
  }

  void put_sums(const ckpt::SnapshotKey& key, const PlacesByUnit& units) {
    values::UnitCrcs sums;
    for (const auto& [unit, places] : units) sums.emplace_back(unit, unit_crc32c(places));
    change_.put(Family::kCommits, index_key(CommitIndex::kSums, key), values::encode(sums));
  }

  void keep_sums(const ckpt::SnapshotKey& key, const std::vector<ckpt::UnitId>& kept) {
    const std::string at = index_key(CommitIndex::kSums, key);
    const auto value = catalog_.get(Family::kCommits, at);
    if (!value) return;
    auto sums = values::decode_unit_sums(*value);
    if (!sums) return catalog_.damaged(Family::kCommits, "sums of units");
    std::erase_if(*sums, [&](const auto& sum) {
      return !std::binary_search(kept.begin(), kept.end(), sum.first);
    });
    if (sums->empty()) return change_.remove(Family::kCommits, at);
    change_.put(Family::kCommits, at, values::encode(*sums));
  }

  // Token counts stay valid if the commit is damaged. A deletion removes them, unless a view of
  // another commit counts from them.
  void put_tokens(const ckpt::SnapshotKey& key, const ckpt::ExpertTokenCounts& counts) {
    if (counts.empty()) return;
    change_.put(Family::kCommits, index_key(CommitIndex::kTokens, key), values::encode(counts));
  }
  Result<ckpt::ExpertTokenCounts> token_counts(const fb::CommittedT& commit) const {
    auto counts = ckpt::expert_token_counts(commit.expert_tokens, commit.expert_lost);
    if (counts.ok()) return counts;
    return contradiction("run {} step {}: {}", change_.run->info.name, commit.step,
                         counts.error().message);
  }
  void remove_tokens(const ckpt::SnapshotKey& key) {
    change_.remove(Family::kCommits, index_key(CommitIndex::kTokens, key));
  }

  void put_indices(const CommitInfo& info) {
    const ckpt::SnapshotKey& key = info.snapshot;
    change_.put(Family::kCommits, index_key(CommitIndex::kLive, key), "");
    if (const uint32_t leading = leading_units(info); leading > 0) {
      change_.put(Family::kCommits, index_key(CommitIndex::kFull, key), keys::number(leading));
    }
  }
  void remove_indices(const CommitInfo& info) {
    const ckpt::SnapshotKey& key = info.snapshot;
    remove_live_indices(info);
    change_.remove(Family::kCommits, index_key(CommitIndex::kSums, key));
  }
  void remove_live_indices(const CommitInfo& info) {
    const ckpt::SnapshotKey& key = info.snapshot;
    for (const CommitIndex index : {CommitIndex::kLive, CommitIndex::kFull}) {
      change_.remove(Family::kCommits, index_key(index, key));
    }
  }

  const Catalog::Impl& catalog_;
  const uint64_t sequence_;
  const fb::RecordT& record_;
  Change change_;
  SpaceLedger space_;
};

}  // namespace

Result<Change> Catalog::Impl::fold(uint64_t sequence, const fb::RecordT& record) const {
  return Folder(*this, sequence, record).fold();
}

}  // namespace ckptd

#include "ckptd/catalog/run_changes.h"

#include <limits>

namespace ckptd {

using keys::CommitIndex;

namespace {

// Removes every key of the run, except its dead space, which is still to be reclaimed. Uses prefix
// deletes, so that millions of versions need not be read.
void remove_keys(ckpt::RunId run, Change& change) {
  for (const Family family :
       {Family::kVersions, Family::kUnits, Family::kLineages, Family::kTags}) {
    change.remove_prefix(family, keys::run(run));
  }
  for (const CommitIndex index : keys::kCommitIndexes) {
    if (index != CommitIndex::kDead) {
      change.remove_prefix(Family::kCommits, keys::commits(run, index));
    }
  }
  change.remove(Family::kRuns, keys::run_rules(run));
}

std::vector<values::CommitValue> all_commits(const Catalog::Impl& catalog, ckpt::RunId run) {
  std::vector<values::CommitValue> commits;
  catalog.scan(Family::kCommits, keys::commits(run, CommitIndex::kCommit),
               KvStore::Order::kAscending, [&](std::string_view key, std::string_view value) {
                 const auto at = keys::lineage_step_at_end(key);
                 auto commit =
                     at ? values::decode_commit(value, run, at->lineage, at->step) : std::nullopt;
                 if (commit) {
                   commits.push_back(std::move(*commit));
                 } else {
                   catalog.damaged(Family::kCommits, "a commit");
                 }
                 return true;
               });
  return commits;
}

}  // namespace

void put_run_state(Change& change) {
  const RunInfo& info = change.run->info;
  change.put(Family::kRuns, keys::run_state(info.id),
             values::encode(values::RunCounters{info.current_lineage, info.last_epoch, info.commits,
                                                info.bytes, info.removed_ns, info.removed_reason}));
}

void remove_run(const Catalog::Impl& catalog, const ckpt::fb::RunRemovedT& removed, Change& change,
                SpaceLedger& space) {
  space.release_run(all_commits(catalog, removed.run));
  remove_keys(removed.run, change);
  RunEntry& run = *change.run;
  run.units = std::make_shared<const UnitSpecs>();
  run.base_units = 0;
  run.lineages.clear();
  run.rules = {};
  for (const auto& [uid, rights] : run.info.grants) {
    change.remove(Family::kRuns, keys::run_grant(removed.run, uid));
  }
  run.info.grants.clear();
  run.info.metadata.clear();
  run.info.current_lineage = 0;
  run.info.commits = removed.commits;
  run.info.bytes = removed.bytes;
  run.info.removed_ns = removed.time_ns;
  run.info.removed_reason = removed.reason;
  put_run_state(change);
}

Status set_grant(const ckpt::fb::RecordT& record, Change& change) {
  const ckpt::fb::GrantedT& granted = *record.body.AsGranted();
  if (granted.uid == std::numeric_limits<uint32_t>::max()) {
    return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "run {}: a grant to no user", granted.run);
  }
  const ckpt::Rights rights = ckpt::from_fb(granted);
  std::string key = keys::run_grant(granted.run, granted.uid);
  if (rights.any()) {
    change.run->info.grants[granted.uid] = rights;
    change.put(Family::kRuns, std::move(key), values::encode(record));
  } else {
    change.run->info.grants.erase(granted.uid);
    change.remove(Family::kRuns, std::move(key));
  }
  return {};
}

}  // namespace ckptd

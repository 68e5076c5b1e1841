// Catalog: the index over the journal. A rebuild from the journal restores all of it, except the
// position of scrub.
//
// apply() folds one journal record into the catalog, in sequence order: for a live commit, for
// journal replay at startup and for a rebuild. Values live in an ordered key-value store behind
// KvStore: RocksDB, or an in-memory store that in simulation keeps any prefix of its batches. One
// record is one atomic batch, its sequence number included. The store therefore always is the fold
// of a prefix of the journal. The catalog keeps small tables that are read all the time (runs,
// lineages, unit specs) in memory; commits and versions stay in the store.
//
// A commit belongs to (run, lineage, step). A second commit there replaces the first, which can
// only be a damaged or deleted commit. No view reads a damaged commit. A deleted commit keeps only
// the versions that its deletion names.
//
// All calls come from the loop thread. A store that cannot be read or written latches health():
// later answers may be incomplete. After a failed write only the memory follows the journal; after
// a failed read no further record is applied. While health() is not ok, a record that must not
// contradict the history (a run, an epoch) may not be written. The daemon calls heal() until the
// store works again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/catalog/blobs.h"
#include "ckptd/catalog/commit_info.h"
#include "ckptd/catalog/kv_store.h"
#include "ckptd/catalog/scrub_state.h"
#include "ckptd/catalog/versions.h"
#include "formats/alarm.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/expert_tokens.h"
#include "formats/journal.h"
#include "formats/keep_rules.h"
#include "formats/rights.h"
#include "formats/unit.h"

namespace ckptd {

using ckpt::Result;
using ckpt::Status;

// One startup of ckptd on the store: its journal record and the time in that record.
struct StartMark {
  uint64_t sequence = 0;
  uint64_t time_ns = 0;  // wall clock
  bool operator==(const StartMark&) const = default;
};

struct RunInfo {
  ckpt::RunId id = 0;
  std::string name;
  uint32_t uid = 0;
  uint64_t created_ns = 0;              // wall clock, since 1970
  ckpt::RunId parent = 0;               // 0: not started from another run
  ckpt::LineageId parent_lineage = 0;   // with parent
  ckpt::Step parent_step = 0;           // with parent
  ckpt::LineageId current_lineage = 0;  // the newest one; 0: none yet
  ckpt::Epoch last_epoch = 0;
  std::string metadata;  // JSON given by the trainer
  uint64_t commits = 0;  // listed in the log: not deleted
  uint64_t bytes = 0;    // of these commits
  // A removed run keeps the values of `commits` and `bytes` from before its removal.
  uint64_t removed_ns = 0;  // 0: not removed
  std::string removed_reason;
  ckpt::Grants grants;
};

struct Lineage {
  ckpt::LineageId id = 0;
  ckpt::LineageId parent = 0;  // 0: starts from nothing
  ckpt::Step fork_step = 0;
  bool operator==(const Lineage&) const = default;
};

// A stretch of a segment's file, in whole blocks.
struct SpaceRange {
  ckpt::SegmentId segment = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  auto operator<=>(const SpaceRange&) const = default;
};
// Space that one record made dead, until a record says that it was reclaimed.
struct DeadSpace {
  uint64_t sequence = 0;           // of the record
  std::vector<SpaceRange> ranges;  // ascending, apart
  bool operator==(const DeadSpace&) const = default;
};

// A snapshot that was not committed because of its alarms.
struct Refusal {
  ckpt::SnapshotKey snapshot;
  uint64_t sequence = 0;
  uint64_t time_ns = 0;
  ckpt::AlarmList alarms;
  bool operator==(const Refusal&) const = default;
};

struct DamagedVersion {
  ckpt::SnapshotKey snapshot;
  std::string reason;
};

// The newest version of a unit, without its places.
struct UnitSum {
  ckpt::LineageId lineage = 0;
  ckpt::Step step = 0;
  uint32_t crc32c = 0;
  bool operator==(const UnitSum&) const = default;
};

class Catalog {
 public:
  // Reads the small tables into memory. A store that is damaged, or written by a newer program, is
  // cleared (reset_reason() says why); journal replay fills it again. With kKeep, and after an
  // error other than damage, the store stays as it is, the catalog is empty in memory, and
  // health() says why.
  enum class Unreadable : uint8_t { kClear, kKeep };
  explicit Catalog(std::unique_ptr<KvStore> store, Unreadable unreadable = Unreadable::kClear);
  ~Catalog();
  const std::string& reset_reason() const;  // empty: the store was used as it was
  const std::string& store_id() const;      // of the folded journal, in hex; empty: none yet

  // Folds a record in. Records at or below applied_sequence() are ignored (replay is idempotent).
  // An error (kCorrupt: a record that contradicts earlier records) leaves everything as it was.
  // A failed write is returned once and latched in health(); memory takes the record. After a
  // failed read, returns the error of health() and changes nothing.
  Status apply(uint64_t sequence, const ckpt::fb::RecordT& record);
  uint64_t applied_sequence() const;
  // Startups of ckptd among the applied records, ascending. Records that an older version of
  // ckptd applied are missing. Fails if the store cannot be read.
  Result<std::vector<StartMark>> starts() const;
  // The journal has this record: until it is applied, health() reports it as missing.
  void expect(uint64_t sequence);
  // Clears the catalog, for a rebuild, and the error of health(). After an error the catalog is
  // empty in memory, and its store closed.
  Status clear();
  // store_health(), or kUnavailable while expected records are missing.
  Status health() const;
  // The first error of reading or writing the store; ok as long as every answer was complete.
  Status store_health() const;
  uint64_t write_errors() const;  // writes of the store that failed
  // Repairs the store after an error in store_health(). A store that a failed write closed is
  // reopened as it was; one that a shortage kept from being read is read again; a damaged one is
  // cleared. The caller then applies the records after applied_sequence(). On error nothing has
  // changed. `may_clear` is asked before a clear: can the journal fill the store again?
  Status heal(const std::function<Status()>& may_clear);
  // Reads the small tables into memory again, after the store was exchanged under them. After an
  // error the catalog is unchanged.
  Status reload();

  std::vector<RunInfo> runs() const;  // by id: oldest first
  // Removed runs. run(id) finds a removed run, which has nothing left but its dead space.
  std::vector<RunInfo> removed_runs() const;         // by id
  Result<RunInfo> run(std::string_view name) const;  // kNotFound: "run X: no such run"
  Result<RunInfo> run(ckpt::RunId id) const;
  // Indexed by UnitId; never changes (a later registration makes a new list). Empty: none yet.
  Result<std::shared_ptr<const std::vector<ckpt::UnitSpec>>> units(ckpt::RunId run) const;
  // Units of the run's first registration, which every view has: ids [0, n). The others are grown.
  // 0 for an unknown run.
  ckpt::UnitId base_units(ckpt::RunId run) const;
  Result<std::vector<Lineage>> lineages(ckpt::RunId run) const;
  std::map<std::string, ViewPoint> tags(ckpt::RunId run) const;
  ckpt::KeepRules keep_rules(ckpt::RunId run) const;   // empty: none set
  std::vector<ViewPoint> pins(ckpt::RunId run) const;  // ascending
  // Oldest first. Dead space holds nothing live: neither a version nor the header before one.
  std::vector<DeadSpace> dead_space(ckpt::RunId run) const;
  // The same, one at a time, starting at this record; stops when visit returns false.
  void visit_dead_space(ckpt::RunId run, uint64_t from_sequence,
                        const std::function<bool(DeadSpace)>& visit) const;
  // The space that this record made dead; nullopt: it was reclaimed.
  std::optional<DeadSpace> dead_space(ckpt::RunId run, uint64_t sequence) const;
  // Extents in the segment that hold live data, counted once for each commit that references them.
  // An index that cannot be read is an error: the caller must not take it for zero.
  Result<uint64_t> live_extents(ckpt::SegmentId segment) const;

  std::vector<CommitInfo> commits(ckpt::RunId run) const;  // oldest first, deleted ones included
  // The same without holding all commits in memory. Newest first, starting at the commit of journal
  // record `newest`; stops when visit returns false.
  void visit_commits(ckpt::RunId run, const std::function<bool(const CommitInfo&)>& visit,
                     uint64_t newest = ~uint64_t{0}) const;
  std::optional<CommitInfo> commit(ckpt::RunId run, ckpt::LineageId lineage, ckpt::Step step) const;
  // The journal record of a commit, damaged ones included; nullopt for an unknown commit. For a
  // deleted commit: the units whose versions stay, and their extents; nullopt if none stay.
  std::optional<ckpt::fb::CommittedT> record(ckpt::RunId run, ckpt::LineageId lineage,
                                             ckpt::Step step) const;
  // The same, but a commit of which nothing stays has a record, too, without fragments.
  std::optional<ckpt::fb::CommittedT> record_any(ckpt::RunId run, ckpt::LineageId lineage,
                                                 ckpt::Step step) const;

  // The commits that reference part of the extent there, as bytes or as bases: commits that share
  // the extent, and its writer if the writer is deleted. At most `most`.
  std::vector<ViewPoint> holders(ckpt::RunId run, ckpt::SegmentId segment, uint64_t offset,
                                 size_t most) const;

  // Extents of a commit, or of what its deletion left. A shared extent names the commit that wrote
  // it (Extent in records.fbs). Empty: the commit has no extents.
  std::vector<ckpt::fb::ExtentT> extents(ckpt::RunId run, ViewPoint commit) const;

  // Blobs of the commit there, ascending by id; of a damaged commit, too. Empty: it has none, or is
  // deleted.
  std::vector<CommitBlob> blobs(ckpt::RunId run, ViewPoint commit) const;

  // Oldest first.
  std::vector<Refusal> refusals(ckpt::RunId run) const;

  // Tokens per expert in the commit there; empty: the commit has no counts.
  ckpt::ExpertTokenCounts expert_tokens(ckpt::RunId run, ViewPoint commit) const;
  // Counts of the newest commit at or before the point that has counts; nullopt: there is none.
  struct TokensAt {
    ViewPoint commit;
    ckpt::ExpertTokenCounts counts;
  };
  std::optional<TokensAt> newest_expert_tokens(ckpt::RunId run, ViewPoint point) const;
  // Only the step of that commit, and only in the point's own lineage.
  std::optional<ckpt::Step> newest_tokens_in(ckpt::RunId run, ViewPoint point) const;

  // The commit that RUN~lineage@step names: the lineage's own, or the ancestor's if the step is not
  // after the fork. lineage 0: the current one. kNotFound: no such lineage, no commit at this step;
  // kCorrupt: the commit is damaged.
  Result<ViewPoint> resolve(ckpt::RunId run, ckpt::LineageId lineage, ckpt::Step step) const;
  // The same, but returns a damaged commit, too: to show or verify it, or to restore the older
  // versions that its view falls back to.
  Result<ViewPoint> resolve_any(ckpt::RunId run, ckpt::LineageId lineage, ckpt::Step step) const;

  // Parts of the history that a view at the point reads: its lineage up to the step, then each
  // ancestor up to the fork, as lineage and newest step. Empty for an unknown run or lineage.
  std::vector<ViewPoint> path(ckpt::RunId run, ViewPoint point) const;

  // The newest version of the unit at or before the point: in the point's lineage, then in each
  // ancestor up to its fork step. `before` excludes that snapshot and newer ones: used to fall back
  // when a version turned out damaged.
  std::optional<UnitVersion> newest_version(ckpt::RunId run, ckpt::UnitId unit, ViewPoint point,
                                            const std::optional<ckpt::SnapshotKey>& before) const;
  // The newest sum of every unit, by UnitId; nullopt: the unit has none. Reads commits from the
  // newest on, until every unit is found or single look-ups of the missing units are cheaper.
  std::vector<std::optional<UnitSum>> newest_sums(ckpt::RunId run, ViewPoint point) const;
  // Visits the commits of the point's lineage, up to its step, that views may use. One visit covers
  // one commit and all of its units. Ascending by step; so are `units`.
  using VisitUnits = std::function<void(ckpt::Step step, const std::vector<ckpt::UnitId>& units)>;
  void visit_units(ckpt::RunId run, ViewPoint point, const VisitUnits& visit) const;
  // The damaged version that the view would use otherwise, and why its commit is damaged.
  std::optional<DamagedVersion> damaged_version(ckpt::RunId run, ckpt::UnitId unit,
                                                ViewPoint point) const;
  // All lineages; ascending by lineage, then step. Without versions of damaged commits.
  std::vector<UnitVersion> versions(ckpt::RunId run, ckpt::UnitId unit) const;

  // The newest complete view of the lineage (0: the current one), ancestors included. The point
  // names the commit's own lineage, which may be an ancestor.
  std::optional<ViewPoint> latest_complete(ckpt::RunId run, ckpt::LineageId lineage) const;
  // True if the view at the point has a version of every unit that belongs to it.
  bool complete(ckpt::RunId run, ViewPoint point) const;
  // True if the unit belongs to the view at the point: it is of the base, or a commit of the view's
  // path contains it, be it damaged.
  bool belongs(ckpt::RunId run, ckpt::UnitId unit, ViewPoint point) const;

  // Kept beside the index, not in the journal: a rebuild loses it. nullopt: there is none, or its
  // bytes do not verify. Fails if the store cannot be read.
  Result<std::optional<ScrubState>> scrub_state() const;
  // Not synced. An error of the store is returned, and latched in health().
  Status set_scrub_state(const ScrubState& state);

  struct Impl;  // catalog_impl.h, private to this folder

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd

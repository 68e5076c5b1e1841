// Catalog: the index over the journal. Everything in it can be made anew from there, but for where
// background work stands.
//
// apply() folds one journal record into it, in sequence order; it is the same for a live commit, a
// replay at start and a rebuild. Values live in an ordered key-value store behind KvStore: RocksDB,
// or an in-memory twin that in simulation keeps any prefix of its batches. One record is one atomic
// batch, its sequence number included, so that the store always is the fold of a prefix of the
// journal. In memory the catalog keeps what is small and asked for all the time (runs, lineages,
// unit specs); commits and versions stay in the store.
//
// A commit belongs to (run, lineage, step). A second commit there replaces the first (which can
// only be one that was damaged, or deleted). Damaged commits are part of no view; of deleted ones
// those versions are which their deletion says stay.
//
// All calls come from the loop thread. A store that cannot be read or written latches health():
// answers given after that may lack something. After a failed write memory alone follows the
// journal; after a failed read no record is applied any more. Either way health() is not ok, and a
// record that must not contradict the history (a run, an epoch) may not be written. The daemon
// calls heal() until the store is back.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/catalog/kv_store.h"
#include "ckptd/catalog/scrub_state.h"
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

// A start of ckptd on the store: its journal record and the time it says.
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
  ckpt::LineageId current_lineage = 0;  // the one opened last; 0: none yet
  ckpt::Epoch last_epoch = 0;
  std::string metadata;  // JSON given by the trainer
  uint64_t commits = 0;  // listed in the log: not deleted
  uint64_t bytes = 0;    // of these
  // Of a removed run `commits` and `bytes` are what it listed until then.
  uint64_t removed_ns = 0;  // 0: it is there
  std::string removed_reason;
  ckpt::Grants grants;
};

struct Lineage {
  ckpt::LineageId id = 0;
  ckpt::LineageId parent = 0;  // 0: starts from nothing
  ckpt::Step fork_step = 0;
  bool operator==(const Lineage&) const = default;
};

// RUN@STEP and its relatives, resolved.
struct ViewPoint {
  ckpt::LineageId lineage = 0;
  ckpt::Step step = 0;
  auto operator<=>(const ViewPoint&) const = default;
};

// Where the base of a delta lies: the same range of the unit, in an extent of an earlier commit. It
// is no delta itself.
struct BasePlace {
  uint32_t crc32c = 0;  // of its bytes, as they were staged
  uint32_t codec = 0;
  ckpt::SegmentId segment = 0;
  uint64_t extent_offset = 0;
  uint64_t payload_offset = 0;
  uint32_t encoded_crc32c = 0;
  uint64_t encoded_bytes = 0;
  ViewPoint written_by = {};
  uint32_t deltas = 0;  // versions in a row that are deltas to it, up to this one
  bool operator==(const BasePlace&) const = default;
};

// A place of bytes on disk that holds part of a unit version.
struct FragmentPlace {
  uint64_t offset = 0;  // in the unit
  uint64_t length = 0;
  uint32_t crc32c = 0;
  uint32_t codec = 0;
  ckpt::SegmentId segment = 0;
  uint64_t extent_offset = 0;   // of the extent header in the segment
  uint64_t payload_offset = 0;  // of the fragment in the segment file
  uint32_t encoded_crc32c = 0;  // without a codec zero, as is the next
  uint64_t encoded_bytes = 0;
  ViewPoint written_by = {};           // lineage 0: the version's own commit; else an earlier one
  std::optional<BasePlace> base = {};  // of a delta, and of nothing else
  bool operator==(const FragmentPlace&) const = default;
  bool shared() const { return written_by.lineage != 0; }
  // What lies on disk.
  uint64_t stored_bytes() const { return codec == 0 ? length : encoded_bytes; }
  uint64_t stored_end() const { return payload_offset + stored_bytes(); }
};
// The base of a delta as a place of its own.
FragmentPlace base_of(const FragmentPlace& delta);

// One unit as of one commit.
struct UnitVersion {
  ckpt::UnitId unit = 0;
  ckpt::SnapshotKey snapshot;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;                   // of the whole unit
  std::vector<FragmentPlace> fragments;  // ascending by offset, covering the unit exactly
  bool operator==(const UnitVersion&) const = default;
};

struct CommitInfo {
  ckpt::SnapshotKey snapshot;
  uint64_t sequence = 0;  // of its journal record: the order of commits
  uint64_t time_ns = 0;
  uint64_t bytes = 0;  // of all its units
  bool full = false;
  bool damaged = false;
  bool deleted = false;
  std::string reason;     // why it is damaged or deleted
  uint64_t ended_ns = 0;  // when that was said
  // Ascending. Of a deleted commit: those whose versions stay, for views of commits that are kept.
  std::vector<ckpt::UnitId> units;
  bool kept_tokens = false;  // of a deleted commit: its counts of tokens stay
  uint64_t lost_tokens = 0;  // by all its experts together, since the run began
  uint64_t moved = 0;        // record that moved bytes of it last; 0: they lie where it wrote them
  std::map<std::string, double> metrics;
  ckpt::AlarmList alarms;
  bool operator==(const CommitInfo&) const = default;
};

// A stretch of a segment's file, in whole blocks.
struct SpaceRange {
  ckpt::SegmentId segment = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  auto operator<=>(const SpaceRange&) const = default;
};
// What a record made dead, until it is on record as given back.
struct DeadSpace {
  uint64_t sequence = 0;           // of the record
  std::vector<SpaceRange> ranges;  // ascending, apart
  bool operator==(const DeadSpace&) const = default;
};

// A snapshot that its alarms kept from being committed.
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
  // Reads the small tables into memory. A damaged store, or one that a newer program wrote, is
  // emptied (reset_reason() says why); replaying the journal fills it again. With kKeep, and after
  // an error that is no damage, the store stays as it is, the catalog is empty in memory, and
  // health() says why.
  enum class Unreadable : uint8_t { kClear, kKeep };
  explicit Catalog(std::unique_ptr<KvStore> store, Unreadable unreadable = Unreadable::kClear);
  ~Catalog();
  const std::string& reset_reason() const;  // empty: the store was used as it was
  const std::string& store_id() const;      // whose journal was folded in, in hex; empty: none yet

  // Folds a record in. Records at or below applied_sequence() are ignored (replay is idempotent).
  // An error (kCorrupt: a record that contradicts those before it) leaves everything as it was.
  // A failed write is told once and latched in health(); memory takes the record. After a failed
  // read: health(), and nothing changes.
  Status apply(uint64_t sequence, const ckpt::fb::RecordT& record);
  uint64_t applied_sequence() const;
  // Starts of ckptd among the records that were applied, ascending. Those that an older version of
  // ckptd applied are missing. The error of a store that cannot be read.
  Result<std::vector<StartMark>> starts() const;
  // The journal has this record: until it is applied, health() says that it is missing.
  void expect(uint64_t sequence);
  // Empties it, for a rebuild. Also ends what health() complains of. After an error it is empty in
  // memory, and its store closed.
  Status clear();
  // store_health(), or kUnavailable while expected records are missing.
  Status health() const;
  // The first error of reading or writing the store; ok as long as every answer was what it has.
  Status store_health() const;
  uint64_t write_errors() const;  // writes of the store that failed
  // Ends what the store's health() complains of: a store that a failed write has closed is opened
  // again as it was, one that a shortage kept from being read is read again, a damaged one is
  // emptied. Then the records after applied_sequence() are to be applied. On error nothing has
  // changed. `may_clear` is asked before anything is emptied: can the journal fill it again?
  Status heal(const std::function<Status()>& may_clear);
  // Reads the small tables into memory again, after the store was exchanged under them. After an
  // error everything is as before.
  Status reload();

  std::vector<RunInfo> runs() const;  // by id: oldest first
  // Those that are gone: who has their numbers finds them, and nothing in them but dead space.
  std::vector<RunInfo> removed_runs() const;         // by id
  Result<RunInfo> run(std::string_view name) const;  // kNotFound: "run X: no such run"
  Result<RunInfo> run(ckpt::RunId id) const;
  // Indexed by UnitId; never changes (a later registration makes a new list). Empty: none yet.
  Result<std::shared_ptr<const std::vector<ckpt::UnitSpec>>> units(ckpt::RunId run) const;
  Result<std::vector<Lineage>> lineages(ckpt::RunId run) const;
  std::map<std::string, ViewPoint> tags(ckpt::RunId run) const;
  ckpt::KeepRules keep_rules(ckpt::RunId run) const;   // empty: none were set
  std::vector<ViewPoint> pins(ckpt::RunId run) const;  // ascending
  // Oldest first. Nothing that is live lies in it: neither a version nor the header before one.
  std::vector<DeadSpace> dead_space(ckpt::RunId run) const;
  // The same without holding it all in memory, from this record on; stops when visit returns false.
  void visit_dead_space(ckpt::RunId run, uint64_t from_sequence,
                        const std::function<bool(DeadSpace)>& visit) const;
  // What this record made dead; nullopt: it is given back.
  std::optional<DeadSpace> dead_space(ckpt::RunId run, uint64_t sequence) const;
  // Extents in the segment of which something is live, once for each commit that has it. An index
  // that cannot be read is an error: it must not be taken for "none".
  Result<uint64_t> live_extents(ckpt::SegmentId segment) const;

  std::vector<CommitInfo> commits(ckpt::RunId run) const;  // oldest first, deleted ones included
  // The same without holding them all in memory. Newest first, from that of the journal's record
  // `newest` on; stops when visit returns false.
  void visit_commits(ckpt::RunId run, const std::function<bool(const CommitInfo&)>& visit,
                     uint64_t newest = ~uint64_t{0}) const;
  std::optional<CommitInfo> commit(ckpt::RunId run, ckpt::LineageId lineage, ckpt::Step step) const;
  // The journal's record of a commit, damaged ones included; nullopt for unknown ones. Of a deleted
  // one what is left of it: the units whose versions stay, and their extents; nullopt: nothing.
  std::optional<ckpt::fb::CommittedT> record(ckpt::RunId run, ckpt::LineageId lineage,
                                             ckpt::Step step) const;

  // The commits that hold a part of the extent there, bytes or bases: those that share it, and its
  // writer if that is deleted. At most `most`.
  std::vector<ViewPoint> holders(ckpt::RunId run, ckpt::SegmentId segment, uint64_t offset,
                                 size_t most) const;

  // Where the bytes of a commit lie, or of what is left of it. Those of other commits among them
  // say so (Extent in records.fbs). Empty: there is nothing of it.
  std::vector<ckpt::fb::ExtentT> extents(ckpt::RunId run, ViewPoint commit) const;

  // Oldest first.
  std::vector<Refusal> refusals(ckpt::RunId run) const;

  // Tokens per expert as the commit there has them; empty: it has none.
  ckpt::ExpertTokenCounts expert_tokens(ckpt::RunId run, ViewPoint commit) const;
  // Those of the newest commit at or before the point that has some; nullopt: none has.
  struct TokensAt {
    ViewPoint commit;
    ckpt::ExpertTokenCounts counts;
  };
  std::optional<TokensAt> newest_expert_tokens(ckpt::RunId run, ViewPoint point) const;
  // Its step alone, and in the point's lineage alone.
  std::optional<ckpt::Step> newest_tokens_in(ckpt::RunId run, ViewPoint point) const;

  // The commit that RUN~lineage@step names: the lineage's own, or the ancestor's if the step is not
  // after the fork. lineage 0: the current one. kNotFound: no such lineage, no commit at this step;
  // kCorrupt: it is there, and damaged.
  Result<ViewPoint> resolve(ckpt::RunId run, ckpt::LineageId lineage, ckpt::Step step) const;
  // The same, but a damaged commit is named too: to show or verify it, or to restore what its view
  // has instead (older versions, which the answer says).
  Result<ViewPoint> resolve_any(ckpt::RunId run, ckpt::LineageId lineage, ckpt::Step step) const;

  // What a view at the point may look at: its lineage up to the step, then each ancestor up to the
  // fork, as lineage and newest step. Empty for an unknown run or lineage.
  std::vector<ViewPoint> path(ckpt::RunId run, ViewPoint point) const;

  // The newest version of the unit at or before the point: in the point's lineage, then in each
  // ancestor up to its fork step. `before` excludes that snapshot and newer ones: used to fall back
  // when a version turned out damaged.
  std::optional<UnitVersion> newest_version(ckpt::RunId run, ckpt::UnitId unit, ViewPoint point,
                                            const std::optional<ckpt::SnapshotKey>& before) const;
  // Of every unit at once, by UnitId; nullopt: it has none. Reads commits from the newest on until
  // no unit is left, and looks up one by one what they do not have once that is cheaper.
  std::vector<std::optional<UnitSum>> newest_sums(ckpt::RunId run, ViewPoint point) const;
  // What the commits of the point's lineage, up to its step, have that views may use: of all views
  // of the lineage at once, each a part. Ascending by step; so are `units`.
  using VisitUnits = std::function<void(ckpt::Step step, const std::vector<ckpt::UnitId>& units)>;
  void visit_units(ckpt::RunId run, ViewPoint point, const VisitUnits& visit) const;
  // The version that the view would have, were its commit not damaged; and why it is.
  std::optional<DamagedVersion> damaged_version(ckpt::RunId run, ckpt::UnitId unit,
                                                ViewPoint point) const;
  // All lineages; ascending by lineage, then step. Without those of damaged commits.
  std::vector<UnitVersion> versions(ckpt::RunId run, ckpt::UnitId unit) const;

  // The newest complete view of the lineage (0: the current one), ancestors included. The point
  // names the commit's own lineage, which may be an ancestor.
  std::optional<ViewPoint> latest_complete(ckpt::RunId run, ckpt::LineageId lineage) const;
  // Does the view at the point have every registered unit?
  bool complete(ckpt::RunId run, ViewPoint point) const;

  // Kept beside the index, and not in the journal: a rebuild loses it. nullopt: there is none, or
  // its bytes are no such state. The error of a store that cannot be read.
  Result<std::optional<ScrubState>> scrub_state() const;
  // Not synced. An error is the store's, and latched in health().
  Status set_scrub_state(const ScrubState& state);

  struct Impl;  // catalog_impl.h, private to this folder

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd

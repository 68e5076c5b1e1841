// Private to this folder: state and helpers that the sources of Catalog share.
#pragma once

#include "ckptd/catalog/catalog.h"
#include "ckptd/catalog/keys.h"
#include "ckptd/catalog/values.h"

namespace ckptd {

// Changes with every change of keys or values; a catalog of another format is rebuilt.
inline constexpr uint32_t kCatalogFormat = 5;

using UnitSpecs = std::vector<ckpt::UnitSpec>;

// The small part of a run, kept in memory.
struct RunEntry {
  RunInfo info;
  std::shared_ptr<const UnitSpecs> units = std::make_shared<const UnitSpecs>();
  ckpt::UnitId base_units = 0;  // the first of them; the rest are grown
  std::map<ckpt::LineageId, Lineage> lineages;
  ckpt::KeepRules rules;
};

// One record's effect on the store and on the run in memory. Memory changes after the store.
struct Change {
  std::vector<KvWrite> batch;
  std::optional<RunEntry> run;  // the run after the change

  void put(Family family, std::string key, std::string value) {
    batch.push_back({family, std::move(key), std::move(value)});
  }
  void remove(Family family, std::string key) {
    batch.push_back({family, std::move(key), std::nullopt});
  }
  void remove_prefix(Family family, std::string prefix) {
    batch.push_back({family, std::move(prefix), std::nullopt, /*prefix=*/true});
  }
};

// Units that a view still lacks, and the cost so far of reading its commits (summaries.cc).
struct SumsCost {
  size_t missing = 0;
  size_t commits = 0;
  size_t units = 0;  // of these commits
};

// The part of the catalog that is kept in memory beside the store.
struct CatalogMemory {
  std::map<ckpt::RunId, RunEntry> runs;
  std::map<std::string, ckpt::RunId, std::less<>> run_by_name;
  uint64_t applied = 0;
  std::string store_id;  // hex; empty until the first StoreOpened
};

struct Catalog::Impl : CatalogMemory {
  std::unique_ptr<KvStore> store;
  std::string reset_reason;
  mutable Status health;
  uint64_t write_errors = 0;
  uint64_t expected = 0;      // records up to this one are in the journal
  bool store_closed = false;  // by a failed write: only the memory follows the journal

  // ---- loading (catalog.cc) ----
  Status load();
  Status load_meta();
  Status load_runs();
  Status load_units();
  Status load_lineages();
  CatalogMemory& memory() { return *this; }

  std::vector<RunInfo> infos(bool removed) const;

  // Writes a value that is in no journal record: see Catalog::set_scrub_state().
  Status put_unjournaled(std::string_view key, std::string value);

  // ---- folding (fold.cc) ----
  Result<Change> fold(uint64_t sequence, const ckpt::fb::RecordT& record) const;

  // ---- reading (views.cc, completeness.cc). Errors are latched in `health`, and read as
  // "nothing". ----
  const RunEntry* find(ckpt::RunId run) const;
  std::optional<values::CommitValue> read_commit(ckpt::RunId run, ckpt::LineageId lineage,
                                                 ckpt::Step step) const;
  std::optional<CommitInfo> read_info(ckpt::RunId run, ckpt::LineageId lineage,
                                      ckpt::Step step) const;
  std::optional<values::VersionValue> read_version(ckpt::RunId run, ckpt::UnitId unit,
                                                   ckpt::LineageId lineage, ckpt::Step step) const;
  std::optional<std::string> get(Family family, const std::string& key) const;
  std::optional<KvEntry> seek_for_prev(Family family, const std::string& key,
                                       const std::string& prefix) const;
  void scan(Family family, const std::string& prefix, KvStore::Order order,
            const KvStore::Visit& visit) const;
  void scan_back(Family family, const std::string& from, const std::string& prefix,
                 const KvStore::Visit& visit) const;
  // True if a commit other than `own` references part of the extent there.
  bool others_hold(ckpt::RunId run, ckpt::SegmentId segment, uint64_t offset, ViewPoint own) const;
  // Latches the error for a value that does not verify.
  void damaged(Family family, std::string_view what) const;

  // The stretches of history that a view reads, newest first: the point's lineage up to its step,
  // then each ancestor up to the fork (or the step, if that is before the fork).
  struct Stretch {
    ckpt::LineageId lineage = 0;
    ckpt::Step newest_step = 0;
  };
  std::vector<Stretch> path(const RunEntry& run, ViewPoint point) const;
  std::optional<ckpt::Step> newest_live(ckpt::RunId run, const Stretch& stretch) const;
  // The end of an error message: the commits of this step that lineages other than `except` have,
  // by the names that find them. Empty if there are none (resolve.cc).
  std::string in_other_lineages(const RunEntry& run, ckpt::LineageId except, ckpt::Step step) const;
  bool has_version(ckpt::RunId run, ckpt::UnitId unit, const std::vector<Stretch>& path) const;
  // The same, with versions of damaged commits.
  bool was_saved(ckpt::RunId run, ckpt::UnitId unit, const std::vector<Stretch>& path) const;
  // The oldest step at which a commit of the lineage contains the unit.
  std::optional<ckpt::Step> first_saved(ckpt::RunId run, ckpt::UnitId unit,
                                        ckpt::LineageId lineage) const;
  // The oldest step at which a commit that the path sees contains the unit.
  std::optional<ckpt::Step> first_saved(ckpt::RunId run, ckpt::UnitId unit,
                                        const std::vector<Stretch>& path) const;
  // A unit that belongs to the view without having a version there; nullopt: it is complete.
  std::optional<ckpt::UnitId> missing_unit(const RunEntry& entry,
                                           const std::vector<Stretch>& path) const;
  std::optional<ViewPoint> latest_complete_in(const RunEntry& entry, Stretch stretch) const;
  std::optional<UnitVersion> newest_in(ckpt::RunId run, ckpt::UnitId unit,
                                       const Stretch& stretch) const;

  // ---- sums (summaries.cc) ----
  using Sums = std::vector<std::optional<UnitSum>>;  // by unit
  std::optional<Stretch> read_sums(ckpt::RunId run, const Stretch& stretch, size_t stretches_left,
                                   SumsCost& cost, Sums& newest) const;
  void look_up_sums(ckpt::RunId run, const Stretch& stretch, Sums& newest) const;
};

}  // namespace ckptd

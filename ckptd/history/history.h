// History: the journal, and the catalog that is its fold. The only writer of both.
//
// A change is a list of records. record() appends them to the journal; once they are durable they
// are applied to the catalog, and then the caller's callback runs. Callbacks run in journal order.
//
// Applying is bounded per turn of the loop: removing a large commit from the index takes as long as
// a trainer's step, and a prune has many. Each turn applies records for a limited time, at least
// one, and then other work runs. Meanwhile the catalog is the fold of a prefix of the records,
// perhaps up to the middle of a batch. Each record leaves the history consistent, and a prune
// removes the highest steps first, so listed commits stay intact. Later durable records queue up.
//
// After a failed write the journal is closed: records are refused, and the catalog stays. A catalog
// that cannot be read or written is healed from the journal. Loop thread only; close() waits for
// nothing, the owner reaps the disk until idle().
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/catalog/whole_read.h"
#include "ckptd/history/catalog_keeper.h"
#include "ckptd/history/make_record.h"
#include "ckptd/history/recovered_store.h"
#include "ckptd/io/executor.h"
#include "ckptd/io/journal_source.h"
#include "ckptd/loop/turn.h"
#include "ckptd/persist/persist.h"

namespace ckptd {

class History {
 public:
  struct Needs {
    Disk& disk;
    Executor& executor;
    const Turn& turn;
    StandInStore::Open open_catalog;
    std::chrono::milliseconds apply_turn;  // longest time for applying records per turn
    // Called with each record just before it is applied.
    std::function<void(const ckpt::fb::RecordT&)> on_record;
  };
  explicit History(Needs needs);
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // -- recovery, before any session exists -------------------------------------------------------
  CatalogKeeper& keeper() { return keeper_; }
  // Continues this store. Repeated after a salvage.
  void use(const RecoveredStore& store);
  // The keeper has settled: its catalog is the store's.
  void take_catalog() { catalog_ = keeper_.catalog(); }
  // For replays at startup; no other code writes to the catalog.
  Catalog& catalog_for_recovery() { return *catalog_; }
  // Opens the journal for appending, and records this startup. The store keeps its version until a
  // record needs a newer one. False: the disk has no room, and the startup is not recorded yet.
  Result<bool> begin_journal(const RecoveredStore& store);
  // Appends and applies records, and waits for the disk.
  Status record_blocking(const std::vector<ckpt::fb::RecordT>& records);
  // From now on applying is bounded per turn.
  void start_turns();

  // -- the catalog -------------------------------------------------------------------------------
  const Catalog& catalog() const { return *catalog_; }
  // Reads the catalog as a whole, or fails (whole_read.h).
  template <typename Read>
  auto read(Read get) {
    return read_whole(*catalog_, healer(), std::move(get));
  }
  // The commit of the step, of any epoch and attempt. An error must not be taken for "none".
  Result<std::optional<CommitInfo>> commit_at(const ckpt::SnapshotKey& key);
  HealCatalog healer();
  // Name for the log; "#ID" of a run that the catalog does not have.
  std::string run_name(ckpt::RunId run) const;
  Status heal() { return keeper_.heal(turn_.now(), journal_end()); }
  void tick(Time now) { keeper_.tick(now, journal_end()); }
  // Clears the catalog and fills it from the journal. Blocks the loop: no client gets an answer
  // from a partial index.
  Status rebuild() { return keeper_.rebuild(journal_end()); }
  // The one value of the catalog that is in no journal record.
  Status save_scrub_state(const ScrubState& state) { return catalog_->set_scrub_state(state); }
  // True if the catalog is readable and has every durable record.
  bool current() const { return catalog_->health().ok() && !applies(); }

  // -- the journal -------------------------------------------------------------------------------
  // Appends to the journal, then applies to the catalog, then calls `then`.
  void record(std::vector<ckpt::fb::RecordT> records, std::function<void(const Status&)> then);
  // The StoreClosed record: every later record() fails with kUnavailable.
  void record_last(ckpt::fb::RecordT closed, std::function<void(const Status&)> then);
  bool closing() const { return closing_; }
  // Applies a commit record that group commit made durable.
  void apply(uint64_t sequence, const ckpt::fb::RecordT& record);
  JournalWriter& journal() { return *journal_; }
  const JournalWriter& journal() const { return *journal_; }
  const ckpt::base::Hash128& store_id() const { return store_id_; }
  uint64_t last_sequence() const { return last_sequence_; }
  CatalogKeeper::Journal journal_end() const { return {journal_file_, last_sequence_}; }
  JournalSource journal_source() const;
  // True if durable records, or callbacks after them, still wait for their turn.
  bool applies() const { return batch_.has_value() || !waiting_.empty(); }
  // Applies for one turn. Returns the number of steps.
  size_t apply_durable();
  // Shutdown: applies everything at once from now on.
  void apply_at_once();
  bool idle() const { return (!journal_ || journal_->in_flight() == 0) && !turn_asked_; }
  void close();

 private:
  // Records of one append that are being applied, and the callback after them.
  struct Batch {
    uint64_t first_sequence = 0;
    std::shared_ptr<const std::vector<ckpt::fb::RecordT>> records;
    size_t applied = 0;
    std::function<void(const Status&)> then;
  };
  void append(std::vector<ckpt::fb::RecordT> records, std::function<void(const Status&)> then);
  void apply_next();

  Disk& disk_;
  Executor& executor_;
  const Turn& turn_;
  const std::chrono::milliseconds apply_turn_;
  const std::function<void(const ckpt::fb::RecordT&)> on_record_;
  CatalogKeeper keeper_;
  Catalog* catalog_ = nullptr;  // owned by the keeper

  ckpt::base::Hash128 store_id_;
  FileId journal_file_ = 0;
  uint64_t last_sequence_ = 0;  // of the journal; the catalog must reach it
  std::unique_ptr<JournalWriter> journal_;
  bool closing_ = false;  // StoreClosed was appended

  std::optional<Batch> batch_;
  std::deque<std::function<void()>> waiting_;  // in journal order
  bool turn_asked_ = false;                    // a completion will wake the loop up
  bool at_once_ = false;
};

}  // namespace ckptd

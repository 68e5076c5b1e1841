#include "ckptd/recovery/journal_salvage.h"

#include <spdlog/spdlog.h>

#include <charconv>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ckptd/io/store_paths.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/recovery/new_journal.h"
#include "formats/base/counted.h"
#include "formats/base/hash.h"
#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::SnapshotKey;

namespace {

// Records per append to a new journal.
constexpr size_t kBatchRecords = 16;

std::string run_of(const Catalog& catalog, const SnapshotKey& key) {
  const auto run = catalog.run(key.run);
  return run.ok() ? fmt::format("run {}", run->name) : fmt::format("run number {}", key.run);
}

std::string commit_of(const SnapshotKey& key) {
  return fmt::format("step {} of lineage {}", key.step, key.lineage);
}

// Inverse of to_hex(); zero for other text.
ckpt::base::Hash128 hash_of_hex(std::string_view text) {
  ckpt::base::Hash128 hash;
  if (text.size() != 32) return {};
  const std::string digits(text);
  const char* const begin = digits.c_str();
  const auto high = std::from_chars(begin, begin + 16, hash.high, 16);
  const auto low = std::from_chars(begin + 16, begin + 32, hash.low, 16);
  const bool whole = high.ptr == begin + 16 && low.ptr == begin + 32;
  return whole ? hash : ckpt::base::Hash128();
}

// Only the user can help: neither the journal nor the catalog is complete.
Error cannot_salvage(const RecoveredStore& store, const JournalDamage::Lost& lost,
                     const std::string& catalog) {
  const uint64_t offset = store.end.offset;
  const std::string truncate_hint =
      offset == 0 ? ""
                  : fmt::format(
                        "; or, to continue without everything after record {}, copy the data "
                        "directory, and then cut the journal: truncate -s {} {}",
                        store.end.next_sequence - 1, offset, kJournalPath);
  return make_error(ErrorCode::kCorrupt,
                    "{}: {}: records {} to {} are partly lost, and {}: put the journal, or the "
                    "directory catalog, back from a copy{}",
                    kJournalPath, store.damage->reason, lost.first, lost.last, catalog,
                    truncate_hint);
}

void log_salvaged(const std::string& kept) {
  log_event(spdlog::level::err, "journal_salvaged", {{"path", kJournalPath}, {"kept", kept}},
            "{}: written anew from the catalog; the damaged one is kept as {}. What the catalog "
            "does not hold is in that one only: who was in earlier epochs, when the store was "
            "opened and closed, when lineages were opened, size of what was deleted",
            kJournalPath, kept);
}

// Puts records into a new journal, and into an index in memory that follows it. Each is folded in
// first, and skipped if that fails: a journal must never contradict its earlier records.
class Putter {
 public:
  Putter(NewJournal& journal, Catalog& index) : journal_(journal), index_(index) {}

  bool add(const fb::RecordT& record) {
    const Status applied = index_.apply(index_.applied_sequence() + 1, record);
    if (applied.ok()) {
      records_.push_back(record);
      if (records_.size() >= kBatchRecords) write();
    } else {
      spdlog::debug("a lost record cannot be put back: {}", applied.error().message);
      if (refused_++ == 0) first_refused_ = applied.error().message;
    }
    return applied.ok();
  }
  void add_all(const std::vector<fb::RecordT>& records) {
    for (const fb::RecordT& record : records) add(record);
  }
  Status finish() {
    if (refused_ > 0) {
      spdlog::error("{} cannot be put back; the first: {}",
                    ckpt::base::counted(refused_, "lost record"), first_refused_);
    }
    write();
    CKPT_TRY(status_);
    return index_.health();
  }

 private:
  void write() {
    if (status_.ok() && !records_.empty()) status_ = journal_.append(std::move(records_));
    records_.clear();
  }
  NewJournal& journal_;
  Catalog& index_;
  std::vector<fb::RecordT> records_;
  Status status_;
  uint64_t refused_ = 0;
  std::string first_refused_;
};

// Counts the results by run. One log line per commit would be thousands.
class SalvageCounts {
 public:
  void lost(const std::string& run, const std::string& commit) {
    ++runs_[run].lost;
    note(runs_[run], commit, "its record is gone from the journal");
  }
  void checked(const std::string& run, const std::string& commit, const RecoveryCheck& check) {
    Run& its = runs_[run];
    ++its.put_back;
    if (check.damaged) ++its.damaged;
    if (check.unread) ++its.unread;
    if (!check.reason.empty()) note(its, commit, check.reason);
  }
  // A commit in the journal whose bytes have moved.
  void moved(const std::string& run, const std::string& commit, const RecoveryCheck& check) {
    if (check.reason.empty()) return;
    ++(check.damaged ? runs_[run].damaged : runs_[run].unread);
    note(runs_[run], commit, check.reason);
  }
  void log() const {
    for (const auto& [name, run] : runs_) {
      spdlog::log(run.damaged + run.lost > 0 ? spdlog::level::err : spdlog::level::warn,
                  "{}: the records of {} were put back from the catalog: {} lost, {} with damaged "
                  "bytes, {} not checked{}",
                  name, ckpt::base::counted(run.put_back, "commit"), run.lost, run.damaged,
                  run.unread, run.first.empty() ? "" : "; the first: " + run.first);
    }
  }

 private:
  struct Run {
    uint64_t put_back = 0;
    uint64_t lost = 0;
    uint64_t damaged = 0;
    uint64_t unread = 0;
    std::string first;
  };
  static void note(Run& run, const std::string& commit, const std::string& reason) {
    if (run.first.empty()) run.first = fmt::format("{}: {}", commit, reason);
  }
  std::map<std::string, Run> runs_;
};

}  // namespace

Result<bool> JournalSalvage::finish() {
  CKPT_ASSIGN(const std::string kept,
              take_new_journal(disk_, [this] { return history_.keeper().open_and_clear(); }));
  if (!kept.empty()) log_salvaged(kept);
  return !kept.empty();
}

// Brings the catalog up to the records after the damage. An error says what to do; then nothing was
// changed.
Status JournalSalvage::catch_up_behind(RecoveredStore& store) {
  const JournalDamage& damage = *store.damage;
  JournalDamage::Lost lost{history_.last_sequence() + 1, damage.last_sequence};
  if (!damage.lost.empty()) lost = {damage.lost.front().first, damage.lost.back().last};
  if (history_.keeper().in_memory()) {
    return make_error(
        ErrorCode::kResourceExhausted,
        "{}: {}: records {} to {} are partly lost, and there is no room on the disk to "
        "open the catalog, which may have them: free some space and start again",
        kJournalPath, damage.reason, lost.first, lost.last);
  }
  if (!history_.catalog().health().ok()) {
    return cannot_salvage(
        store, lost, "the catalog cannot be read: " + history_.catalog().health().error().message);
  }
  const uint64_t known = history_.catalog().applied_sequence();
  if (known == 0) return cannot_salvage(store, lost, "there is no catalog");
  if (store.starts == 0) {
    store.id = hash_of_hex(history_.catalog().store_id());
    history_.use(store);
  }
  if (history_.catalog().store_id() != ckpt::base::to_hex(history_.store_id())) {
    return cannot_salvage(store, lost, "the catalog is of store " + history_.catalog().store_id());
  }
  if (!damage.lost.empty() && known < lost.last) {
    return cannot_salvage(store, lost, fmt::format("the catalog ends with record {}", known));
  }
  CKPT_TRY(replay(disk_, store.journal, damage.last_sequence, history_.catalog_for_recovery()));
  return {};
}

Result<bool> JournalSalvage::salvage(RecoveredStore& store) {
  if (store.damage) CKPT_TRY(catch_up_behind(store));
  const uint64_t known = history_.catalog().applied_sequence();
  if (!store.damage && known <= history_.last_sequence()) return false;
  const std::string what = fmt::format(
      "{}: records {} to {} were durable and not all of them can "
      "be read any more: the disk damaged or lost what lies at "
      "offset {} and after",
      kJournalPath, history_.last_sequence() + 1, known, store.end.offset);
  spdlog::error("{}{}", what, store.damage ? ": " + store.damage->reason : "");
  auto taken = take_salvage(history_.catalog(), history_.last_sequence());
  if (!taken.ok()) {
    const std::string remedy = !is_catalog_damage(taken.error().code) ? "start ckptd again"
                               : store.damage ? "put one of the two back from a copy"
                                              : "move the directory catalog away to start without "
                                                "them";
    return make_error(taken.error().code, "{}; the catalog, which has them, cannot be read: {}; {}",
                      what, taken.error().message, remedy);
  }
  taken->epochs = store.epochs;
  CKPT_TRY(write_new_journal(store, *taken));
  disk_.close(std::exchange(store.journal, 0));
  CKPT_ASSIGN(const std::string kept,
              take_new_journal(disk_, [this] { return history_.keeper().clear_on_disk(); }));
  log_salvaged(kept);
  const bool clean = store.clean;
  CKPT_ASSIGN(store, recover_store(disk_, random_seed_));
  store.clean = clean;
  history_.use(store);
  return true;
}

Status JournalSalvage::write_new_journal(const RecoveredStore& damaged, const Salvage& salvage) {
  Catalog index(make_memory_store());
  if (damaged.end.offset > 0) {
    CKPT_TRY(replay(disk_, damaged.journal, damaged.end.next_sequence - 1, index));
  }
  CKPT_ASSIGN(NewJournal made, NewJournal::begin(disk_, damaged));
  Putter putter(made, index);
  // Replaces lost StoreOpened records: without one there is no store.
  fb::StoreOpenedT opened;
  opened.store = ckpt::wire::to_fb(history_.store_id());
  opened.time_ns = turn_.wall_clock_ns();
  opened.format_version = ckpt::kStoreFormatVersion;  // a lost record may have raised it
  putter.add(make_record(std::move(opened)));

  SalvageCounts counts;
  putter.add_all(missing_before_commits(salvage, index, turn_.wall_clock_ns()));
  for (const Salvage::Commit& commit : salvage.commits) {
    const SnapshotKey& key = commit.info.snapshot;
    if (!putter.add(make_record(commit.record))) {
      spdlog::debug("{} {}: its record is gone from the journal", run_of(index, key),
                    commit_of(key));
      counts.lost(run_of(index, key), commit_of(key));
      continue;
    }
    const auto part = commit.info.deleted ? ExtentPart::kRest : ExtentPart::kWhole;
    CKPT_ASSIGN(const RecoveryCheck check, checker_.check(index, key, part, /*log_at_debug=*/true));
    if (check.damaged) putter.add(*check.damaged);
    spdlog::debug("{} {}: its record was put back from the catalog", run_of(index, key),
                  commit_of(key));
    counts.checked(run_of(index, key), commit_of(key), check);
  }
  putter.add_all(missing_after_commits(salvage, index, turn_.wall_clock_ns()));
  for (const Salvage::Commit& moved : salvage.moved) {
    if (moved.info.damaged) continue;
    const auto record = missing_move(moved, index, turn_.wall_clock_ns());
    if (record) putter.add(*record);  // if that fails, the old places are checked
    const auto part = moved.info.deleted ? ExtentPart::kRest : ExtentPart::kWhole;
    const SnapshotKey& key = moved.info.snapshot;
    CKPT_ASSIGN(const RecoveryCheck check, checker_.check(index, key, part, /*log_at_debug=*/true));
    if (check.damaged) putter.add(*check.damaged);
    counts.moved(run_of(index, key), commit_of(key), check);
  }
  counts.log();
  // StoreClosed marks salvaged.log as complete.
  fb::StoreClosedT closed;
  closed.time_ns = turn_.wall_clock_ns();
  putter.add(make_record(std::move(closed)));
  CKPT_TRY(putter.finish());
  return made.finish(index.applied_sequence());
}

}  // namespace ckptd

#include "ckptd/history/recovered_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "ckptd/io/store_paths.h"
#include "formats/base/checked.h"
#include "formats/wire/convert.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using ckpt::make_error;
namespace fb = ckpt::fb;

namespace {

// Bytes per read of the journal.
constexpr uint64_t kReadPieceBytes = 4u << 20;

uint64_t random_number(uint64_t seed, uint64_t which) {
  if (seed != 0) return std::mt19937_64(seed * 4 + which)();
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// The entries of a directory; none if it does not exist.
Result<std::vector<std::string>> entries_of(Disk& disk, std::string_view directory) {
  auto names = disk.list(directory);
  if (!names.ok() && names.error().code == ErrorCode::kNotFound) return std::vector<std::string>();
  return names;
}

// Number of the highest segment file; 0: none.
Result<ckpt::SegmentId> highest_segment(Disk& disk) {
  CKPT_ASSIGN(const auto names, entries_of(disk, kSegmentsDirectory));
  ckpt::SegmentId highest = 0;
  for (const std::string& name : names) {
    highest = std::max(highest, segment_of_name(name).value_or(0));
  }
  return highest;
}

uint64_t extent_end(const fb::ExtentT& extent) {
  return extent.offset + extent.header_bytes +
         ckpt::base::align_up(extent.payload_bytes, kBlockBytes);
}

// Facts about the whole store, collected from the journal's records.
class Summary {
 public:
  explicit Summary(RecoveredStore& store) : store_(store) {}

  Status take(uint64_t sequence, const fb::RecordT& record) {
    store_.clean = record.body.type == fb::RecordBody::StoreClosed;
    if (const auto* opened = record.body.AsStoreOpened()) return take_opened(sequence, *opened);
    if (store_.starts == 0 && !store_.damage) {
      return make_error(ErrorCode::kCorrupt, "journal record {}: a store begins with StoreOpened",
                        sequence);
    }
    // A journal continued by an older daemon may have records before their version.
    store_.version = std::max(store_.version, ckpt::store_version_of(record));
    if (const auto* epoch = record.body.AsEpochOpened()) {
      take_epoch(*epoch);
    } else if (const auto* closed = record.body.AsStoreClosed()) {
      if (closed->epochs_told) take_closed(*closed);
    } else if (const auto* commit = record.body.AsCommitted()) {
      if (!commit->extents.empty()) live_.emplace(commit->run, commit->lineage, commit->step);
      store_.commits.push_back(
          {sequence,
           commit->time_ns,
           {commit->run, commit->lineage, commit->epoch, commit->step, commit->attempt}});
      store_.marked.erase({commit->run, {commit->lineage, commit->step}});
      list(commit->extents);
    } else if (const auto* damaged = record.body.AsCommitDamaged()) {
      store_.marked.insert({damaged->run, {damaged->lineage, damaged->step}});
    } else if (const auto* moved = record.body.AsMoved()) {
      list(moved->extents);
    } else if (const auto* deleted = record.body.AsDeleted()) {
      if (deleted->kept.empty()) live_.erase({deleted->run, deleted->lineage, deleted->step});
      store_.marked.erase({deleted->run, {deleted->lineage, deleted->step}});
    } else if (const auto* removed = record.body.AsRunRemoved()) {
      std::erase_if(live_, [&](const Place& one) { return std::get<0>(one) == removed->run; });
      std::erase_if(store_.marked, [&](const auto& one) { return one.run == removed->run; });
      store_.removed[removed->run] = sequence;
    }
    return {};
  }
  bool has_live_extents() const { return !live_.empty(); }

 private:
  using Place = std::tuple<ckpt::RunId, ckpt::LineageId, ckpt::Step>;

  void take_epoch(const fb::EpochOpenedT& epoch) {
    if (!epoch.over) {
      store_.epochs[epoch.run] = epoch;
      store_.epochs_over.erase(epoch.run);
      return;
    }
    const auto last = store_.epochs.find(epoch.run);
    const bool of_last = last != store_.epochs.end() && last->second.epoch == epoch.epoch;
    if (of_last) store_.epochs_over.insert(epoch.run);
  }
  void take_closed(const fb::StoreClosedT& closed) {
    for (const auto& [run, epoch] : store_.epochs) {
      const bool in_use = std::ranges::any_of(closed.epochs, [&](const fb::EpochOf& listed) {
        return listed.run() == run && listed.epoch() == epoch.epoch;
      });
      if (!in_use) store_.epochs_over.insert(run);
    }
  }
  void list(const std::vector<std::unique_ptr<fb::ExtentT>>& extents) {
    for (const auto& extent : extents) {
      store_.next_segment = std::max(store_.next_segment, extent->segment + 1);
      store_.listed[extent->segment].push_back(
          {extent->segment, extent->offset, extent_end(*extent) - extent->offset});
    }
  }
  Status take_opened(uint64_t sequence, const fb::StoreOpenedT& opened) {
    if (opened.format_version > ckpt::kStoreFormatVersion) {
      return make_error(ErrorCode::kVersionMismatch,
                        "it has format version {}, this ckptd knows {}: it was "
                        "written by a newer ckptd, use that one",
                        opened.format_version, ckpt::kStoreFormatVersion);
    }
    const auto id = ckpt::wire::from_fb(opened.store);
    if (store_.starts > 0 && id != store_.id) {
      return make_error(ErrorCode::kCorrupt, "journal record {}: it is of another store", sequence);
    }
    store_.id = id;
    store_.version = std::max(store_.version, opened.format_version);
    ++store_.starts;
    store_.opened.push_back({sequence, opened.time_ns});
    return {};
  }
  RecoveredStore& store_;
  std::set<Place> live_;  // commits with live extents
};

// A piece of the journal in memory, advanced by the scan.
class JournalPieces {
 public:
  JournalPieces(Disk& disk, FileId file) : disk_(disk), file_(file) {}

  Result<ckpt::ByteView> read(uint64_t offset, uint64_t bytes) {
    const bool here =
        offset >= begin_ && offset - begin_ <= bytes_ && bytes <= bytes_ - (offset - begin_);
    if (!here) CKPT_TRY(load(offset, bytes));
    return ckpt::ByteView(memory_.bytes()).subspan(offset - begin_, bytes);
  }

 private:
  Status load(uint64_t offset, uint64_t bytes) {
    const uint64_t wanted = ckpt::base::align_up(std::max(bytes, kReadPieceBytes), kBlockBytes);
    if (memory_.size() < wanted) memory_ = AlignedBuffer(wanted);
    begin_ = offset;
    bytes_ = 0;
    CKPT_ASSIGN(bytes_, disk_.read_now(file_, offset, memory_.bytes().first(wanted)));
    if (bytes_ >= bytes) return {};
    return make_error(ErrorCode::kIo, "{}: ends at {} although it is longer", kJournalPath,
                      offset + bytes_);
  }

  Disk& disk_;
  const FileId file_;
  AlignedBuffer memory_;
  uint64_t begin_ = 0;  // in the file
  uint64_t bytes_ = 0;
};

Result<FileId> open_or_create_journal(Disk& disk) {
  CKPT_TRY(disk.make_directory(kSegmentsDirectory));
  CKPT_TRY(disk.make_directory(kJournalDirectory));
  CKPT_TRY(disk.sync_directory(""));
  CKPT_ASSIGN(const FileId file, disk.open(kJournalPath, {.create = true}));
  CKPT_TRY(disk.sync_directory(kJournalDirectory));
  return file;
}

// A store without any record: new, or its creator died before the first record was durable.
Status begin_store(Disk& disk, uint64_t random_seed, RecoveredStore& store) {
  CKPT_ASSIGN(const ckpt::SegmentId highest, highest_segment(disk));
  if (highest > 0) {
    return make_error(ErrorCode::kCorrupt,
                      "it has segments but no journal: the journal says what is in them; put {} "
                      "back, from a copy of the same store",
                      kJournalPath);
  }
  CKPT_ASSIGN(const auto names, entries_of(disk, kJournalDirectory));
  const auto other = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name != "journal.log" && name != "unfinished.log" && name.ends_with(".log");
  });
  if (other != names.end()) {
    return make_error(ErrorCode::kCorrupt,
                      "{} has no records, but {}/{} is there: one of the two is the journal of "
                      "this store; put it back as {}, or move the directory {} away to begin a new "
                      "store",
                      kJournalPath, kJournalDirectory, *other, kJournalPath, kJournalDirectory);
  }
  store.id = {.low = random_number(random_seed, 0), .high = random_number(random_seed, 1)};
  store.end.salt = random_number(random_seed, 2);
  store.clean = true;
  return {};
}

void take_gap(const ckpt::JournalGap& gap, RecoveredStore& store) {
  if (!store.damage) {
    store.damage.emplace().reason = gap.reason;
    store.end = gap.before;
  }
  if (gap.next_sequence == gap.before.next_sequence) return;
  store.damage->lost.push_back({gap.before.next_sequence, gap.next_sequence - 1});
}

}  // namespace

Result<ckpt::JournalScan> scan_journal_file(Disk& disk, FileId file,
                                            const ckpt::OnRecord& on_record,
                                            const ckpt::OnGap& on_gap) {
  CKPT_ASSIGN(const uint64_t size, disk.size(file));
  JournalPieces pieces(disk, file);
  const auto read = [&](uint64_t offset, uint64_t bytes) { return pieces.read(offset, bytes); };
  if (!on_gap) return ckpt::scan_journal(size, read, on_record);
  return ckpt::scan_damaged_journal(size, read, on_record, on_gap);
}

Result<RecoveredStore> recover_store(Disk& disk, uint64_t random_seed) {
  RecoveredStore store;
  CKPT_ASSIGN(const auto names, entries_of(disk, kJournalDirectory));
  const bool exists = std::find(names.begin(), names.end(), "journal.log") != names.end();
  if (!exists) CKPT_TRY(begin_store(disk, random_seed, store));
  CKPT_ASSIGN(store.journal, exists ? disk.open(kJournalPath, {}) : open_or_create_journal(disk));
  Summary summary(store);
  auto scan = scan_journal_file(
      disk, store.journal,
      [&](uint64_t sequence, const fb::RecordT& record) { return summary.take(sequence, record); },
      [&](const ckpt::JournalGap& gap) { take_gap(gap, store); });
  if (!scan.ok()) {
    return make_error(scan.error().code, "{}: {}", kJournalPath, scan.error().message);
  }
  store.has_live_extents = summary.has_live_extents();
  if (store.damage) {
    store.damage->last_sequence = scan->end.next_sequence - 1;
    if (store.end.offset == 0) store.end.salt = random_number(random_seed, 2);
  } else {
    const uint64_t salt = store.end.salt;
    store.end = scan->end;
    if (store.starts == 0) {
      store.end.salt = salt;
      if (exists) CKPT_TRY(begin_store(disk, random_seed, store));
    }
  }
  CKPT_ASSIGN(const ckpt::SegmentId highest, highest_segment(disk));
  store.next_segment = std::max(store.next_segment, highest + 1);
  store.torn_bytes = scan->torn_bytes;
  return store;
}

Result<RecoveredStore> read_journal(Disk& disk, FileId journal) {
  RecoveredStore store;
  store.journal = journal;
  Summary summary(store);
  const auto scan = scan_journal_file(
      disk, journal,
      [&](uint64_t sequence, const fb::RecordT& record) { return summary.take(sequence, record); });
  if (!scan.ok()) {
    return make_error(scan.error().code, "{}: {}", kJournalPath, scan.error().message);
  }
  store.end = scan->end;
  store.torn_bytes = scan->torn_bytes;
  return store;
}

Status cut_torn_tail(Disk& disk, const RecoveredStore& store) {
  if (store.torn_bytes > 0) CKPT_TRY(disk.truncate(store.journal, store.end.offset));
  return sync_blocking(disk, store.journal);
}

Status check_journal(Disk& disk, FileId journal, uint64_t last_sequence) {
  const auto scan =
      scan_journal_file(disk, journal, [](uint64_t, const fb::RecordT&) { return Status(); });
  if (!scan.ok()) {
    return make_error(scan.error().code, "{}: {}", kJournalPath, scan.error().message);
  }
  if (scan->end.next_sequence > last_sequence) return {};
  return make_error(ErrorCode::kCorrupt,
                    "{}: journal at offset {}: records {} to {} cannot be read back", kJournalPath,
                    scan->end.offset, scan->end.next_sequence, last_sequence);
}

Status replay(Disk& disk, FileId journal, uint64_t last_sequence, Catalog& catalog) {
  if (catalog.applied_sequence() >= last_sequence) return {};
  const auto apply = [&](uint64_t sequence, const fb::RecordT& record) -> Status {
    if (sequence > last_sequence || sequence <= catalog.applied_sequence()) return {};
    return catalog.apply(sequence, record);
  };
  Status lost;  // records that neither journal nor catalog have
  const auto on_gap = [&](const ckpt::JournalGap& gap) {
    if (gap.before.next_sequence > last_sequence) return;  // not needed
    if (gap.next_sequence > catalog.applied_sequence() + 1 && lost.ok()) {
      lost = make_error(ErrorCode::kCorrupt, "{}: {}", kJournalPath, gap.reason);
    }
  };
  const auto apply_whole = [&](uint64_t sequence, const fb::RecordT& record) -> Status {
    CKPT_TRY(lost);
    return apply(sequence, record);
  };
  CKPT_TRY(scan_journal_file(disk, journal, apply_whole, on_gap));
  return lost;
}

Result<uint64_t> append_blocking(Disk& disk, JournalWriter& journal,
                                 std::vector<fb::RecordT> records) {
  std::optional<Result<uint64_t>> outcome;
  journal.append(std::move(records), [&](Result<uint64_t> result) { outcome = std::move(result); });
  while (!outcome.has_value()) {
    disk.wait();
    disk.reap();
  }
  return *std::move(outcome);
}

}  // namespace ckptd

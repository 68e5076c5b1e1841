#include "ckptd/recovery/new_journal.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "ckptd/io/store_paths.h"
#include "ckptd/recovery/identity.h"
#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;

namespace {

constexpr char kUnfinishedName[] = "unfinished.log";
constexpr char kSalvagedName[] = "salvaged.log";
constexpr uint64_t kCopyBytes = 4u << 20;

std::string in_journal(std::string_view name) {
  return fmt::format("{}/{}", kJournalDirectory, name);
}

bool has_name(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Copies whole blocks; batches of a journal consist of whole blocks.
Status copy_blocks(Disk& disk, FileId from, FileId to, uint64_t bytes) {
  AlignedBuffer piece(std::min(bytes, kCopyBytes));
  for (uint64_t at = 0; at < bytes; at += piece.size()) {
    const MutableByteView memory = piece.bytes().first(std::min(bytes - at, piece.size()));
    CKPT_ASSIGN(const uint64_t got, disk.read_now(from, at, memory));
    if (got < memory.size()) {
      return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: ends at {}", kJournalPath, at + got);
    }
    CKPT_TRY(write_blocking(disk, to, at, memory));
  }
  return {};
}

}  // namespace

NewJournal::NewJournal(Disk& disk, FileId file, const ckpt::JournalEncoder::Position& end)
    : disk_(&disk), file_(file), writer_(std::make_unique<JournalWriter>(disk, file, end)) {}

NewJournal::NewJournal(NewJournal&& other) noexcept
    : disk_(other.disk_), file_(other.file_), writer_(std::move(other.writer_)) {}

NewJournal::~NewJournal() {
  if (writer_ == nullptr) return;
  end_writes();
  disk_->close(file_);
}

void NewJournal::end_writes() {
  while (writer_->in_flight() > 0) {
    disk_->wait();
    disk_->reap();
  }
  writer_.reset();
}

Result<NewJournal> NewJournal::begin(Disk& disk, const RecoveredStore& damaged) {
  const std::string path = in_journal(kUnfinishedName);
  CKPT_ASSIGN(const auto names, disk.list(kJournalDirectory));
  if (has_name(names, kUnfinishedName)) CKPT_TRY(disk.remove(path));
  CKPT_ASSIGN(Disk::NewFile created, disk.create_file(path, 0));
  NewJournal made(disk, disk.adopt(std::move(created)), damaged.end);
  CKPT_TRY(copy_blocks(disk, damaged.journal, made.file_, damaged.end.offset));
  return made;
}

Status NewJournal::append(std::vector<fb::RecordT> records) {
  CKPT_TRY(append_blocking(*disk_, *writer_, std::move(records)));
  return {};
}

Status NewJournal::finish(uint64_t last_sequence) {
  CKPT_TRY(sync_blocking(*disk_, file_));
  CKPT_TRY(check_journal(*disk_, file_, last_sequence));
  end_writes();
  disk_->close(file_);
  CKPT_TRY(disk_->rename(in_journal(kUnfinishedName), in_journal(kSalvagedName)));
  return disk_->sync_directory(kJournalDirectory);
}

namespace {

// Checks salvaged.log and returns its store: it must begin with StoreOpened, end with StoreClosed,
// and be neither torn nor damaged. Otherwise kCorrupt with the reason.
Result<ckpt::base::Hash128> check_salvaged(Disk& disk) {
  const std::string path = in_journal(kSalvagedName);
  CKPT_ASSIGN(const FileId file, disk.open(path, {}));
  ckpt::base::Hash128 store;
  fb::RecordBody last = fb::RecordBody::NONE;
  const auto scan =
      scan_journal_file(disk, file, [&](uint64_t, const fb::RecordT& record) -> Status {
        const auto* opened = record.body.AsStoreOpened();
        const bool first = last == fb::RecordBody::NONE;
        last = record.body.type;
        if (opened == nullptr && !first) return {};
        const auto id = opened != nullptr ? ckpt::wire::from_fb(opened->store) : store;
        if (opened == nullptr || (!first && id != store)) {
          return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "it is not of one store");
        }
        store = id;
        return {};
      });
  disk.close(file);
  if (!scan.ok() && !is_data_loss(scan.error())) return scan.error();
  const bool whole = scan.ok() && scan->torn_bytes == 0 && last == fb::RecordBody::StoreClosed;
  if (whole) return store;
  return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "{}: {}", path,
                          scan.ok() ? "it does not reach its end" : scan.error().message);
}

// The store of journal.log; nullopt: the file is missing or too damaged to tell. An error means
// that the system refused the read: then nothing may be decided by it.
Result<std::optional<ckpt::base::Hash128>> store_of_journal(Disk& disk) {
  std::optional<ckpt::base::Hash128> store;
  const auto file = disk.open(kJournalPath, {});
  if (!file.ok() && is_data_loss(file.error())) return store;
  CKPT_TRY(file);
  // The first record that names the store ends the scan.
  const auto scan = scan_journal_file(
      disk, *file,
      [&](uint64_t, const fb::RecordT& record) -> Status {
        if (const auto* opened = record.body.AsStoreOpened()) {
          store = ckpt::wire::from_fb(opened->store);
          return ckpt::make_error(ckpt::ErrorCode::kAborted, "found");
        }
        return {};
      },
      [](const ckpt::JournalGap&) {});
  disk.close(*file);
  if (!store && !scan.ok() && !is_data_loss(scan.error())) return scan.error();
  return store;
}

// Moves an unsuitable salvaged.log aside: the salvage is repeated with the current files. Without a
// journal.log only the user can decide which file is right.
Result<std::string> refuse_salvaged(Disk& disk, const std::vector<std::string>& names,
                                    const std::string& why) {
  if (!has_name(names, "journal.log")) {
    return ckpt::make_error(
        ckpt::ErrorCode::kCorrupt,
        "{}, and there is no {}: nothing was changed. Put one of the two back from a copy, or "
        "rename the newest {}/damaged-N.log to {}, if its catalog is still there",
        why, kJournalPath, kJournalDirectory, kJournalPath);
  }
  uint64_t number = 1;
  while (has_name(names, fmt::format("refused-{}.log", number))) ++number;
  const std::string kept = in_journal(fmt::format("refused-{}.log", number));
  CKPT_TRY(disk.rename(in_journal(kSalvagedName), kept));
  CKPT_TRY(disk.sync_directory(kJournalDirectory));
  spdlog::error("{}: it does not take the place of {}, and is kept as {}", why, kJournalPath, kept);
  return std::string();
}

}  // namespace

Result<std::string> take_new_journal(Disk& disk, const std::function<Status()>& clear_catalog) {
  const auto names = disk.list(kJournalDirectory);
  if (!names.ok() && names.error().code == ckpt::ErrorCode::kNotFound) return std::string();
  CKPT_TRY(names);
  if (!has_name(*names, kSalvagedName)) return std::string();
  const auto of_store = check_salvaged(disk);
  if (!of_store.ok() && of_store.error().code != ckpt::ErrorCode::kCorrupt) {
    return of_store.error();
  }
  if (!of_store.ok()) return refuse_salvaged(disk, *names, of_store.error().message);
  CKPT_ASSIGN(const auto of_journal, store_of_journal(disk));
  if (of_journal && *of_journal != *of_store) {
    return refuse_salvaged(
        disk, *names,
        fmt::format("{} is of another store than {}", in_journal(kSalvagedName), kJournalPath));
  }
  RecoveredStore salvaged;
  salvaged.id = *of_store;
  salvaged.starts = 1;
  CKPT_ASSIGN(const SegmentFindings found, read_segment_headers(disk, salvaged));
  const Status ours = check_segments_are_ours(found, salvaged);
  if (!found.misnamed.empty()) return ours.error();  // the fault is not that of the new journal
  if (!ours.ok()) {
    return refuse_salvaged(disk, *names,
                           fmt::format("{}: {}", in_journal(kSalvagedName), ours.error().message));
  }
  CKPT_TRY(clear_catalog());
  CKPT_TRY(mean_older_journal(disk));
  uint64_t number = 1;
  while (has_name(*names, fmt::format("damaged-{}.log", number))) ++number;
  std::string kept = in_journal(fmt::format("damaged-{}.log", number));
  if (has_name(*names, "journal.log")) {
    CKPT_TRY(disk.rename(kJournalPath, kept));
  } else {
    kept = in_journal(fmt::format("damaged-{}.log", number - 1));  // the last startup got this far
  }
  CKPT_TRY(disk.rename(in_journal(kSalvagedName), kJournalPath));
  CKPT_TRY(disk.sync_directory(kJournalDirectory));
  return kept;
}

}  // namespace ckptd

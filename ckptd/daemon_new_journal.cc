#include "ckptd/daemon_new_journal.h"

#include <algorithm>
#include <utility>

#include "ckptd/io/store_paths.h"

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

// Whole blocks, as the batches of a journal are.
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

Result<std::string> take_new_journal(Disk& disk, const std::function<Status()>& clear_catalog) {
  const auto names = disk.list(kJournalDirectory);
  if (!names.ok() || !has_name(*names, kSalvagedName)) return std::string();
  CKPT_TRY(clear_catalog());
  uint64_t number = 1;
  while (has_name(*names, fmt::format("damaged-{}.log", number))) ++number;
  std::string kept = in_journal(fmt::format("damaged-{}.log", number));
  if (has_name(*names, "journal.log")) {
    CKPT_TRY(disk.rename(kJournalPath, kept));
  } else {
    kept = in_journal(fmt::format("damaged-{}.log", number - 1));  // the last start came so far
  }
  CKPT_TRY(disk.rename(in_journal(kSalvagedName), kJournalPath));
  CKPT_TRY(disk.sync_directory(kJournalDirectory));
  return kept;
}

}  // namespace ckptd

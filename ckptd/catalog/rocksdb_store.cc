#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <filesystem>

#include "ckptd/catalog/keys.h"
#include "ckptd/catalog/kv_store.h"
#include "ckptd/catalog/rocksdb_errors.h"
#include "formats/base/errno_code.h"
#include "formats/base/open_files.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;

// The catalog shares its machine with trainers: small buffers, two background threads.
constexpr size_t kBlockCacheBytes = 64u << 20;
constexpr size_t kWriteBuffersBytes = 64u << 20;  // of all families together
constexpr uint64_t kOpenFilesMax = 256;
constexpr uint64_t kOpenFilesMin = 20;  // RocksDB accepts no smaller value
constexpr size_t kKeyBytesMax = 1024;   // tags have the longest keys

// Forwards RocksDB's log to the daemon's log. RocksDB's own logger writes into the directory of the
// database, and aborts the process at the second line that does not fit on a full disk.
class LogToOurs final : public rocksdb::Logger {
 public:
  LogToOurs() : Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    std::array<char, 1024> line{};
    std::vsnprintf(line.data(), line.size(), format, arguments);
    spdlog::warn("catalog: RocksDB: {}", line.data());
  }
};

// A quarter of the process's descriptor limit: segments and sockets need the rest.
int open_files_max() {
  const auto files = ckpt::base::open_files_limit();
  if (!files) return static_cast<int>(kOpenFilesMax);
  return static_cast<int>(std::clamp<uint64_t>(files->rlim_cur / 4, kOpenFilesMin, kOpenFilesMax));
}

rocksdb::DBOptions db_options() {
  rocksdb::DBOptions options;
  options.info_log = std::make_shared<LogToOurs>();
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.db_write_buffer_size = kWriteBuffersBytes;
  options.max_open_files = open_files_max();
  options.max_background_jobs = 2;
  options.skip_stats_update_on_db_open = true;
  // Families are flushed together, so that a lost WAL always leaves a prefix of the batches.
  options.atomic_flush = true;
  // Keep the prefix before the first damaged record of the WAL: journal replay restores the rest.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  return options;
}

std::vector<rocksdb::ColumnFamilyDescriptor> families() {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(kBlockCacheBytes);
  rocksdb::ColumnFamilyOptions options;
  options.write_buffer_size = 16u << 20;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));

  // RocksDB insists on a family called "default"; it stays empty.
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors = {
      {rocksdb::kDefaultColumnFamilyName, options}};
  for (int family = 0; family < kFamilyCount; ++family) {
    descriptors.emplace_back(std::string(family_name(static_cast<Family>(family))), options);
    if (static_cast<Family>(family) == Family::kVersions) {
      // A commit adds a version to each of many units, after the unit's last version.
      descriptors.back().options.memtable_insert_with_hint_prefix_extractor.reset(
          rocksdb::NewFixedPrefixTransform(keys::kUnitOfVersionBytes));
    }
  }
  return descriptors;
}

ckpt::Error to_error(const rocksdb::Status& status, const std::string& directory) {
  return make_error(rocksdb_error_code(status), "catalog {}: {}", directory, status.ToString());
}

ckpt::Error lock_error(RocksDbLock lock, const rocksdb::Status& status,
                       const std::string& directory) {
  if (lock == RocksDbLock::kHeld) {
    return make_error(ErrorCode::kUnavailable, "catalog {}: in use by another process: {}",
                      directory, status.ToString());
  }
  return make_error(
      ErrorCode::kUnavailable,
      "catalog {}: its file system has no locks of fcntl(), which RocksDB needs ({}); "
      "enable them (NFS: run a lock daemon, Lustre: mount with -o flock) or use a local folder",
      directory, status.ToString());
}

rocksdb::Slice slice(std::string_view text) { return {text.data(), text.size()}; }
std::string_view view(const rocksdb::Slice& text) { return {text.data(), text.size()}; }

// An open database and its families' handles, closed in the right order.
struct Database {
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;  // [0] is "default"

  Database() = default;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database() {
    for (auto* handle : handles) db->DestroyColumnFamilyHandle(handle);
  }
  rocksdb::ColumnFamilyHandle* handle(Family family) const {
    return handles[static_cast<size_t>(family) + 1];
  }
};

rocksdb::Status open_database(const std::string& directory, std::unique_ptr<Database>& out) {
  // RocksDB would create the directory, too, but log an error. It reports if this fails.
  std::error_code ignored;
  std::filesystem::create_directory(directory, ignored);
  auto database = std::make_unique<Database>();
  rocksdb::DB* db = nullptr;
  rocksdb::Status status =
      rocksdb::DB::Open(db_options(), directory, families(), &database->handles, &db);
  database->db.reset(db);
  if (status.ok()) out = std::move(database);
  return status;
}

// The smallest key greater than every key with the prefix; empty: there is none.
std::string end_of_prefix(std::string_view prefix) {
  std::string after(prefix);
  while (!after.empty() && after.back() == '\xff') after.pop_back();
  if (!after.empty()) after.back() = static_cast<char>(after.back() + 1);
  return after;
}

// One tombstone for all keys with the prefix.
rocksdb::Status delete_prefix(rocksdb::ColumnFamilyHandle* handle, const std::string& prefix,
                              rocksdb::WriteBatch& writes) {
  std::string end = end_of_prefix(prefix);
  if (end.empty()) end = prefix + std::string(kKeyBytesMax, '\xff');
  return writes.DeleteRange(handle, prefix, end);
}

// Opens an existing catalog for reading only. Needs no free space.
rocksdb::Status open_to_read(const std::string& directory, std::unique_ptr<Database>& out) {
  auto database = std::make_unique<Database>();
  rocksdb::DB* db = nullptr;
  rocksdb::DBOptions options = db_options();
  options.create_if_missing = false;
  options.create_missing_column_families = false;
  rocksdb::Status status =
      rocksdb::DB::OpenForReadOnly(options, directory, families(), &database->handles, &db);
  database->db.reset(db);
  if (status.ok()) out = std::move(database);
  return status;
}

// Replaces the catalog by a new, empty one; the old one goes to `aside`, which is emptied before.
// The new one is made first: if that fails, the old one stays. A crash leaves the old one, or none.
Status replace_database(const std::string& directory, const std::string& aside) {
  const std::string fresh = directory + ".new";
  std::error_code error;
  std::filesystem::remove_all(fresh, error);
  std::unique_ptr<Database> made;
  const rocksdb::Status status = open_database(fresh, made);
  made.reset();
  if (!status.ok()) {
    std::filesystem::remove_all(fresh, error);
    return to_error(status, fresh);
  }
  std::filesystem::remove_all(aside, error);
  if (!error && std::filesystem::exists(directory, error)) {
    std::filesystem::rename(directory, aside, error);
  }
  if (!error) std::filesystem::rename(fresh, directory, error);
  if (!error) return {};
  const std::string why = error.message();
  const ErrorCode code = ckpt::code_of_errno(error.value());
  std::filesystem::remove_all(fresh, error);
  return make_error(code, "catalog {}: cannot be moved to {}: {}", directory, aside, why);
}

class RocksDbStore final : public KvStore {
 public:
  RocksDbStore(std::string directory, std::unique_ptr<Database> database, bool read_only)
      : directory_(std::move(directory)), database_(std::move(database)), read_only_(read_only) {}
  // Files that RocksDB cannot open: clear() moves them to `kept_as`.
  RocksDbStore(std::string directory, ckpt::Error cannot_open, std::string kept_as)
      : directory_(std::move(directory)),
        closed_(std::move(cannot_open)),
        kept_as_(std::move(kept_as)) {}

  Status write(const std::vector<KvWrite>& batch) override {
    CKPT_TRY(usable());
    if (read_only_) {
      return make_error(ErrorCode::kResourceExhausted,
                        "catalog {}: open for reading only, because the disk is full", directory_);
    }
    rocksdb::WriteBatch writes;
    for (const KvWrite& write : batch) {
      auto* handle = database_->handle(write.family);
      const auto status = write.value    ? writes.Put(handle, write.key, *write.value)
                          : write.prefix ? delete_prefix(handle, write.key, writes)
                                         : writes.Delete(handle, write.key);
      if (!status.ok()) return to_error(status, directory_);
    }
    Status written = check(database_->db->Write(rocksdb::WriteOptions(), &writes));
    // RocksDB aborts if it writes after a failed write, as in its own recovery from a full disk.
    if (!written.ok()) close(written.error());
    return written;
  }

  Result<std::optional<std::string>> get(Family family, std::string_view key) const override {
    CKPT_TRY(usable());
    std::string value;
    const auto status =
        database_->db->Get(rocksdb::ReadOptions(), database_->handle(family), slice(key), &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    CKPT_TRY(check(status));
    return std::optional<std::string>(std::move(value));
  }

  Result<std::optional<KvEntry>> seek_for_prev(Family family, std::string_view key,
                                               std::string_view prefix) const override {
    CKPT_TRY(usable());
    const auto iterator = new_iterator(family);
    iterator->SeekForPrev(slice(key));
    CKPT_TRY(check(iterator->status()));
    if (!iterator->Valid() || !iterator->key().starts_with(slice(prefix))) {
      return std::optional<KvEntry>();
    }
    return std::optional<KvEntry>(
        KvEntry{iterator->key().ToString(), iterator->value().ToString()});
  }

  Status scan(Family family, std::string_view prefix, Order order,
              const Visit& visit) const override {
    CKPT_TRY(usable());
    const auto iterator = new_iterator(family);
    if (order == Order::kAscending) {
      iterator->Seek(slice(prefix));
    } else {
      seek_to_last_with(prefix, *iterator);
    }
    while (iterator->Valid() && iterator->key().starts_with(slice(prefix))) {
      if (!visit(view(iterator->key()), view(iterator->value()))) return {};
      order == Order::kAscending ? iterator->Next() : iterator->Prev();
    }
    return check(iterator->status());
  }

  Status scan_on(Family family, std::string_view from, std::string_view prefix,
                 const Visit& visit) const override {
    CKPT_TRY(usable());
    const auto iterator = new_iterator(family);
    iterator->Seek(slice(from));
    while (iterator->Valid() && iterator->key().starts_with(slice(prefix))) {
      if (!visit(view(iterator->key()), view(iterator->value()))) return {};
      iterator->Next();
    }
    return check(iterator->status());
  }

  Status scan_back(Family family, std::string_view from, std::string_view prefix,
                   const Visit& visit) const override {
    CKPT_TRY(usable());
    const auto iterator = new_iterator(family);
    iterator->SeekForPrev(slice(from));
    while (iterator->Valid() && iterator->key().starts_with(slice(prefix))) {
      if (!visit(view(iterator->key()), view(iterator->value()))) return {};
      iterator->Prev();
    }
    return check(iterator->status());
  }

  Status seek_each(Family family, const std::vector<std::string>& keys,
                   const VisitFound& visit) const override {
    CKPT_TRY(usable());
    const auto iterator = new_iterator(family);
    for (size_t i = 0; i < keys.size(); ++i) {
      iterator->SeekForPrev(slice(keys[i]));
      CKPT_TRY(check(iterator->status()));
      if (iterator->Valid()) visit(i, view(iterator->key()), view(iterator->value()));
    }
    return {};
  }

  // Replaces the database instead of emptying it: the unreadable parts could not be deleted.
  Status clear() override {
    close(make_error(ErrorCode::kUnavailable, "catalog {}: could not be made anew", directory_));
    const std::string old = directory_ + ".old";
    Status replaced = replace_database(directory_, kept_as_.empty() ? old : kept_as_);
    if (!replaced.ok()) {
      closed_ = replaced.error();
      return replaced;
    }
    kept_as_.clear();
    CKPT_TRY(reopen());
    std::error_code ignored;  // the next clear() removes leftovers
    std::filesystem::remove_all(old, ignored);
    return {};
  }

  Result<std::string> set_aside(std::string_view name) override {
    std::error_code error;
    std::string aside;
    for (int number = 1; aside.empty() || std::filesystem::exists(aside, error); ++number) {
      aside = fmt::format("{}.{}-{}", directory_, name, number);
    }
    close(make_error(ErrorCode::kUnavailable, "catalog {}: could not be made anew", directory_));
    CKPT_TRY(replace_database(directory_, aside));
    kept_as_.clear();
    CKPT_TRY(reopen());
    return aside;
  }

  Status reopen() override {
    if (database_ && !read_only_) return {};
    database_.reset();
    read_only_ = false;
    Status opened = check(open_database(directory_, database_));
    if (!opened.ok()) closed_ = opened.error();
    if (opened.ok()) kept_as_.clear();
    return opened;
  }

  bool read_only() const override { return read_only_ && database_ != nullptr; }

 private:
  void close(const ckpt::Error& why) {
    database_.reset();
    closed_ = why;
  }
  std::unique_ptr<rocksdb::Iterator> new_iterator(Family family) const {
    return std::unique_ptr<rocksdb::Iterator>(
        database_->db->NewIterator(rocksdb::ReadOptions(), database_->handle(family)));
  }
  Status check(const rocksdb::Status& status) const {
    if (status.ok()) return {};
    return to_error(status, directory_);
  }
  // After a failed write or clear() there is no database until one is opened.
  Status usable() const {
    if (database_) return {};
    return closed_;
  }

  static void seek_to_last_with(std::string_view prefix, rocksdb::Iterator& iterator) {
    const std::string after = end_of_prefix(prefix);
    if (after.empty()) {
      iterator.SeekToLast();
      return;
    }
    iterator.SeekForPrev(after);
    if (iterator.Valid() && iterator.key() == slice(after)) iterator.Prev();
  }

  std::string directory_;
  std::unique_ptr<Database> database_;
  bool read_only_ = false;
  ckpt::Error closed_;   // why there is no database
  std::string kept_as_;  // clear() moves files there that could not be opened; empty: they could
};

}  // namespace

Result<OpenedKvStore> open_rocksdb_store(const std::string& directory) {
  OpenedKvStore opened;
  std::unique_ptr<Database> database;
  bool read_only = false;
  rocksdb::Status status = open_database(directory, database);
  const RocksDbLock lock = rocksdb_lock(status);
  if (lock != RocksDbLock::kNotAtFault) return lock_error(lock, status, directory);
  if (!status.ok() && rocksdb_error_code(status) == ErrorCode::kResourceExhausted) {
    read_only = open_to_read(directory, database).ok();
  } else if (!status.ok() && is_catalog_damage(rocksdb_error_code(status))) {
    const std::string aside = directory + ".broken";
    opened.broken = fmt::format("catalog {}: {}; moved to {}", directory, status.ToString(), aside);
    opened.store = std::make_unique<RocksDbStore>(directory, to_error(status, directory), aside);
    return opened;
  }
  if (database == nullptr) return to_error(status, directory);
  opened.store = std::make_unique<RocksDbStore>(directory, std::move(database), read_only);
  return opened;
}

}  // namespace ckptd

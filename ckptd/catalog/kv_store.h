// KvStore: ordered keys and values in column families, written in atomic batches.
//
// Two implementations: RocksDB, and an ordered map in memory. Keys are compared as bytes. All calls
// come from one thread. A store is only an index over the journal: a crash loses at most a suffix
// of its batches, and journal replay restores them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/result.h"

namespace ckptd {

// One column family per kind of key.
enum class Family : uint8_t {
  kMeta,
  kRuns,
  kUnits,
  kLineages,
  kCommits,
  kVersions,
  kTags,
  kSegments
};
inline constexpr int kFamilyCount = 8;
std::string_view family_name(Family family);  // "meta", "runs", ...: also the name on disk

// True if only a new store helps against this error of a catalog's store. Any other error passes
// by itself (no descriptors, no memory), or needs an operator (no room, no permission). The
// counterpart for files of the checkpoint store is is_data_loss() (io/disk.h).
constexpr bool is_catalog_damage(ckpt::ErrorCode code) {
  return code == ckpt::ErrorCode::kCorrupt || code == ckpt::ErrorCode::kIo ||
         code == ckpt::ErrorCode::kVersionMismatch;
}
inline bool is_catalog_damage(const ckpt::Status& status) {
  return !status.ok() && is_catalog_damage(status.error().code);
}

struct KvWrite {
  Family family = Family::kMeta;
  std::string key;
  std::optional<std::string> value;  // nullopt: delete
  bool prefix = false;               // deletes every key that starts with `key`, however many
};
struct KvEntry {
  std::string key;
  std::string value;
  bool operator==(const KvEntry&) const = default;
};

class KvStore {
 public:
  // Returning false stops the scan.
  using Visit = std::function<bool(std::string_view key, std::string_view value)>;

  virtual ~KvStore() = default;
  // Writes all of the batch in its order, or nothing. Not synced: the journal replays lost batches.
  // After an error the store is closed, because the state of its files is unknown and nothing may
  // be written after a failed write. Every call then fails, until reopen() or clear().
  virtual ckpt::Status write(const std::vector<KvWrite>& batch) = 0;
  virtual ckpt::Result<std::optional<std::string>> get(Family family,
                                                       std::string_view key) const = 0;
  // The last key <= `key` that starts with `prefix`. Fails if the store cannot be read (kIo,
  // kCorrupt): the caller must not take that for "there is none".
  virtual ckpt::Result<std::optional<KvEntry>> seek_for_prev(Family family, std::string_view key,
                                                             std::string_view prefix) const = 0;
  // Every key with the prefix, ascending (or descending); stops when visit returns false. `visit`
  // must not write.
  enum class Order : uint8_t { kAscending, kDescending };
  virtual ckpt::Status scan(Family family, std::string_view prefix, Order order,
                            const Visit& visit) const = 0;
  // Every key >= `from` with the prefix, ascending; stops when visit returns false. `from` begins
  // with the prefix.
  virtual ckpt::Status scan_on(Family family, std::string_view from, std::string_view prefix,
                               const Visit& visit) const = 0;
  // Every key <= `from` with the prefix, descending; stops when visit returns false.
  virtual ckpt::Status scan_back(Family family, std::string_view from, std::string_view prefix,
                                 const Visit& visit) const = 0;
  // For each of `keys`, which ascend, visits the last key <= it, with any prefix; if there is none,
  // `visit` is not called for it. One call is cheaper than many seek_for_prev().
  using VisitFound =
      std::function<void(size_t index, std::string_view key, std::string_view value)>;
  virtual ckpt::Status seek_each(Family family, const std::vector<std::string>& keys,
                                 const VisitFound& visit) const = 0;
  virtual ckpt::Status clear() = 0;
  // Like clear(), but keeps the files beside the new store, under a name that begins with `name`.
  // Returns its path. A store without files is only cleared.
  virtual ckpt::Result<std::string> set_aside(std::string_view name);
  // Opens a store that a failed write has closed. The store then has a prefix of the batches. After
  // an error it stays closed; kCorrupt: only clear() helps.
  virtual ckpt::Status reopen() = 0;
  // True if the store is open for reading only, because the disk is full. Every write fails then.
  virtual bool read_only() const { return false; }
};

// RocksDB in `directory` (created if missing; its parent must exist). A damaged catalog stays as it
// is: every read of its store fails with that damage (is_catalog_damage()). clear() moves its files
// to `directory`.broken and makes a new one, because it is only an index.
// On a full disk the catalog is opened for reading only, or fails with kResourceExhausted. Any
// other refusal by the system, and another process that has the catalog open (kUnavailable), is an
// error and leaves the catalog as it is.
struct OpenedKvStore {
  std::unique_ptr<KvStore> store;
  std::string broken;  // the damage, and where clear() moves the files; empty: the store is open
};
ckpt::Result<OpenedKvStore> open_rocksdb_store(const std::string& directory);

// The contents of an in-memory store; they outlive the store as files outlive a process. The
// simulation keeps an image and reopens a store on it. In between, a simulated crash may drop any
// suffix of the batches.
class MemoryKvImage {
 public:
  MemoryKvImage();
  ~MemoryKvImage();
  // Batches applied since the image was made or last truncated. clear() counts as one batch.
  size_t batches() const;
  // Simulates a crash: keeps only the first `batches` batches.
  void keep_prefix(size_t batches);
  // Simulates a full disk: writes fail and close the store, which can be reopened only for reading,
  // by make_memory_store().
  void set_full(bool full);
  // Every read fails with this error. An error that means damage ends when the store is cleared.
  void set_reads(ckpt::Status reads);
  // open() returns this status. A test that opens a store on the image calls open() first.
  void set_open(ckpt::Status opening);
  ckpt::Status open();
  size_t opens() const;               // calls of open()
  size_t writes_when_closed() const;  // writes to a closed store: RocksDB would abort

 private:
  friend class MemoryKvStore;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
std::unique_ptr<KvStore> make_memory_store();
std::unique_ptr<KvStore> make_memory_store(std::shared_ptr<MemoryKvImage> image);

}  // namespace ckptd

// KvStore: ordered keys and values in column families, written in atomic batches.
//
// Two rooms behind it: RocksDB, and an ordered map in memory. Keys are compared as bytes. All calls
// come from one thread. A store is only an index over the journal: what a crash takes from it is
// always a suffix of its batches, and is replayed.
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

// Does this error of a catalog's store say that only a new store helps? Any other one passes (no
// descriptors, no memory), or somebody has to see to it (no room, no permission). Of files of the
// store of checkpoints says_damage() (io/disk.h) tells the same.
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
  // False stops the scan.
  using Visit = std::function<bool(std::string_view key, std::string_view value)>;

  virtual ~KvStore() = default;
  // All of the batch or nothing of it, in its order. Not synced: what is lost is replayed from the
  // journal. After an error the store is closed: what the failed write left in its files is not
  // known, and nothing is written behind it. Every call then fails, until reopen() or clear().
  virtual ckpt::Status write(const std::vector<KvWrite>& batch) = 0;
  virtual ckpt::Result<std::optional<std::string>> get(Family family,
                                                       std::string_view key) const = 0;
  // The last key <= `key` that starts with `prefix`. An error is a store that cannot be read (kIo,
  // kCorrupt): it must not be taken for "there is none".
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
  // For each of `keys`, which ascend, the last key <= it, whatever that starts with; none: `visit`
  // is not called for it. Many at once cost less than as many seek_for_prev().
  using VisitFound =
      std::function<void(size_t index, std::string_view key, std::string_view value)>;
  virtual ckpt::Status seek_each(Family family, const std::vector<std::string>& keys,
                                 const VisitFound& visit) const = 0;
  virtual ckpt::Status clear() = 0;
  // clear(), but what is on the disk is kept beside it, under a name that begins with `name`.
  // Returns its path. A store without files is emptied.
  virtual ckpt::Result<std::string> set_aside(std::string_view name);
  // Opens a store that a failed write has closed. It has a prefix of the batches then. After an
  // error it stays closed; kCorrupt: only clear() helps.
  virtual ckpt::Status reopen() = 0;
  // Was it opened for reading only, because the disk is full? Every write fails then.
  virtual bool read_only() const { return false; }
};

// RocksDB in `directory` (made if it is not there; its parent must exist). A catalog that is
// damaged is moved aside to `directory`.broken once a new one is made, because it is only an index;
// `reset_reason` says why. Where the disk is full it is opened for reading only, and
// kResourceExhausted if it cannot be. Any other refusal by the system, and another process that has
// it open (kUnavailable), is an error and leaves the catalog as it is.
struct OpenedKvStore {
  std::unique_ptr<KvStore> store;
  std::string reset_reason;  // empty: opened as it was
};
ckpt::Result<OpenedKvStore> open_rocksdb_store(const std::string& directory);

// The contents of an in-memory store, which outlive it as files outlive a process. The simulation
// keeps one, reopens a store on it, and between the two lets a crash take any suffix of the
// batches.
class MemoryKvImage {
 public:
  MemoryKvImage();
  ~MemoryKvImage();
  // Batches applied since the image was made or last cut, at most. clear() counts as one.
  size_t batches() const;
  // A crash: only the first `batches` of them are left.
  void keep_prefix(size_t batches);
  // As on a full disk: writes fail and close the store, and it cannot be opened again, except for
  // reading by make_memory_store().
  void set_full(bool full);
  // Every read fails with this error. One of damage ends when the store is cleared.
  void set_reads(ckpt::Status reads);
  // Opening a store on it fails like this: for whoever opens one to ask, each time.
  void set_open(ckpt::Status opening);
  ckpt::Status open();
  size_t opens() const;               // how often it was asked
  size_t writes_when_closed() const;  // attempts that a real store could not have survived

 private:
  friend class MemoryKvStore;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
std::unique_ptr<KvStore> make_memory_store();
std::unique_ptr<KvStore> make_memory_store(std::shared_ptr<MemoryKvImage> image);

}  // namespace ckptd

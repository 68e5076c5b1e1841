// KvStore: ordered keys and values in column families, written in atomic batches.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"

namespace ckptd {

// One column family per kind of key.
enum class Family : uint8_t { kMeta, kRuns, kUnits, kLineages, kCommits, kVersions, kTags };
inline constexpr int kFamilyCount = 7;

struct KvWrite {
  Family family = Family::kMeta;
  std::string key;
  std::optional<std::string> value;  // nullopt: delete
};

class KvStore {
 public:
  virtual ~KvStore() = default;
  // Atomic; not synced: what is lost is replayed from the journal.
  virtual ckpt::Status write(const std::vector<KvWrite>& batch) = 0;
  virtual ckpt::Result<std::optional<std::string>> get(Family family,
                                                       std::string_view key) const = 0;
  // The last key <= `key` that starts with `prefix`.
  virtual std::optional<std::pair<std::string, std::string>> seek_for_prev(
      Family family, std::string_view key, std::string_view prefix) const = 0;
  // Every key with the prefix, ascending; stops when visit returns false.
  virtual void scan(
      Family family, std::string_view prefix,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) const = 0;
  virtual ckpt::Status clear() = 0;
};

// RocksDB in `directory`. A catalog that cannot be opened is moved aside and made anew (it is only
// an index); the message of the returned `reset_reason` says so.
struct OpenedKvStore {
  std::unique_ptr<KvStore> store;
  std::string reset_reason;  // empty: opened as it was
};
ckpt::Result<OpenedKvStore> open_rocksdb_store(const std::string& directory);
std::unique_ptr<KvStore> make_memory_store();

}  // namespace ckptd

// Private to this folder: what an error of RocksDB means for the catalog.
#pragma once

#include <cstdint>

#include "formats/base/result.h"

namespace rocksdb {
class Status;
}

namespace ckptd {

// kCorrupt and kIo: the catalog is damaged (is_catalog_damage()). kResourceExhausted: the disk is
// full. Everything else passes by itself, or somebody has to see to it.
ckpt::ErrorCode rocksdb_error_code(const rocksdb::Status& status);
// The part of the database's lock in an error of opening it. RocksDB has no status of its own for
// that.
enum class RocksDbLock : uint8_t {
  kNotAtFault,
  kHeld,     // somebody has the database open
  kMissing,  // its file system has no locks of fcntl()
};
RocksDbLock rocksdb_lock(const rocksdb::Status& status);

}  // namespace ckptd

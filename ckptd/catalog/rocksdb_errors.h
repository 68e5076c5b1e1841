// Private to this folder: maps errors of RocksDB to errors of the catalog.
#pragma once

#include <cstdint>

#include "formats/base/result.h"

namespace rocksdb {
class Status;
}

namespace ckptd {

// kCorrupt and kIo: the catalog is damaged (is_catalog_damage()). kResourceExhausted: the disk is
// full. Any other error passes by itself, or needs an operator.
ckpt::ErrorCode rocksdb_error_code(const rocksdb::Status& status);
// Whether the database's lock caused an error of opening it. RocksDB has no status of its own for
// the lock.
enum class RocksDbLock : uint8_t {
  kNotAtFault,
  kHeld,     // another process, or this one, has the database open
  kMissing,  // the file system does not support fcntl() locks
};
RocksDbLock rocksdb_lock(const rocksdb::Status& status);

}  // namespace ckptd

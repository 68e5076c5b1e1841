// Private to this folder: what an error of RocksDB means for the catalog.
#pragma once

#include "formats/base/result.h"

namespace rocksdb {
class Status;
}

namespace ckptd {

// kCorrupt and kIo: the catalog is damaged (is_catalog_damage()). kResourceExhausted: the disk is
// full. Everything else passes by itself, or somebody has to see to it.
ckpt::ErrorCode rocksdb_error_code(const rocksdb::Status& status);
// Another process has the database open. RocksDB has no status of its own for that.
bool is_rocksdb_lock_held(const rocksdb::Status& status);

}  // namespace ckptd

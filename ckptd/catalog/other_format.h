// Check before a catalog that another version of ckptd wrote is rebuilt from the journal. A catalog
// that is ahead of the journal must be kept: the journal has lost durable records, and only the
// ckptd version that wrote the catalog can restore them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ckptd/catalog/kv_store.h"
#include "formats/base/result.h"

namespace ckptd {

// Fails with kVersionMismatch and an instruction if the store has another format, belongs to this
// journal (`store_id` in hex), and has folded in records after `journal_sequence`, the journal's
// last one. Only reads the store.
ckpt::Status check_other_format(const KvStore& store, std::string_view store_id,
                                uint64_t journal_sequence);

// The id of the store whose journal was folded in, in hex; empty: none was. Works for any format.
ckpt::Result<std::string> store_id_of(const KvStore& store);

}  // namespace ckptd

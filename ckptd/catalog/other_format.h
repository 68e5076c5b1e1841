// A catalog that another version of ckptd wrote is made anew from the journal. That must not happen
// where it knows more than the journal: then the journal has lost records that were durable, and
// only the version that wrote the catalog can still put them back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ckptd/catalog/kv_store.h"
#include "formats/base/result.h"

namespace ckptd {

// kVersionMismatch, saying what to do, if the store is of another format, of this journal
// (`store_id` in hex), and has folded in records after `journal_sequence`, its last one. The store
// is only read.
ckpt::Status check_other_format(const KvStore& store, std::string_view store_id,
                                uint64_t journal_sequence);

// The store whose journal was folded in, in hex; empty: none was. Of a catalog of any format.
ckpt::Result<std::string> store_id_of(const KvStore& store);

}  // namespace ckptd

// Reads of a catalog that are valid only if every part of them succeeded.
//
// A read that fails latches Catalog::health() and until then looks like "nothing there". Code that
// decides by its reads (queries, restores, verify, deletions, new runs, epochs and snapshots) uses
// read_whole(). A catalog that lacks records of the journal counts as unreadable.
#pragma once

#include <functional>
#include <type_traits>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

// Repairs a catalog that could not be read; ok: retry the read. Never called during a read.
using HealCatalog = std::function<Status()>;

// The error for an answer that needs an unreadable catalog. It makes no statement about commits.
inline ckpt::Error catalog_unreadable(const ckpt::Error& why) {
  return ckpt::make_error(ckpt::ErrorCode::kUnavailable,
                          "the catalog cannot be read: {}; commits are not affected: ckptd "
                          "repairs the catalog from the journal as soon as it can, try again",
                          why.message);
}

// Runs `read`; if the catalog could not be read, heals it and retries once, else kUnavailable.
// `read` returns a Result and does nothing but read. An empty `heal` heals nothing.
template <typename Read>
std::invoke_result_t<Read> read_whole(const Catalog& catalog, const HealCatalog& heal, Read read) {
  auto answer = read();
  if (catalog.health().ok()) return answer;
  if (heal) {
    if (const Status healed = heal(); !healed.ok()) return catalog_unreadable(healed.error());
    answer = read();
    if (catalog.health().ok()) return answer;
  }
  return catalog_unreadable(catalog.health().error());
}

}  // namespace ckptd

// Reads of a catalog that count only as a whole.
//
// A read that fails latches Catalog::health() and looks like "nothing there" until then. Whoever
// judges by what he reads (queries, restores, verify, deletions) reads through read_whole(), which
// has the catalog made good and reads again, or fails.
#pragma once

#include <functional>
#include <type_traits>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

// Makes a catalog good that could not be read; ok: it may be read again. Never called within a
// read.
using HealCatalog = std::function<Status()>;

// The error of an answer that needs a catalog which cannot be read. It says nothing about commits.
inline ckpt::Error catalog_unreadable(const ckpt::Error& why) {
  return ckpt::make_error(ckpt::ErrorCode::kUnavailable,
                          "the catalog cannot be read: {}; commits are not affected: ckptd makes "
                          "the catalog good from the journal as soon as it can, try again",
                          why.message);
}

// What `read`, which returns a Result and does nothing but read, gives of a catalog that could be
// read to the end. kUnavailable: it could not, not even after `heal` (empty: nobody can heal).
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

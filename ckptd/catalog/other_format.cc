#include "ckptd/catalog/other_format.h"

#include <utility>

#include "ckptd/catalog/catalog_impl.h"

namespace ckptd {

ckpt::Status check_other_format(const KvStore& store, std::string_view store_id,
                                uint64_t journal_sequence) {
  CKPT_ASSIGN(const auto applied, store.get(Family::kMeta, keys::kApplied));
  if (!applied) return {};  // nothing was ever applied
  CKPT_ASSIGN(const auto format, store.get(Family::kMeta, keys::kFormat));
  if (format && keys::u32_at(*format, 0) == kCatalogFormat) return {};
  CKPT_ASSIGN(const auto id, store.get(Family::kMeta, keys::kStore));
  const auto sequence = keys::u64_at(*applied, 0);
  const bool ours = !id || *id == store_id;
  if (!sequence || !ours || *sequence <= journal_sequence) return {};
  return ckpt::make_error(
      ckpt::ErrorCode::kVersionMismatch,
      "records {} to {} were durable and the journal cannot give them any more; the catalog has"
      " them, but another version of ckptd wrote it: start that one once, which puts them back, or"
      " move the directory catalog away to continue without them",
      journal_sequence + 1, *sequence);
}

ckpt::Result<std::string> store_id_of(const KvStore& store) {
  CKPT_ASSIGN(auto id, store.get(Family::kMeta, keys::kStore));
  return id ? std::move(*id) : std::string();
}

}  // namespace ckptd

// Start, when the catalog knows more than the journal says. It is written after the journal is
// durable, so the journal has lost bytes that were durable: nothing of that is passed over. What
// cannot be read any more is kept beside the journal, and what the catalog still knows is written
// into the journal again; of commits only what their extents' headers, the second entry of the
// same facts, confirm.
#include <spdlog/spdlog.h>

#include "ckptd/catalog/salvage.h"
#include "ckptd/daemon_impl.h"
#include "ckptd/io/store_paths.h"

namespace ckptd {

namespace {

std::string name_of(const Catalog& catalog, const SnapshotKey& key) {
  const auto run = catalog.run(key.run);
  return fmt::format("{}~{}@{}", run.ok() ? run->name : fmt::format("run number {}", key.run),
                     key.lineage, key.step);
}

}  // namespace

// After an error nothing was changed, except that a copy of the tail may lie beside the journal.
Result<std::optional<Salvage>> Daemon::Impl::salvage(const RecoveredStore& store) {
  const uint64_t known = catalog->applied_sequence();
  if (known <= last_sequence) return std::optional<Salvage>();
  if (catalog->store_id() != ckpt::base::to_hex(store_id)) {
    spdlog::warn("the catalog is of store {}, not of {}: it is made anew", catalog->store_id(),
                 ckpt::base::to_hex(store_id));
    CKPT_TRY(catalog->clear());
    return std::optional<Salvage>();
  }
  std::string where = "nothing is left of them";
  if (store.torn_bytes > 0) {
    CKPT_ASSIGN(const std::string path, keep_torn_tail(disk, store));
    where =
        fmt::format("the {} bytes that are left of them are kept in {}", store.torn_bytes, path);
  }
  spdlog::error(
      "{}: records {} to {} were durable and cannot be read any more: the disk damaged "
      "or lost what lies at offset {} and after; {}",
      kJournalPath, last_sequence + 1, known, store.end.offset, where);
  auto taken = take_salvage(*catalog, last_sequence);
  if (!taken.ok()) {
    return make_error(ErrorCode::kCorrupt,
                      "{}: records {} to {} were durable and cannot be read any more, and the "
                      "catalog, which had them, cannot be read either: {}; move the directory "
                      "catalog away to start without them",
                      kJournalPath, last_sequence + 1, known, taken.error().message);
  }
  CKPT_TRY(catalog->clear());
  return std::optional(std::move(*taken));
}

// Writes again what was salvaged. Each record is folded in first, and left out where that fails:
// the journal must never hold one that contradicts those before it.
Status Daemon::Impl::put_back(const Salvage& salvage) {
  std::vector<fb::RecordT> records;
  const auto add = [&](const fb::RecordT& record) {
    const uint64_t sequence = catalog->applied_sequence() + 1;
    const Status applied = catalog->apply(sequence, record);
    if (applied.ok()) {
      records.push_back(record);
    } else {
      spdlog::error("a lost record cannot be put back: {}", applied.error().message);
    }
    return applied.ok();
  };
  for (const auto& record : missing_before_commits(salvage, *catalog, wall_clock_ns())) add(record);
  for (const Salvage::Commit& commit : salvage.commits) {
    const SnapshotKey& key = commit.info.snapshot;
    const bool back = add(make_record(commit.record));
    const std::string name = name_of(*catalog, key);
    if (!back) {
      spdlog::error("{}: LOST: its record is gone from the journal", name);
      continue;
    }
    const auto part = commit.info.deleted ? ExtentPart::kRest : ExtentPart::kWhole;
    CKPT_ASSIGN(const auto damaged, check_commit(key, part));
    if (damaged) {
      add(*damaged);
      spdlog::error("{}: its record was put back from the catalog, and its bytes are damaged",
                    name);
    } else {
      spdlog::warn("{}: its record was put back from the catalog; its extents confirm it", name);
    }
  }
  for (const auto& record : missing_after_commits(salvage, *catalog, wall_clock_ns())) add(record);
  for (const Salvage::Commit& moved : salvage.moved) {
    if (moved.info.damaged) continue;
    const auto record = missing_move(moved, *catalog, wall_clock_ns());
    if (record) add(*record);  // if that fails, its bytes are looked for where they were
    const auto part = moved.info.deleted ? ExtentPart::kRest : ExtentPart::kWhole;
    CKPT_ASSIGN(const auto damaged, check_commit(moved.info.snapshot, part));
    if (damaged) add(*damaged);
  }
  CKPT_TRY(catalog->health());
  if (records.empty()) return {};
  CKPT_ASSIGN(const uint64_t first, append_blocking(disk, *journal, records));
  CKPT_ASSERT(first == last_sequence + 1);
  last_sequence = catalog->applied_sequence();
  return {};
}

}  // namespace ckptd

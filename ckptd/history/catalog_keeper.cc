#include "ckptd/history/catalog_keeper.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/catalog/other_format.h"
#include "ckptd/history/foreign_catalog.h"
#include "ckptd/io/store_paths.h"
#include "formats/base/hash.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Each failed try to return to disk (for example with an exhausted quota) costs a read of the whole
// journal.
constexpr std::chrono::milliseconds kReturnAfterMax{600'000};

void log_reset(const std::string& reason) {
  if (!reason.empty()) spdlog::warn("the catalog is made anew from the journal: {}", reason);
}

// A journal that reuses record numbers must never meet the old index again.
Status no_room_to_clear() {
  return make_error(ErrorCode::kResourceExhausted,
                    "the disk is full: the catalog cannot be made anew; free some space");
}

}  // namespace

Status CatalogKeeper::open(const RecoveredStore& store) {
  CKPT_ASSIGN(StandInStore::Opened opened, StandInStore::open(open_on_disk_));
  store_ = opened.store.get();
  const std::string id = ckpt::base::to_hex(store.id);
  auto catalog_of = store_id_of(*store_);
  if (!catalog_of.ok() && !is_catalog_damage(catalog_of.error().code)) return catalog_of.error();
  const bool readable = catalog_of.ok();
  // Without its first records a damaged journal does not name its store.
  const bool other_store =
      readable && store.starts > 0 && !catalog_of->empty() && *catalog_of != id;
  if (readable && !other_store) {
    CKPT_TRY(check_other_format(*store_, id, store.end.next_sequence - 1));
  }
  catalog_ = std::make_unique<Catalog>(std::move(opened.store), Catalog::Unreadable::kKeep);
  Status health = catalog_->health();
  if (!health.ok() && !is_catalog_damage(health)) return health;
  // A catalog that a damaged journal cannot fill again stays as it is, readable or not.
  if (store.damage) return {};
  if (other_store) {
    foreign_ = fmt::format("it belongs to store {}, the journal to {}", *catalog_of, id);
    return {};
  }
  if (!health.ok()) {
    unreadable_ = opened.broken.empty() ? health.error().message : opened.broken;
    return {};
  }
  auto why = why_foreign(*catalog_, store);
  if (!why.ok()) return is_catalog_damage(why.error().code) ? Status() : why.error();
  foreign_ = *std::move(why);
  return {};
}

bool CatalogKeeper::is_ahead_of(uint64_t last_sequence) const {
  return foreign_.empty() && unreadable_.empty() && catalog_->applied_sequence() > last_sequence;
}

Status CatalogKeeper::settle() {
  if (!foreign_.empty()) return set_aside(std::exchange(foreign_, {}));
  if (unreadable_.empty()) return {};
  log_reset(std::exchange(unreadable_, {}));
  const Status cleared = catalog_->clear();
  return is_catalog_damage(cleared) ? Status() : cleared;
}

Status CatalogKeeper::open_and_clear() const {
  CKPT_ASSIGN(const StandInStore::Opened opened, StandInStore::open(open_on_disk_));
  const bool writable = !opened.store->in_memory() && !opened.store->read_only();
  if (writable) CKPT_TRY(opened.store->clear());
  return writable && !opened.store->in_memory() ? Status() : no_room_to_clear();
}

Status CatalogKeeper::clear_on_disk() {
  CKPT_TRY(catalog_->clear());
  return store_->in_memory() ? no_room_to_clear() : Status();
}

Status CatalogKeeper::set_aside(const std::string& why) {
  const auto kept = store_->set_aside(kForeignCatalog);
  if (!kept.ok()) {
    return make_error(kept.error().code,
                      "the catalog is not the journal's: {}; it cannot be moved aside: {}", why,
                      kept.error().message);
  }
  CKPT_TRY(catalog_->reload());
  spdlog::warn(
      "the catalog is not the journal's: {}. It was moved to {}, and is made anew from the "
      "journal",
      why, *kept);
  return {};
}

Status CatalogKeeper::continue_without_disk() {
  if (!store_->read_only() && !store_->in_memory()) return {};
  store_->switch_to_memory();
  spdlog::warn("the disk is full: the catalog is kept in memory until there is room");
  return catalog_->reload();
}

Status CatalogKeeper::heal(Time now, const Journal& journal) {
  Status status = catalog_->health();
  if (status.ok() && catalog_->applied_sequence() >= journal.last_sequence) {
    retry_after_ = limits::kCatalogRetryMin;
    return {};
  }
  if (now < next_retry_) return last_try_;
  const std::string reason = status.ok() ? "records were missing" : status.error().message;
  const bool was_in_memory = store_->in_memory();
  if (!status.ok()) status = catalog_->heal([&] { return check_journal_whole(journal); });
  const bool full = !status.ok() && status.error().code == ErrorCode::kResourceExhausted;
  // Only with a complete journal: otherwise the catalog on disk is the last copy of the history.
  if (full && check_journal_whole(journal).ok()) {
    store_->switch_to_memory();
    status = catalog_->reload();
  }
  // Even after an error: while the store is closed, only the memory follows the journal.
  const Status caught_up = catch_up(journal);
  if (status.ok()) status = caught_up;
  if (status.ok()) status = catalog_->health();
  last_try_ = status;
  if (status.ok()) {
    const bool to_memory = store_->in_memory() && !was_in_memory;
    spdlog::warn("catalog repaired from the journal ({}){}", reason,
                 to_memory ? "; it is in memory until the disk has room" : "");
    return {};
  }
  // Logged once: the condition catalog_unreadable is shown as long as it lasts.
  const bool first = retry_after_ == limits::kCatalogRetryMin;
  spdlog::log(first ? spdlog::level::err : spdlog::level::debug,
              "the catalog cannot be repaired, next try in {} ms: {}", retry_after_.count(),
              status.error().message);
  next_retry_ = now + retry_after_;
  retry_after_ = std::min(2 * retry_after_, limits::kCatalogRetryMax);
  return status;
}

void CatalogKeeper::tick(Time now, const Journal& journal) {
  const Status healed = heal(now, journal);
  if (!healed.ok() || !store_->in_memory() || now < next_return_) return;
  next_return_ = now + limits::kCatalogReturnEvery;
  const auto space = disk_.space();
  if (!space.ok() || space->free_bytes < limits::kCatalogReturnSpaceMin) return;
  const Status returned = return_to_disk(journal);
  if (returned.ok()) {
    return_after_ = limits::kCatalogReturnEvery;
    return spdlog::info("the catalog is on disk again");
  }
  const bool first = return_after_ == limits::kCatalogReturnEvery;
  spdlog::log(first ? spdlog::level::warn : spdlog::level::debug,
              "the catalog stays in memory, next try in {} s: {}", return_after_.count() / 1000,
              returned.error().message);
  next_return_ = now + return_after_;
  return_after_ = std::min(2 * return_after_, kReturnAfterMax);
}

// The index in memory is dropped only when the one on disk is complete.
Status CatalogKeeper::return_to_disk(const Journal& journal) {
  // The journal must be complete: it fills the gaps of the index on disk, and the index in memory
  // may be the last copy of the history.
  CKPT_ASSIGN(const RecoveredStore history, read_journal(disk_, journal.file));
  if (history.end.next_sequence <= journal.last_sequence) {
    return make_error(ErrorCode::kCorrupt, "journal record {} cannot be read back",
                      history.end.next_sequence);
  }
  Status returned = store_->try_disk();
  if (returned.ok()) {
    returned = take_disk(journal, history);
    if (returned.ok()) {
      store_->stay_on_disk();
      return {};
    }
    store_->stay_in_memory();
    CKPT_TRY(catalog_->reload());
  }
  if (is_catalog_damage(returned)) store_->set_stale();  // the next try makes a new one
  return returned;
}

Status CatalogKeeper::take_disk(const Journal& journal, const RecoveredStore& history) {
  const std::string id = catalog_->store_id();
  const KnownRuns known(*catalog_);
  CKPT_TRY(catalog_->reload());
  std::string why;
  if (catalog_->applied_sequence() > journal.last_sequence) {
    why = fmt::format("it has records up to {}, the journal up to {}", catalog_->applied_sequence(),
                      journal.last_sequence);
  } else if (!catalog_->store_id().empty() && catalog_->store_id() != id) {
    why = fmt::format("it belongs to store {}, the journal to {}", catalog_->store_id(), id);
  } else {
    why = known.why_foreign(*catalog_);
  }
  if (why.empty()) {
    CKPT_ASSIGN(why, why_foreign(*catalog_, history));
  }
  if (!why.empty()) CKPT_TRY(set_aside(why));
  CKPT_TRY(catch_up(journal));
  return catalog_->health();
}

// Checks that the journal can fill the catalog again. Called before any part of the catalog is
// dropped, because it may be the last copy of the history.
Status CatalogKeeper::check_journal_whole(const Journal& journal) const {
  const uint64_t last = std::max(journal.last_sequence, catalog_->applied_sequence());
  const Status whole = check_journal(disk_, journal.file, last);
  if (whole.ok()) return {};
  return make_error(whole.error().code, "{}; the catalog stays as it is: {}", whole.error().message,
                    catalog_->health().ok()
                        ? "restart ckptd, which writes the journal anew from it"
                        : "it cannot be read either, put the journal back from a copy");
}

Status CatalogKeeper::rebuild(const Journal& journal) {
  CKPT_TRY(check_journal_whole(journal));
  CKPT_TRY(catalog_->clear());
  return catch_up(journal);
}

Status CatalogKeeper::catch_up(const Journal& journal) {
  if (catalog_->applied_sequence() >= journal.last_sequence) return {};
  CKPT_TRY(replay(disk_, journal.file, journal.last_sequence, *catalog_));
  if (catalog_->applied_sequence() >= journal.last_sequence) return {};
  return make_error(ErrorCode::kCorrupt, "journal record {} cannot be read back",
                    catalog_->applied_sequence() + 1);
}

}  // namespace ckptd

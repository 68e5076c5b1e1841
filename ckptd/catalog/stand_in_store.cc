#include "ckptd/catalog/stand_in_store.h"

#include <utility>

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::Result;
using ckpt::Status;

namespace {

bool is_full(const ckpt::Error& error) { return error.code == ErrorCode::kResourceExhausted; }

}  // namespace

Result<StandInStore::Opened> StandInStore::open(Open open_on_disk) {
  Opened opened;
  opened.store.reset(new StandInStore(std::move(open_on_disk)));
  auto on_disk = opened.store->open_on_disk_();
  if (on_disk.ok()) {
    opened.store->on_disk_ = std::move(on_disk->store);
    opened.broken = std::move(on_disk->broken);
  } else if (is_full(on_disk.error())) {
    opened.store->switch_to_memory();
  } else {
    return on_disk.error();
  }
  return opened;
}

void StandInStore::switch_to_memory() {
  memory_ = make_memory_store();
  aside_.reset();
}

Status StandInStore::try_disk() {
  if (memory_ == nullptr) return {};
  if (on_disk_ == nullptr) {
    CKPT_ASSIGN(OpenedKvStore opened, open_on_disk_());
    if (opened.store->read_only()) {
      return ckpt::make_error(ErrorCode::kResourceExhausted, "the disk is still full");
    }
    if (!opened.broken.empty()) CKPT_TRY(opened.store->clear());
    on_disk_ = std::move(opened.store);
  } else if (!stale_) {
    CKPT_TRY(on_disk_->reopen());
  }
  if (stale_) CKPT_TRY(on_disk_->clear());
  stale_ = false;
  aside_ = std::move(memory_);
  return {};
}

void StandInStore::stay_in_memory() {
  if (aside_ != nullptr) memory_ = std::move(aside_);
}

Status StandInStore::write(const std::vector<KvWrite>& batch) { return current().write(batch); }

Result<std::optional<std::string>> StandInStore::get(Family family, std::string_view key) const {
  return current().get(family, key);
}

Result<std::optional<KvEntry>> StandInStore::seek_for_prev(Family family, std::string_view key,
                                                           std::string_view prefix) const {
  return current().seek_for_prev(family, key, prefix);
}

Status StandInStore::scan(Family family, std::string_view prefix, Order order,
                          const Visit& visit) const {
  return current().scan(family, prefix, order, visit);
}

Status StandInStore::scan_on(Family family, std::string_view from, std::string_view prefix,
                             const Visit& visit) const {
  return current().scan_on(family, from, prefix, visit);
}

Status StandInStore::scan_back(Family family, std::string_view from, std::string_view prefix,
                               const Visit& visit) const {
  return current().scan_back(family, from, prefix, visit);
}

Status StandInStore::seek_each(Family family, const std::vector<std::string>& keys,
                               const VisitFound& visit) const {
  return current().seek_each(family, keys, visit);
}

Status StandInStore::clear() {
  Status cleared = memory_ == nullptr ? on_disk_->clear() : Status();
  if (!cleared.ok() && (aside_ != nullptr || !is_full(cleared.error()))) return cleared;
  if (cleared.ok() && memory_ == nullptr) return {};
  switch_to_memory();
  stale_ = true;
  return {};
}

Status StandInStore::reopen() { return memory_ == nullptr ? on_disk_->reopen() : Status(); }

Result<std::string> StandInStore::set_aside(std::string_view name) {
  return current().set_aside(name);
}

bool StandInStore::read_only() const { return current().read_only(); }

}  // namespace ckptd

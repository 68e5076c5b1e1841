#include "ckptd/catalog/catalog.h"

#include <algorithm>
#include <utility>

#include "ckptd/catalog/catalog_impl.h"
#include "ckptd/catalog/growth.h"
#include "formats/wire/convert.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

ckpt::Error bad_value(std::string_view what) {
  return make_error(ErrorCode::kCorrupt, "catalog: a value of {} does not verify", what);
}

RunInfo created_run(const ckpt::fb::RunCreatedT& created) {
  RunInfo info;
  info.id = created.run;
  info.name = created.name;
  info.uid = created.uid;
  info.created_ns = created.time_ns;
  info.parent = created.parent_run;
  info.parent_lineage = created.parent_lineage;
  info.parent_step = created.parent_step;
  info.metadata = created.metadata;
  return info;
}

// Calls `visit` for every value of a family; the first error ends the scan.
Status scan_all(const KvStore& store, Family family,
                const std::function<Status(std::string_view key, std::string_view value)>& visit) {
  Status status;
  CKPT_TRY(store.scan(family, "", KvStore::Order::kAscending,
                      [&](std::string_view key, std::string_view value) {
                        status = visit(key, value);
                        return status.ok();
                      }));
  return status;
}

}  // namespace

Catalog::Catalog(std::unique_ptr<KvStore> store, Unreadable unreadable)
    : impl_(std::make_unique<Impl>()) {
  impl_->store = std::move(store);
  const Status loaded = impl_->load();
  if (loaded.ok()) return;
  if (unreadable == Unreadable::kKeep || !is_catalog_damage(loaded)) {
    impl_->memory() = {};
    impl_->health = loaded;
    return;
  }
  impl_->reset_reason = loaded.error().message;
  impl_->health = clear();
}
Catalog::~Catalog() = default;

const std::string& Catalog::reset_reason() const { return impl_->reset_reason; }
const std::string& Catalog::store_id() const { return impl_->store_id; }
uint64_t Catalog::applied_sequence() const { return impl_->applied; }
Status Catalog::store_health() const { return impl_->health; }

Result<std::vector<StartMark>> Catalog::starts() const {
  std::vector<StartMark> starts;
  impl_->scan(Family::kMeta, std::string(keys::kOpened), KvStore::Order::kAscending,
              [&](std::string_view key, std::string_view value) {
                const auto sequence = keys::u64_at(key, keys::kOpened.size());
                const auto time_ns = keys::u64_at(value, 0);
                if (sequence && time_ns) {
                  starts.push_back({*sequence, *time_ns});
                } else {
                  impl_->damaged(Family::kMeta, "a start");
                }
                return true;
              });
  CKPT_TRY(impl_->health);
  return starts;
}

void Catalog::expect(uint64_t sequence) { impl_->expected = std::max(impl_->expected, sequence); }

Status Catalog::health() const {
  if (!impl_->health.ok() || impl_->applied >= impl_->expected) return impl_->health;
  return make_error(ErrorCode::kUnavailable, "catalog: journal records {} to {} are missing",
                    impl_->applied + 1, impl_->expected);
}

uint64_t Catalog::write_errors() const { return impl_->write_errors; }

Status Catalog::clear() {
  impl_->memory() = {};
  impl_->health = impl_->store->clear();
  impl_->store_closed = !impl_->health.ok();
  return impl_->health;
}

Status Catalog::heal(const std::function<Status()>& may_clear) {
  const auto make_anew = [&]() -> Status {
    CKPT_TRY(may_clear());
    return clear();
  };
  if (impl_->health.ok()) return {};  // the store is good
  // A read that a shortage (memory, descriptors) refused may succeed now.
  if (!impl_->store_closed && is_catalog_damage(impl_->health)) return make_anew();
  if (impl_->store_closed) {
    const Status opened = impl_->store->reopen();
    if (is_catalog_damage(opened)) return make_anew();
    CKPT_TRY(opened);
  }
  const Status loaded = reload();
  return is_catalog_damage(loaded) ? make_anew() : loaded;
}

Status Catalog::reload() {
  CatalogMemory before = std::exchange(impl_->memory(), {});
  Status loaded = impl_->load();
  if (!loaded.ok()) {
    impl_->memory() = std::move(before);
    return loaded;
  }
  impl_->store_closed = false;
  impl_->health = {};
  return {};
}

Status Catalog::Impl::load() {
  CKPT_TRY(load_meta());
  CKPT_TRY(load_runs());
  CKPT_TRY(load_units());
  return load_lineages();
}

Status Catalog::Impl::load_meta() {
  CKPT_ASSIGN(const auto applied_value, store->get(Family::kMeta, keys::kApplied));
  if (!applied_value) return {};  // nothing was ever applied
  CKPT_ASSIGN(const auto format, store->get(Family::kMeta, keys::kFormat));
  if (!format || keys::u32_at(*format, 0) != kCatalogFormat) {
    return make_error(ErrorCode::kVersionMismatch, "catalog: written in another format");
  }
  const auto sequence = keys::u64_at(*applied_value, 0);
  if (!sequence) return bad_value("meta");
  applied = *sequence;
  CKPT_ASSIGN(auto id, store->get(Family::kMeta, keys::kStore));
  if (id) store_id = std::move(*id);
  return {};
}

Status Catalog::Impl::load_runs() {
  return scan_all(*store, Family::kRuns, [&](std::string_view key, std::string_view value) {
    const auto id = keys::u64_at(key, 0);
    if (!id) return Status(bad_value("runs"));
    if (key == keys::run(*id)) {
      const auto record = values::decode_record(value);
      const auto* created = record ? record->body.AsRunCreated() : nullptr;
      if (created == nullptr || created->run != *id) return Status(bad_value("runs"));
      runs[*id].info = created_run(*created);
      run_by_name[created->name] = *id;
      return Status();
    }
    // Grants, rules and state follow their run in the order of keys.
    if (key.size() == keys::run_grant(*id, 0).size()) {
      const auto record = values::decode_record(value);
      const auto* granted = record ? record->body.AsGranted() : nullptr;
      const bool good = granted != nullptr && granted->run == *id && runs.contains(*id) &&
                        key == keys::run_grant(*id, granted->uid);
      if (!good) return Status(bad_value("runs"));
      runs[*id].info.grants[granted->uid] = ckpt::from_fb(*granted);
      return Status();
    }
    if (key == keys::run_rules(*id)) {
      const auto record = values::decode_record(value);
      const auto* set = record ? record->body.AsRulesSet() : nullptr;
      auto rules = set != nullptr ? ckpt::from_fb(*set) : bad_value("runs");
      if (!rules.ok() || !runs.contains(*id)) return Status(bad_value("runs"));
      runs[*id].rules = std::move(rules).value();
      return Status();
    }
    const auto counters = values::decode_run_counters(value);
    if (!counters || !runs.contains(*id)) return Status(bad_value("runs"));
    RunInfo& info = runs[*id].info;
    info.current_lineage = counters->current_lineage;
    info.last_epoch = counters->last_epoch;
    info.commits = counters->commits;
    info.bytes = counters->bytes;
    if (counters->removed_ns == 0) return Status();
    info.removed_ns = counters->removed_ns;
    info.removed_reason = counters->removed_reason;
    info.metadata.clear();
    run_by_name.erase(info.name);  // a newer run of the same name comes later in the scan
    return Status();
  });
}

Status Catalog::Impl::load_units() {
  return scan_all(*store, Family::kUnits, [&](std::string_view key, std::string_view value) {
    const auto id = keys::u64_at(key, 0);
    const auto record = values::decode_record(value);
    const auto* registered = record ? record->body.AsUnitsRegistered() : nullptr;
    if (!id || registered == nullptr || !runs.contains(*id)) return Status(bad_value("units"));
    const auto taken = take_units(registered->units, registered->grown, runs[*id]);
    return taken.ok() ? Status() : Status(bad_value("units"));
  });
}

Status Catalog::Impl::load_lineages() {
  return scan_all(*store, Family::kLineages, [&](std::string_view key, std::string_view value) {
    const auto id = keys::u64_at(key, 0);
    const auto record = values::decode_record(value);
    const auto* opened = record ? record->body.AsLineageOpened() : nullptr;
    if (!id || opened == nullptr || !runs.contains(*id)) return Status(bad_value("lineages"));
    runs[*id].lineages[opened->lineage] = {opened->lineage, opened->parent, opened->fork_step};
    return Status();
  });
}

Status Catalog::apply(uint64_t sequence, const ckpt::fb::RecordT& record) {
  if (const auto* opened = record.body.AsStoreOpened()) {
    // Checked even for an old record: this detects a catalog that was copied from another store.
    const std::string id = ckpt::base::to_hex(ckpt::wire::from_fb(opened->store));
    if (!impl_->store_id.empty() && impl_->store_id != id) {
      return make_error(ErrorCode::kCorrupt, "catalog: belongs to store {}, the journal to {}",
                        impl_->store_id, id);
    }
  }
  if (sequence <= impl_->applied) return {};
  if (!impl_->store_closed) CKPT_TRY(impl_->health);
  CKPT_ASSIGN(Change change, impl_->fold(sequence, record));
  Status written;
  if (!impl_->store_closed) {
    CKPT_TRY(impl_->health);  // fold() reads the values that it changes
    written = impl_->store->write(change.batch);
    impl_->store_closed = !written.ok();
    if (!written.ok()) ++impl_->write_errors;
    impl_->health = written;
  }

  impl_->applied = sequence;
  if (const auto* opened = record.body.AsStoreOpened()) {
    impl_->store_id = ckpt::base::to_hex(ckpt::wire::from_fb(opened->store));
  }
  if (change.run) {
    const RunInfo& info = change.run->info;
    const ckpt::RunId id = info.id;
    if (info.removed_ns == 0) {
      impl_->run_by_name[info.name] = id;
    } else if (const auto named = impl_->run_by_name.find(info.name);
               named != impl_->run_by_name.end() && named->second == id) {
      impl_->run_by_name.erase(named);
    }
    impl_->runs[id] = std::move(*change.run);
  }
  return written;
}

std::vector<RunInfo> Catalog::runs() const { return impl_->infos(false); }
std::vector<RunInfo> Catalog::removed_runs() const { return impl_->infos(true); }

std::vector<RunInfo> Catalog::Impl::infos(bool removed) const {
  std::vector<RunInfo> infos;
  infos.reserve(runs.size());
  for (const auto& [id, run] : runs) {
    if ((run.info.removed_ns != 0) == removed) infos.push_back(run.info);
  }
  return infos;
}

Result<RunInfo> Catalog::run(std::string_view name) const {
  const auto found = impl_->run_by_name.find(name);
  if (found == impl_->run_by_name.end()) {
    return with_detail(make_error(ErrorCode::kNotFound, "run {}: no such run", name),
                       ckpt::ErrorDetail::kNoSuchRun);
  }
  return run(found->second);
}

Result<RunInfo> Catalog::run(ckpt::RunId id) const {
  const RunEntry* found = impl_->find(id);
  if (found == nullptr) return make_error(ErrorCode::kNotFound, "run number {}: no such run", id);
  return found->info;
}

Result<std::shared_ptr<const UnitSpecs>> Catalog::units(ckpt::RunId run) const {
  const RunEntry* found = impl_->find(run);
  if (found == nullptr) return make_error(ErrorCode::kNotFound, "run number {}: no such run", run);
  return found->units;
}

ckpt::UnitId Catalog::base_units(ckpt::RunId run) const {
  const RunEntry* found = impl_->find(run);
  return found == nullptr ? 0 : found->base_units;
}

Result<std::vector<Lineage>> Catalog::lineages(ckpt::RunId run) const {
  const RunEntry* found = impl_->find(run);
  if (found == nullptr) return make_error(ErrorCode::kNotFound, "run number {}: no such run", run);
  std::vector<Lineage> lineages;
  lineages.reserve(found->lineages.size());
  for (const auto& [id, lineage] : found->lineages) lineages.push_back(lineage);
  return lineages;
}

std::map<std::string, ViewPoint> Catalog::tags(ckpt::RunId run) const {
  std::map<std::string, ViewPoint> tags;
  impl_->scan(Family::kTags, keys::run(run), KvStore::Order::kAscending,
              [&](std::string_view, std::string_view value) {
                const auto record = values::decode_record(value);
                const auto* tagged = record ? record->body.AsTagged() : nullptr;
                if (tagged == nullptr) {
                  impl_->damaged(Family::kTags, "a tag");
                  return true;
                }
                tags[tagged->tag] = {tagged->lineage, tagged->step};
                return true;
              });
  return tags;
}

}  // namespace ckptd

#include "ckptd/history/history.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/io/store_paths.h"
#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;

History::History(Needs needs)
    : disk_(needs.disk),
      executor_(needs.executor),
      turn_(needs.turn),
      apply_turn_(needs.apply_turn),
      on_record_(std::move(needs.on_record)),
      keeper_(needs.disk, std::move(needs.open_catalog)) {}

void History::use(const RecoveredStore& store) {
  store_id_ = store.id;
  journal_file_ = store.journal;
  last_sequence_ = store.end.next_sequence - 1;
}

Result<bool> History::begin_journal(const RecoveredStore& store) {
  journal_ = std::make_unique<JournalWriter>(disk_, journal_file_, store.end);
  const auto opened_as = [this](uint32_t version, bool clean) {
    fb::StoreOpenedT opened;
    opened.store = ckpt::wire::to_fb(store_id_);
    opened.time_ns = turn_.wall_clock_ns();
    opened.format_version = version;
    opened.clean = clean;
    return make_record(std::move(opened));
  };
  const fb::RecordT record = opened_as(store.version, store.clean);
  const auto sequence = append_blocking(disk_, *journal_, {record});
  const bool full = !sequence.ok() && sequence.error().code == ErrorCode::kResourceExhausted;
  if (!sequence.ok() && !full) return sequence.error();
  if (full) {
    spdlog::warn("{}: journal full: this start will be recorded with the next write: {}",
                 kJournalPath, sequence.error().message);
  } else {
    apply(*sequence, record);
  }
  journal_->set_store_version(
      {.version = full ? 0 : store.version,
       .least = store.version,
       .make_record = [opened_as](uint32_t version) { return opened_as(version, false); },
       .on_raised = [this](uint64_t raised_at,
                           const fb::RecordT& raised) { apply(raised_at, raised); }});
  return !full;
}

Status History::record_blocking(const std::vector<fb::RecordT>& records) {
  CKPT_ASSIGN(uint64_t sequence, append_blocking(disk_, *journal_, records));
  for (const fb::RecordT& record : records) apply(sequence++, record);
  return {};
}

// Not while the store is being opened: startup applies step by step, and serves no clients.
void History::start_turns() {
  journal_->set_deliver([this](std::function<void()> callback) {
    waiting_.push_back(std::move(callback));
    if (at_once_) apply_durable();
  });
}

Result<std::optional<CommitInfo>> History::commit_at(const ckpt::SnapshotKey& key) {
  return read([&] { return Result(catalog_->commit(key.run, key.lineage, key.step)); });
}

HealCatalog History::healer() {
  return [this] { return heal(); };
}

std::string History::run_name(ckpt::RunId run) const {
  const auto info = catalog_->run(run);
  return info.ok() ? info->name : fmt::format("#{}", run);
}

JournalSource History::journal_source() const {
  return {.file = journal_file_, .durable_end = [this] { return journal_->durable_bytes(); }};
}

void History::record(std::vector<fb::RecordT> records, std::function<void(const Status&)> then) {
  // StoreClosed must stay the last record: later changes are for the next daemon.
  if (closing_) return then(make_error(ErrorCode::kUnavailable, "the daemon is shutting down"));
  append(std::move(records), std::move(then));
}

void History::record_last(fb::RecordT closed, std::function<void(const Status&)> then) {
  std::vector<fb::RecordT> records;
  records.push_back(std::move(closed));
  record(std::move(records), std::move(then));
  closing_ = true;
}

void History::append(std::vector<fb::RecordT> records, std::function<void(const Status&)> then) {
  auto kept = std::make_shared<std::vector<fb::RecordT>>(records);
  journal_->append(std::move(records),
                   [this, kept, then = std::move(then)](const Result<uint64_t>& first_sequence) {
                     if (!first_sequence.ok()) return then(first_sequence.error());
                     batch_ = {*first_sequence, kept, 0, then};
                   });
}

// The index follows the journal without gaps: records after one that the index could not take wait
// for heal().
void History::apply(uint64_t sequence, const fb::RecordT& record) {
  CKPT_ASSERT_MSG(sequence == last_sequence_ + 1,
                  fmt::format("record {} is applied after record {}", sequence, last_sequence_));
  last_sequence_ = sequence;
  catalog_->expect(last_sequence_);
  on_record_(record);
  if (catalog_->applied_sequence() + 1 != sequence) return;
  const Status applied = catalog_->apply(sequence, record);
  if (!applied.ok()) {
    spdlog::error("the catalog did not take journal record {}: {}", sequence,
                  applied.error().message);
  }
}

// Applies one record of the current batch, or runs the next callback.
void History::apply_next() {
  if (!batch_) {
    const std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    return next();
  }
  apply(batch_->first_sequence + batch_->applied, (*batch_->records)[batch_->applied]);
  if (++batch_->applied < batch_->records->size()) return;
  const std::function<void(const Status&)> then = std::move(batch_->then);
  batch_.reset();
  then({});
}

size_t History::apply_durable() {
  const std::chrono::nanoseconds begun = monotonic_time();
  size_t steps = 0;
  while (applies()) {
    apply_next();
    ++steps;
    if (!at_once_ && monotonic_time() - begun >= apply_turn_) break;
  }
  if (!applies() || turn_asked_) return steps;
  turn_asked_ = true;  // its completion wakes the loop up after other work
  executor_.run({}, [this] { turn_asked_ = false; });
  return steps;
}

void History::apply_at_once() {
  at_once_ = true;
  apply_durable();
}

void History::close() {
  if (journal_) disk_.close(journal_file_);
}

}  // namespace ckptd

// Applies durable journal records: folds them into the catalog, in journal order, and runs the
// callbacks that wait for them.
//
// Removing a large commit from the index takes as long as a trainer's step, and a prune has many.
// So each turn of the loop applies records for a limited time, at least one, and then other work
// runs. Meanwhile the catalog is the fold of a prefix of the records, perhaps up to the middle of a
// batch. Each record leaves the history consistent, and a prune removes the highest steps first, so
// listed commits stay intact. Later durable records queue up.
#include <spdlog/spdlog.h>

#include "ckptd/daemon_impl.h"

namespace ckptd {

namespace {

// The run that loses versions by this record: cached newest versions may be wrong.
std::optional<ckpt::RunId> run_of_loss(const fb::RecordT& record) {
  if (const auto* deleted = record.body.AsDeleted()) return deleted->run;
  if (const auto* removed = record.body.AsRunRemoved()) return removed->run;
  if (const auto* damaged = record.body.AsCommitDamaged()) return damaged->run;
  return std::nullopt;
}

bool makes_dead(fb::RecordBody type) {
  return type == fb::RecordBody::Deleted || type == fb::RecordBody::RunRemoved;
}

}  // namespace

// The index follows the journal without gaps: records after one that the index could not take wait
// for heal_catalog().
void Daemon::Impl::apply(uint64_t sequence, const fb::RecordT& record) {
  last_sequence = std::max(last_sequence, sequence);
  catalog->expect(last_sequence);
  if (makes_dead(record.body.type)) {
    gc_wanted = true;
    dead_records.look_again();
  }
  if (const auto run = run_of_loss(record)) newest_by_run.erase(*run);
  if (catalog->applied_sequence() + 1 != sequence) return;
  const Status applied = catalog->apply(sequence, record);
  if (!applied.ok()) {
    spdlog::error("the catalog did not take journal record {}: {}", sequence,
                  applied.error().message);
  }
}

// The commit of the step, of any epoch and attempt. An error must not be taken for "none".
Result<std::optional<CommitInfo>> Daemon::Impl::commit_at(const SnapshotKey& key) {
  return read([&] { return Result(catalog->commit(key.run, key.lineage, key.step)); });
}

HealCatalog Daemon::Impl::healer() {
  return [this] { return heal_catalog(); };
}

JournalSource Daemon::Impl::journal_source() const {
  return {.file = journal_file, .durable_end = [this] { return journal->durable_bytes(); }};
}

void Daemon::Impl::record(std::vector<fb::RecordT> records,
                          std::function<void(const Status&)> then) {
  // StoreClosed must stay the last record: later changes are for the next daemon.
  if (closing_record_sent) {
    return then(make_error(ErrorCode::kUnavailable, "the daemon is shutting down"));
  }
  auto kept = std::make_shared<std::vector<fb::RecordT>>(records);
  journal->append(std::move(records),
                  [this, kept, then = std::move(then)](const Result<uint64_t>& first_sequence) {
                    if (!first_sequence.ok()) return then(first_sequence.error());
                    durable.batch = {*first_sequence, kept, 0, then};
                  });
}

// Applies one record of the current batch, or runs the next callback.
void Daemon::Impl::apply_next() {
  if (!durable.batch) {
    const std::function<void()> next = std::move(durable.waiting.front());
    durable.waiting.pop_front();
    return next();
  }
  DurableBatch& batch = *durable.batch;
  apply(batch.first_sequence + batch.applied, (*batch.records)[batch.applied]);
  if (++batch.applied < batch.records->size()) return;
  const std::function<void(const Status&)> then = std::move(batch.then);
  durable.batch.reset();
  then({});
}

// Returns the number of steps.
size_t Daemon::Impl::apply_durable() {
  const std::chrono::nanoseconds begun = monotonic_time();
  size_t steps = 0;
  while (applies()) {
    apply_next();
    ++steps;
    if (!durable.at_once && monotonic_time() - begun >= options.apply_turn) break;
  }
  if (!applies() || durable.turn_asked) return steps;
  durable.turn_asked = true;  // its completion wakes the loop up after other work
  executor.run({}, [this] { durable.turn_asked = false; });
  return steps;
}

// Not while the store is being opened: startup applies step by step, and serves no clients.
void Daemon::Impl::start_turns() {
  journal->set_deliver([this](std::function<void()> told) {
    durable.waiting.push_back(std::move(told));
    if (durable.at_once) apply_durable();
  });
}

}  // namespace ckptd

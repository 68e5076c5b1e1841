// What is durable in the journal becomes true: folded into the catalog, in the order of the
// journal, and whoever waits for it is told.
//
// Taking a large commit out of the index takes as long as a trainer's step, and a prune has many.
// So each turn of the loop applies for a while, a record at least, and then it is the turn of
// others. Meanwhile the catalog is what the journal was a moment ago: the fold of its records up to
// one in the middle of a batch. Each of them leaves the history whole, and a prune takes out the
// highest steps first, so what is listed still is as it was. What is durable later queues behind.
#include <spdlog/spdlog.h>

#include "ckptd/daemon_impl.h"

namespace ckptd {

namespace {

// The run that loses versions by this record: what was known of its newest ones may be wrong.
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

// The index follows the journal without gaps: what comes after a record that it could not take
// waits for heal_catalog().
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

// The commit of the step, whatever snapshot it was made by. An error is not "none".
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
  // StoreClosed is the last word: what comes after it is for the next daemon.
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

// One record of the batch at hand, or what comes behind it in the journal.
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

// Returns how many steps it took.
size_t Daemon::Impl::apply_durable() {
  const std::chrono::nanoseconds begun = monotonic_time();
  size_t steps = 0;
  while (applies()) {
    apply_next();
    ++steps;
    if (!durable.at_once && monotonic_time() - begun >= options.apply_turn) break;
  }
  if (!applies() || durable.turn_asked) return steps;
  durable.turn_asked = true;  // its end wakes the loop up, once others had their turn
  executor.run({}, [this] { durable.turn_asked = false; });
  return steps;
}

// Not while the store is being opened: that is done step by step, and nobody is served.
void Daemon::Impl::start_turns() {
  journal->set_deliver([this](std::function<void()> told) {
    durable.waiting.push_back(std::move(told));
    if (durable.at_once) apply_durable();
  });
}

}  // namespace ckptd

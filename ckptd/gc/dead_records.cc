#include "ckptd/gc/dead_records.h"

#include <utility>

namespace ckptd {

bool DeadRecords::see(const Catalog& catalog, uint64_t next_reader, size_t records_max) {
  if (!unseen_) return true;
  std::set<ckpt::RunId> runs;
  for (const RunInfo& run : catalog.runs()) runs.insert(run.id);
  for (const RunInfo& run : catalog.removed_runs()) runs.insert(run.id);
  for (auto run = runs.lower_bound(at_run_); run != runs.end(); ++run) {
    bool stopped = false;
    uint64_t& seen = seen_[*run];
    catalog.visit_dead_space(*run, seen + 1, [&](const DeadSpace& dead) {
      stopped = records_max == 0;
      if (stopped) return false;
      --records_max;
      seen = dead.sequence;
      add(*run, dead, next_reader);
      return true;
    });
    at_run_ = *run;
    if (stopped) return false;
  }
  unseen_ = false;
  return true;
}

void DeadRecords::add(ckpt::RunId run, const DeadSpace& dead, uint64_t next_reader) {
  Record record{.run = run, .sequence = dead.sequence, .segments = {}};
  for (const SpaceRange& range : dead.ranges) record.segments.insert(range.segment);
  for (const ckpt::SegmentId segment : record.segments) ++reads_[segment];
  const uint64_t barrier = barriers_.try_emplace(dead.sequence, next_reader).first->second;
  waiting_.emplace(barrier, std::move(record));
}

void DeadRecords::make_ready(Record record) {
  for (const ckpt::SegmentId segment : record.segments) {
    const auto read = reads_.find(segment);
    if (--read->second == 0) reads_.erase(read);
  }
  ready_.emplace_back(record.run, record.sequence);
  candidates_.merge(record.segments);
}

DeadRecords::Round DeadRecords::take(const Catalog& catalog, uint64_t oldest_reader,
                                     size_t tasks_max) {
  CKPT_ASSERT_MSG(!unseen_, "a round before everything is seen");
  while (!waiting_.empty() && waiting_.begin()->first <= oldest_reader) {
    make_ready(std::move(waiting_.extract(waiting_.begin()).mapped()));
  }
  Round round;
  round.candidates = std::exchange(candidates_, {});
  while (!ready_.empty() && round.tasks.size() < tasks_max) {
    const auto [run, sequence] = ready_.front();
    ready_.pop_front();
    auto dead = catalog.dead_space(run, sequence);
    if (dead) round.tasks.push_back({run, std::move(*dead)});
  }
  return round;
}

void DeadRecords::forget() {
  rescan();
  seen_.clear();
  waiting_.clear();
  reads_.clear();
  ready_.clear();
  candidates_.clear();
}

}  // namespace ckptd

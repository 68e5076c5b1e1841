#include "ckptd/gc/gc.h"

#include <algorithm>
#include <utility>

#include "ckptd/io/store_paths.h"
#include "ckptd/limits.h"

namespace ckptd {

using ckpt::ErrorCode;

Gc::Gc(Disk& disk, Executor& executor, SegmentReader& segments)
    : disk_(disk), executor_(executor), segments_(segments) {}

Gc::~Gc() { CKPT_ASSERT_MSG(!busy(), "space was being given back when its owner went"); }

void Gc::start(std::vector<GcTask> tasks, const std::set<ckpt::SegmentId>& removable,
               std::function<void(GcOutcome)> on_done) {
  CKPT_ASSERT_MSG(!busy(), "two rounds at once");
  tasks_ = std::move(tasks);
  on_done_ = std::move(on_done);
  outcome_ = {};
  failed_.clear();
  to_punch_.clear();
  for (const GcTask& task : tasks_) {
    for (const SpaceRange& range : task.dead.ranges) to_punch_[range.segment].push_back(range);
  }
  remove_files(removable);
  executor_.run([] {}, [this] { next_segment(); });
}

void Gc::remove_files(const std::set<ckpt::SegmentId>& removable) {
  std::vector<ckpt::SegmentId> removed;
  removed.reserve(removable.size());
  for (const ckpt::SegmentId segment : removable) {
    if (!segments_.close(segment)) {
      outcome_.still_read.insert(segment);
      continue;
    }
    const Status status = disk_.remove(segment_path(segment));
    const bool gone = status.ok() || status.error().code == ErrorCode::kNotFound;
    if (!gone) {
      fail(segment, status.error());
    } else {
      removed.push_back(segment);
    }
  }
  if (removed.empty()) return;
  const Status synced = disk_.sync_directory(kSegmentsDirectory);
  for (const ckpt::SegmentId segment : removed) {
    const auto ranges = to_punch_.extract(segment);
    if (!synced.ok()) {
      fail(segment, synced.error());
      continue;
    }
    ++outcome_.segments_removed;
    if (ranges.empty()) continue;
    for (const SpaceRange& range : ranges.mapped()) outcome_.bytes += range.bytes;
  }
}

void Gc::next_segment() {
  std::erase_if(to_punch_, [this](const auto& entry) { return failed_.contains(entry.first); });
  if (to_punch_.empty()) {
    finish();
    return;
  }
  auto first = to_punch_.extract(to_punch_.begin());
  at_ = {};
  at_.segment = first.key();
  at_.ranges = std::move(first.mapped());
  segments_.open(at_.segment, [this](const Result<SegmentHandle>& handle) { opened(handle); });
}

void Gc::opened(const Result<SegmentHandle>& handle) {
  if (handle.ok()) {
    at_.file = *handle;
    punch_more();
    return;
  }
  // A missing file has freed everything: an earlier round was interrupted.
  if (handle.error().code != ErrorCode::kNotFound) at_.failed = handle.error();
  segment_done();
}

void Gc::punch_more() {
  while (at_.next < at_.ranges.size() && at_.in_flight < limits::kPunchesInFlightMax) {
    const SpaceRange range = at_.ranges[at_.next++];
    ++at_.in_flight;
    disk_.submit(
        {.op = IoOp::kPunch,
         .file = *at_.file,
         .offset = range.offset,
         .bytes = range.bytes,
         .on_done = [this, range](const Result<uint64_t>& result) { punched(range, result); }});
  }
}

void Gc::punched(const SpaceRange& range, const Result<uint64_t>& result) {
  --at_.in_flight;
  if (result.ok()) {
    outcome_.bytes += range.bytes;
  } else if (!at_.failed) {
    at_.failed = result.error();
    at_.next = at_.ranges.size();
  }
  punch_more();
  if (at_.in_flight > 0) return;
  if (at_.failed) {
    segment_done();
  } else {
    sync();
  }
}

// Sync before the space is recorded as reclaimed: a crash must not restore the bytes unnoticed.
void Gc::sync() {
  disk_.submit(
      {.op = IoOp::kSync, .file = *at_.file, .on_done = [this](const Result<uint64_t>& result) {
         if (!result.ok()) at_.failed = result.error();
         segment_done();
       }});
}

void Gc::segment_done() {
  if (at_.failed) fail(at_.segment, *at_.failed);
  at_ = {};
  // From the loop, so that many segments cause no deep recursion.
  executor_.run([] {}, [this] { next_segment(); });
}

void Gc::fail(ckpt::SegmentId segment, const ckpt::Error& error) {
  failed_.insert(segment);
  if (!outcome_.failed) outcome_.failed = error;
}

void Gc::finish() {
  for (const GcTask& task : tasks_) {
    const bool whole =
        std::none_of(task.dead.ranges.begin(), task.dead.ranges.end(),
                     [this](const SpaceRange& range) { return failed_.contains(range.segment); });
    if (whole) outcome_.freed.emplace_back(task.run, task.dead.sequence);
  }
  tasks_.clear();
  const auto on_done = std::exchange(on_done_, nullptr);
  on_done(std::move(outcome_));
}

}  // namespace ckptd

#include "ckptd/observe/snapshot_timings.h"

#include <algorithm>
#include <utility>

#include "ckptd/limits.h"

namespace ckptd {

namespace {

double seconds_of(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace

void SnapshotTimer::member_reported(const ckpt::SnapshotTimings& member) {
  constexpr auto kMost =
      static_cast<uint64_t>(std::chrono::nanoseconds(limits::kClientTimingMax).count());
  for (const ckpt::SnapshotPart& part : std::span(ckpt::kSnapshotParts).first(ckpt::kClientParts)) {
    uint64_t& kept = timings_.*part.ns;
    kept = std::max(kept, std::min(member.*part.ns, kMost));
  }
}

uint64_t SnapshotTimer::next_part(Time now) {
  const Time since = std::exchange(part_since_, now);
  if (!staged_ || now < since) return 0;
  return static_cast<uint64_t>((now - since).count());
}

void SnapshotTimer::staged(Time now) {
  staged_ = true;
  part_since_ = now;
}

void SnapshotTimer::written(Time now) { timings_.write_ns = next_part(now); }
void SnapshotTimer::synced(Time now) { timings_.sync_ns = next_part(now); }
void SnapshotTimer::recorded(Time now) { timings_.journal_ns = next_part(now); }

void LateRank::sealed(ckpt::Rank rank, Time now) {
  if (last_ && *last_ != rank) others_at_ = last_at_;
  last_ = rank;
  last_at_ = now;
}

void Histogram::add(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_.at(static_cast<size_t>(bound - kBounds.begin()));
  sum_ += seconds;
}

void SnapshotHistograms::add(const ckpt::SnapshotTimings& timings) {
  const auto is_reported = [&timings](const ckpt::SnapshotPart& part) {
    return timings.*part.ns > 0;
  };
  const bool client = std::any_of(ckpt::kSnapshotParts.begin(),
                                  ckpt::kSnapshotParts.begin() + ckpt::kClientParts, is_reported);
  for (size_t i = client ? 0 : ckpt::kClientParts; i < parts_.size(); ++i) {
    parts_[i].add(seconds_of(timings.*ckpt::kSnapshotParts[i].ns));
  }
}

}  // namespace ckptd

// Timings of snapshots as the daemon sees them, and their histograms. Pure: callers pass the time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "formats/base/ids.h"
#include "formats/base/snapshot_timings.h"

namespace ckptd {

// SnapshotTimer: the timings of one open snapshot. A snapshot of several ranks has the longest of
// any member for each part that clients measure; the daemon's own parts are of the whole snapshot.
// Times are of one monotonic clock with any origin.
class SnapshotTimer {
 public:
  using Time = std::chrono::nanoseconds;

  // A member's parts so far; those of the daemon are ignored. Absurd values are capped, since any
  // client can send them.
  void member_reported(const ckpt::SnapshotTimings& member);
  // Four moments, in this order. A snapshot that skips one has 0 for the parts beside it.
  void staged(Time now);    // the last slab of any member was sealed
  void written(Time now);   // the last extent is written and checked
  void synced(Time now);    // its segments are on the disk
  void recorded(Time now);  // its record is in the journal

  const ckpt::SnapshotTimings& timings() const { return timings_; }

 private:
  // Starts the next part at `now`, and returns the length of the one that ends.
  uint64_t next_part(Time now);

  ckpt::SnapshotTimings timings_;
  bool staged_ = false;
  Time part_since_{};  // since staged()
};

// LateRank: for how long a snapshot has waited for its last rank alone.
class LateRank {
 public:
  using Time = std::chrono::nanoseconds;

  // A rank has sealed a slab; times ascend.
  void sealed(ckpt::Rank rank, Time now);
  // The rank that sealed last; nullopt: none has sealed.
  std::optional<ckpt::Rank> last() const { return last_; }
  // From the last seal of all other ranks to that of the last rank; 0: there are no others.
  Time late() const { return others_at_ ? last_at_ - *others_at_ : Time{}; }

 private:
  std::optional<ckpt::Rank> last_;
  Time last_at_{};
  std::optional<Time> others_at_;
};

// Histogram: counts of durations by fixed bounds, as Prometheus has it.
class Histogram {
 public:
  // Seconds, ascending. A duration counts for the smallest bound that is not below it.
  static constexpr std::array kBounds{0.001, 0.003, 0.01, 0.03, 0.1,  0.3,
                                      1.0,   3.0,   10.0, 30.0, 100.0};

  void add(double seconds);
  std::span<const uint64_t> counts() const { return counts_; }  // the last one: beyond all bounds
  double sum() const { return sum_; }

 private:
  std::array<uint64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

// One histogram for each part of the snapshots that became durable, in the order of kSnapshotParts.
class SnapshotHistograms {
 public:
  // Parts of clients count only if a client measured them.
  void add(const ckpt::SnapshotTimings& timings);
  const Histogram& of_part(size_t part) const { return parts_.at(part); }

 private:
  std::array<Histogram, ckpt::kSnapshotParts.size()> parts_;
};

}  // namespace ckptd

// HealthWatch: checks the parts of the daemon and updates Health and RunProgress; logs when a
// condition begins, changes its cause or ends. Loop thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ckptd/loop/turn.h"
#include "ckptd/observe/health.h"
#include "ckptd/observe/run_progress.h"
#include "ckptd/persist/disk_room.h"
#include "formats/base/result.h"

namespace ckptd {

class HealthWatch {
 public:
  // Commits that starts found damaged, and that are still there.
  struct Marked {
    uint64_t commits = 0;
    std::string newest;  // RUN~LINEAGE@STEP
    std::string reason;  // of the newest
  };
  // The current state of the parts.
  struct Inputs {
    Time now{};
    uint64_t now_ns = 0;  // wall clock
    std::optional<DiskShortage> shortage;
    ckpt::Status journal;
    ckpt::Status catalog;
    bool trainers_wait = false;  // for slabs, or for a snapshot of their run to be durable
    std::map<std::string, RunProgress::Waiting> waiting;  // sealed snapshots, by run
    bool disk_busy = false;
    uint64_t bytes_to_write = 0;
    double disk_bytes_per_second = 0;
    uint64_t damaged_units = 0;
    std::string missing_file;  // segment file that some of them need; empty: none is missing
    Marked marked;
    uint64_t unchecked_units = 0;  // in the running pass of scrub, or else in the last one
    std::string unchecked_reason;  // of the last unchecked unit
    std::optional<std::set<std::string>> trained;  // runs; unset: the catalog cannot tell
  };
  void update(const Inputs& inputs);
  // True at intervals: it is time for update().
  bool is_due(Time now);
  // True if no snapshot has found the disk full for so long that the last shortage must be dropped.
  bool shortage_is_old(Time now, uint64_t shortages);

  // A snapshot of the run failed: logs the first failure of each cause. `error` names run and step,
  // as clients see it.
  void snapshot_failed(const std::string& run, const ckpt::SnapshotKey& key,
                       const ckpt::Error& error, uint64_t now_ns);
  // A snapshot is durable. Logs if earlier ones of the run had failed.
  void snapshot_durable(const std::string& run, const RunProgress::Durable& commit);
  // The start has cut records of the journal that may have been durable: why, and what to do.
  void set_lost_end(std::string cause, std::string remedy);
  void run_removed(const std::string& run) { progress_.forget(run); }
  // Why no new client can connect, reported by the server; empty: clients can.
  void set_accept_fault(std::string fault) { accept_fault_ = std::move(fault); }

  const Health& health() const { return health_; }
  const RunProgress& progress() const { return progress_; }

 private:
  void report(Condition condition, std::optional<Fault> fault, uint64_t now_ns);
  std::optional<Fault> slow_disk(const Inputs& inputs);
  std::optional<Fault> failing_writes(Time now);
  std::optional<Fault> failing_snapshots() const;
  static std::optional<Fault> damaged_data(const Inputs& inputs);
  static std::optional<Fault> unchecked_data(const Inputs& inputs);

  // Snapshots of any run that failed by a disk error other than lack of space, since the last
  // durable snapshot.
  struct FailedWrites {
    uint64_t count = 0;   // failures between two updates count as one
    bool is_new = false;  // not counted yet
    Time seen_at{};       // time of the last count
    std::string cause, kind;
  };

  Health health_;
  RunProgress progress_;
  FailedWrites failed_writes_;
  std::optional<Time> waits_since_;
  Time next_update_{};
  std::string accept_fault_;
  Fault lost_end_;  // no cause: the start has lost nothing
  uint64_t shortages_seen_ = 0;
  Time shortage_since_{};
};

}  // namespace ckptd

// HealthWatch: looks at the parts of the daemon and keeps Health and RunProgress true; writes the
// lines of the log when a condition begins, changes its cause or ends. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ckptd/ingest/ingest.h"
#include "ckptd/observe/health.h"
#include "ckptd/observe/run_progress.h"
#include "ckptd/persist/disk_room.h"
#include "formats/base/result.h"

namespace ckptd {

class HealthWatch {
 public:
  // The parts as they are now.
  struct Look {
    Time now{};
    uint64_t now_ns = 0;  // wall clock
    std::optional<DiskShortage> shortage;
    ckpt::Status journal;
    ckpt::Status catalog;
    bool trainers_wait = false;  // for slabs, or for a snapshot of their run to be durable
    bool disk_busy = false;
    uint64_t bytes_to_write = 0;
    double disk_bytes_per_second = 0;
    uint64_t damaged_units = 0;
    std::function<bool(const std::string& run)> is_trained;
  };
  void look(const Look& look);
  // True once in a while: it is time for look().
  bool is_due(Time now);
  // True if no snapshot has found the disk full for so long that the last one is to be forgotten.
  bool shortage_is_old(Time now, uint64_t shortages);

  // A snapshot of the run failed: logs the first failure of each cause. `error` is named with run
  // and step, as clients get it.
  void snapshot_failed(const std::string& run, const ckpt::SnapshotKey& key,
                       const ckpt::Error& error, uint64_t now_ns);
  // A snapshot is durable. Logs if others of the run had failed before it.
  void snapshot_durable(const std::string& run, const RunProgress::Durable& commit);
  void run_removed(const std::string& run) { progress_.forget(run); }

  const Health& health() const { return health_; }
  const RunProgress& progress() const { return progress_; }

 private:
  void report(Condition condition, std::optional<Fault> fault, uint64_t now_ns);
  std::optional<Fault> slow_disk(const Look& look);
  std::optional<Fault> failing_snapshots(const Look& look);

  Health health_;
  RunProgress progress_;
  std::optional<Time> waits_since_;
  Time next_look_{};
  uint64_t shortages_seen_ = 0;
  Time shortage_since_{};
};

}  // namespace ckptd

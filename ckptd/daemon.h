// Daemon: connects the stages; the only class that knows all of them. Has no sockets and no
// threads: messages of sessions arrive through receive(), answers leave through Outbox, time
// arrives through tick(), completions through poll(). The server wraps it with Asio; the simulation
// drives it with an in-memory disk and virtual time. Code and order of events are the same in both.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "ckptd/catalog/kv_store.h"
#include "ckptd/codec/codec_choice.h"
#include "ckptd/ingest/ingest.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/io/io_shape.h"
#include "ckptd/limits.h"
#include "ckptd/persist/write_meter.h"
#include "ckptd/sessions/outbox.h"
#include "ckptd/staging/staging.h"
#include "formats/base/unique_fd.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

class Daemon {
 public:
  struct Options {
    Staging::Options staging;
    uint64_t segment_bytes = 1ull << 30;
    // Chooses the shape of writes; called once, before the disk is used by anything but recovery.
    std::function<IoShape()> find_io_shape = [] { return IoShape(); };
    uint64_t disk_reserve_bytes = 0;
    std::chrono::milliseconds snapshot_deadline{600'000};
    // Default policy of sessions for snapshots with alarms.
    ckpt::fb::AlarmPolicy alarms = ckpt::fb::AlarmPolicy::Off;
    // Default codec of writes, unless a trainer chooses one.
    CodecChoice codec = CodecChoice::kNone;
    // Clock for the disk's write rate. Loop thread.
    std::function<std::chrono::nanoseconds()> stopwatch = monotonic_time;
    // Minimum stretch of unchanged bytes for dedup.
    uint64_t dedup_bytes_min = limits::kDedupBytesMin;
    // Rate of background reads; 0: none. Time between passes; 0: none starts automatically.
    uint64_t scrub_bytes_per_second = 0;
    std::chrono::milliseconds scrub_interval{0};
    // Longest time for applying records before other work gets its turn; at least one per turn.
    std::chrono::milliseconds apply_turn = limits::kApplyTurn;
    // Whether this user gets a session. Null: every user does.
    std::function<bool(uid_t)> may_connect;
    std::function<uint64_t()> wall_clock_ns;  // for times in history
    uint64_t random_seed = 0;                 // 0: from the operating system
  };
  struct Parts {
    Disk& disk;
    Executor& executor;
    std::function<Result<OpenedKvStore>()> open_catalog;
    Outbox& outbox;
    MemoryKeeper* keeper = nullptr;  // keeps arenas over a daemon restart
  };
  // Recovers the store (lock, journal, torn tail, catalog replay), or creates it.
  static Result<std::unique_ptr<Daemon>> open(const Parts& parts, const Options& options);
  ~Daemon();  // asserts that shutdown has finished

  void connected(ckpt::SessionId session, uid_t uid, pid_t pid);
  void receive(ckpt::SessionId session, ckpt::fb::MessageT message, ckpt::base::UniqueFd fd);
  void disconnected(ckpt::SessionId session, const std::string& reason);

  // Runs completions of disk and executor; returns how many.
  size_t poll();
  void tick(Time now);

  // Clean drain: no new snapshots, open ones finish or are aborted by their deadline, then a
  // StoreClosed record. drained() then returns true.
  void begin_drain();
  bool drained() const;

  // Why no new client can connect, reported by the server; empty: clients can. Part of the health.
  void set_accept_fault(const std::string& fault);

  struct Answer {
    bool ok = false;
    std::string text;  // lines
  };
  // Conditions that impair the daemon, one per line; ok while the loop answers at all.
  Answer health_answer();
  // True if a trainer can save its state now. The text has the conditions, and the last durable
  // step and its age of the most recently changed runs.
  Answer readiness_answer();
  std::string metrics_text();  // Prometheus text format

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd

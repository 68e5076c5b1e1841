// Daemon: connects the stages; the only class that knows all of them. It has no sockets and no
// threads: sessions' messages come in through receive(), answers leave through Outbox, time comes
// in through tick(), completions through poll(). The server wraps it with Asio; the simulation
// drives it with an in-memory disk and virtual time. Same code, same order of events, both times.
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
#include "ckptd/staging/staging.h"
#include "formats/base/unique_fd.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

// Where answers go. Called from the loop thread only.
class Outbox {
 public:
  virtual ~Outbox() = default;
  // `fd`, if >= 0, travels with the message (SCM_RIGHTS) and stays owned by the daemon.
  virtual void send(ckpt::SessionId session, const ckpt::fb::MessageT& message, int fd) = 0;
  virtual void disconnect(ckpt::SessionId session, const std::string& reason) = 0;
};

class Daemon {
 public:
  struct Options {
    Staging::Options staging;
    uint64_t segment_bytes = 1ull << 30;
    // How payload is written; asked once, before anything else is done with the disk but recovery.
    std::function<IoShape()> find_io_shape = [] { return IoShape(); };
    uint64_t disk_reserve_bytes = 0;
    std::chrono::milliseconds snapshot_deadline{600'000};
    // Of sessions that do not say: what becomes of a snapshot in which something looks wrong.
    ckpt::fb::AlarmPolicy alarms = ckpt::fb::AlarmPolicy::Off;
    // Codec of units for which no trainer asks for one.
    CodecChoice codec = CodecChoice::kNone;
    // Clock for the disk's write rate. Loop thread.
    std::function<std::chrono::nanoseconds()> stopwatch = monotonic_time;
    // Of stretches that are not written again, because they did not change.
    uint64_t same_bytes_min = limits::kSameBytesMin;
    // Of background work; 0: none. From the end of a pass to the next; 0: none begins by itself.
    uint64_t scrub_bytes_per_second = 0;
    std::chrono::milliseconds scrub_interval{0};
    // How long records are applied before others have a turn; each time one at least.
    std::chrono::milliseconds apply_turn = limits::kApplyTurn;
    std::function<uint64_t()> wall_clock_ns;  // for the times in history
    uint64_t random_seed = 0;                 // 0: from the operating system
  };
  struct Parts {
    Disk& disk;
    Executor& executor;
    std::function<Result<OpenedKvStore>()> open_catalog;
    Outbox& outbox;
    MemoryKeeper* keeper = nullptr;  // of arenas, over a restart of the daemon
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

  // Clean drain: no new snapshots, open ones are finished or abandoned by their deadline, then a
  // StoreClosed record. drained() turns true.
  void begin_drain();
  bool drained() const;

  // Why no new client can connect, as the server finds it; empty: they can. Part of the health.
  void set_accept_fault(const std::string& fault);

  struct Answer {
    bool ok = false;
    std::string text;  // lines
  };
  // Conditions that hold the daemon up, one a line; ok while the loop answers at all.
  Answer health_answer();
  // Whether a trainer that comes now can save its state; with the conditions, and the last durable
  // step of the runs that changed last and its age.
  Answer readiness_answer();
  std::string metrics_text();  // Prometheus text format

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd

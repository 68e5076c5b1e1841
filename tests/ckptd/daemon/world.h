// World: a Daemon with an in-memory disk, an in-memory catalog, an inline executor and virtual
// time. A crash keeps the durable contents of the disk and of the catalog's store. All other state
// is lost.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "ckptd/catalog/kv_store.h"
#include "ckptd/daemon.h"
#include "ckptd/io/memory_disk.h"

namespace ckptd::testing {

// Messages sent to one session, in order, until the session takes them.
struct Inbox {
  std::deque<ckpt::fb::MessageT> messages;
  ckpt::base::UniqueFd arena;  // the last descriptor received
  std::string disconnected;    // the reason; empty while connected
};

class World : private Outbox {
 public:
  struct Options {
    uint64_t seed = 1;
    uint64_t arena_bytes_total = 64ull << 20;
    uint64_t segment_bytes = 4ull << 20;
    uint64_t disk_reserve_bytes = 1u << 20;  // for the journal on a full disk
    std::chrono::milliseconds snapshot_deadline{60'000};
    ckpt::fb::AlarmPolicy alarms = ckpt::fb::AlarmPolicy::Off;
    uint64_t scrub_bytes_per_second = 0;
    std::chrono::milliseconds scrub_interval{0};
    CodecChoice codec = CodecChoice::kNone;
    uint64_t dedup_bytes_min = 0;  // tests have small units
    std::function<std::chrono::nanoseconds()> stopwatch = monotonic_time;
    std::function<bool(uid_t)> may_connect;  // which users grants find allowed; null: all
    MemoryKeeper* keeper = nullptr;          // keeps arenas over kill_daemon() and stop()
  };
  explicit World(const Options& options);
  ~World() override;

  // Starts a daemon on the current store. `recovery`: how long recovery takes, by its clock.
  Status start(std::chrono::milliseconds recovery = {});
  // kill -9 of the daemon: the kernel keeps every write.
  void kill_daemon();
  // Loss of power. The catalog keeps a prefix of its batches, drawn from the seed.
  void lose_power();
  // Clean stop: drains and ends.
  void stop();

  // set_door: from the next start on the daemon gets `door`, which forwards to disk().
  // set_on_send: `on_send` sees each message before its session does.
  void set_door(Disk* door) { door_ = door; }
  void set_on_send(std::function<void(ckpt::SessionId, const ckpt::fb::MessageT&)> on_send) {
    on_send_ = std::move(on_send);
  }
  // Replaces the disk. Call before a start.
  void set_disk(std::unique_ptr<MemoryDisk> disk) { disk_ = std::move(disk); }
  // Sets the codec of daemons that are started from now on.
  void set_codec(CodecChoice codec) { options_.codec = codec; }

  // Runs completions until nothing is left to do.
  void run();
  void tick(std::chrono::milliseconds by);

  ckpt::SessionId connect(uid_t uid = 54'321);
  // Ends a session: its process died, or its connection did.
  void hang_up(ckpt::SessionId session, const std::string& reason);
  void deliver(ckpt::SessionId session, ckpt::fb::MessageT message,
               ckpt::base::UniqueFd fd = ckpt::base::UniqueFd());

  Inbox& inbox(ckpt::SessionId session) { return inboxes_[session]; }
  Daemon& daemon() { return *daemon_; }
  MemoryDisk& disk() { return *disk_; }
  MemoryKvImage& catalog() { return *kv_; }
  void lose_catalog() { kv_ = std::make_shared<MemoryKvImage>(); }
  // The catalog's store. Replace it only before a start.
  std::shared_ptr<MemoryKvImage> catalog_image() { return kv_; }
  void set_catalog(std::shared_ptr<MemoryKvImage> image) { kv_ = std::move(image); }
  bool up() const { return daemon_ != nullptr; }
  // A served metric, with its labels in the name. NaN, equal to no number, if it is not served.
  double metric(const std::string& name);

 private:
  void send(ckpt::SessionId session, const ckpt::fb::MessageT& message, int fd) override;
  void disconnect(ckpt::SessionId session, const std::string& reason) override;

  Options options_;
  uint64_t next_seed_;
  std::unique_ptr<MemoryDisk> disk_;
  Disk* door_ = nullptr;
  std::function<void(ckpt::SessionId, const ckpt::fb::MessageT&)> on_send_;
  std::shared_ptr<MemoryKvImage> kv_ = std::make_shared<MemoryKvImage>();
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Daemon> daemon_;
  ckpt::SessionId next_session_ = 1;
  Time now_{};
  uint64_t wall_clock_ns_ = 1'700'000'000'000'000'000;
  std::map<ckpt::SessionId, Inbox> inboxes_;
  std::map<ckpt::SessionId, std::string> to_disconnect_;
};

}  // namespace ckptd::testing

#include "tests/ckptd/daemon/world.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <limits>

#include "formats/wire/frame.h"

namespace ckptd::testing {

World::World(const Options& options)
    : options_(options),
      next_seed_(options.seed),
      disk_(std::make_unique<MemoryDisk>(MemoryDisk::Options{.seed = options.seed})) {
  spdlog::set_level(spdlog::level::off);  // failures are provoked by the hundred
}

World::~World() { daemon_.reset(); }

Status World::start(std::chrono::milliseconds recovery) {
  executor_ = make_inline_executor();
  now_ = recovery;
  Daemon::Options options;
  options.staging.arena_bytes_total = options_.arena_bytes_total;
  options.segment_bytes = options_.segment_bytes;
  options.disk_reserve_bytes = options_.disk_reserve_bytes;
  options.snapshot_deadline = options_.snapshot_deadline;
  options.alarms = options_.alarms;
  options.codec = options_.codec;
  options.dedup_bytes_min = options_.dedup_bytes_min;
  options.stopwatch = options_.stopwatch;
  options.scrub_bytes_per_second = options_.scrub_bytes_per_second;
  options.scrub_interval = options_.scrub_interval;
  options.may_connect = options_.may_connect;
  options.wall_clock_ns = [this] { return wall_clock_ns_; };
  options.random_seed = ++next_seed_;
  options.apply_turn = {};  // a record a turn
  const auto open_catalog = [kv = kv_]() -> Result<OpenedKvStore> {
    CKPT_TRY(kv->open());
    return OpenedKvStore{.store = make_memory_store(kv), .broken = {}};
  };
  Disk& disk = door_ == nullptr ? *disk_ : *door_;
  CKPT_ASSIGN(daemon_,
              Daemon::open({disk, *executor_, open_catalog, *this, options_.keeper}, options));
  tick({});
  return {};
}

void World::kill_daemon() {
  auto survived = disk_->after_kill(++next_seed_);
  const size_t batches = kv_->batches();
  daemon_.reset();  // finishes on the old disk, which is discarded
  disk_ = std::move(survived);
  kv_->keep_prefix(batches);
  inboxes_.clear();
  to_disconnect_.clear();
}

void World::lose_power() {
  auto survived = disk_->crash(++next_seed_);
  const size_t batches = kv_->batches();
  daemon_.reset();
  disk_ = std::move(survived);
  kv_->keep_prefix(batches == 0 ? 0 : next_seed_ * 7919 % (batches + 1));
  inboxes_.clear();
  to_disconnect_.clear();
}

void World::stop() {
  daemon_->begin_drain();
  for (int i = 0; i < 100'000 && !daemon_->drained(); ++i) {
    if (daemon_->poll() == 0) tick(std::chrono::milliseconds(100));
  }
  ASSERT_TRUE(daemon_->drained());
  daemon_.reset();
  inboxes_.clear();
}

void World::run() {
  for (int i = 0; i < 1'000'000; ++i) {
    if (!up()) return;
    const bool ran = daemon_->poll() > 0;
    for (const auto& [session, reason] : std::exchange(to_disconnect_, {})) {
      daemon_->disconnected(session, reason);
    }
    if (!ran && disk_->in_flight() == 0 && executor_->outstanding() == 0) return;
  }
  FAIL() << "the daemon does not come to rest";
}

void World::tick(std::chrono::milliseconds by) {
  now_ += by;
  wall_clock_ns_ += static_cast<uint64_t>(Time(by).count());
  daemon_->tick(now_);
}

double World::metric(const std::string& name) {
  const std::string text = daemon().metrics_text();
  const size_t at = text.find("\n" + name + " ");
  if (at == std::string::npos) return std::numeric_limits<double>::quiet_NaN();
  return std::stod(text.substr(at + name.size() + 2));
}

ckpt::SessionId World::connect(uid_t uid) {
  const ckpt::SessionId session = next_session_++;
  inboxes_[session];
  daemon_->connected(session, uid, 1);
  return session;
}

void World::hang_up(ckpt::SessionId session, const std::string& reason) {
  daemon_->disconnected(session, reason);
  inboxes_.erase(session);
}

void World::deliver(ckpt::SessionId session, ckpt::fb::MessageT message, ckpt::base::UniqueFd fd) {
  daemon_->receive(session, std::move(message), std::move(fd));
}

void World::send(ckpt::SessionId session, const ckpt::fb::MessageT& message, int fd) {
  const auto frame = ckpt::wire::try_encode(message);
  EXPECT_TRUE(frame.ok()) << "every answer has a bound: " << frame.error().message;
  if (on_send_) on_send_(session, message);
  Inbox& inbox = inboxes_[session];
  inbox.messages.push_back(message);
  if (fd >= 0) inbox.arena = ckpt::base::UniqueFd(::dup(fd));
}

void World::disconnect(ckpt::SessionId session, const std::string& reason) {
  inboxes_[session].disconnected = reason;
  to_disconnect_[session] = reason;
}

}  // namespace ckptd::testing

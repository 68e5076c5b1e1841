// Faults of a simulation: of the disk, of its free space, of the daemon's starts.
#include <gmock/gmock.h>

#include "tests/simulation/simulation.h"
#include "tests/simulation/watched_disk.h"

namespace ckptd::testing {

namespace {

constexpr uint64_t kRoom = 16ull << 30;

// The error of a refused start must name the journal or a segment.
void expect_names_its_object(const std::string& refusal) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal, ::testing::AnyOf(HasSubstr("journal"), HasSubstr("segment")));
}

}  // namespace

Status Simulation::start_daemon() {
  if (options_.deltas) {
    const CodecChoice others[] = {CodecChoice::kNone, CodecChoice::kZstd};
    world_.set_codec(chance(75) ? CodecChoice::kDelta : others[pick(2)]);
  }
  return world_.start();
}

void Simulation::stop_daemon(uint64_t way) {
  // Stops in the middle of some work, usually of a commit.
  if (chance(50)) {
    fill_some();
    for (uint64_t polls = pick(16); polls > 0; --polls) world_.daemon().poll();
    listen();
  }
  if (way == 1) {
    world_.stop();
  } else if (way == 0) {
    world_.lose_power();
  } else {
    world_.kill_daemon();
  }
}

// Kills the daemon, or cuts the power, between two changes that its recovery makes. The recovery
// then goes on, on a disk that is discarded.
bool Simulation::die_while_starting(bool* power) {
  const bool cut = chance(50);
  const uint64_t seed = random_();
  uint64_t calls_left = 1 + pick(24);
  std::unique_ptr<MemoryDisk> left;
  size_t batches = 0;
  const auto die = [&] {
    left = cut ? world_.disk().crash(seed) : world_.disk().after_kill(seed);
    batches = world_.catalog().batches();
  };
  WatchedDisk door(world_.disk(), [&] {
    if (left == nullptr && --calls_left == 0) die();
  });
  world_.set_door(&door);
  const Status started = start_daemon();
  EXPECT_TRUE(started.ok()) << started.error().message;
  if (left == nullptr) die();  // at the very end of the recovery
  world_.kill_daemon();
  world_.set_door(nullptr);
  world_.set_disk(std::move(left));
  world_.catalog().keep_prefix(cut ? seed % (batches + 1) : batches);
  *power = *power || cut;
  return false;
}

bool Simulation::start_badly(bool* power) {
  ++bad_starts_;
  if (chance(50)) return die_while_starting(power);
  MemoryFaults faults;
  faults.path_prefix = chance(70) ? "journal/" : "segments/";
  uint64_t* const kinds[] = {&faults.fail_nth_read, &faults.fail_nth_write, &faults.fail_nth_sync,
                             &faults.full_nth_write};
  // A start reads the ends of all segments before the headers of the commits that it replays.
  const uint64_t calls = faults.path_prefix == "segments/" ? 20 : 3;
  *kinds[pick(std::size(kinds))] = 1 + pick(calls);
  faults.short_write = chance(30) ? 0.5 : 0;
  world_.disk().set_faults(faults);
  const Status started = start_daemon();
  world_.disk().set_faults({});
  if (!started.ok()) expect_names_its_object(started.error().message);
  return started.ok();
}

void Simulation::restart_daemon() {
  if (options_.disk_faults) world_.disk().set_faults({});
  const uint64_t way = pick(4);
  stop_daemon(way);
  bool power = way == 0;
  bool up = false;
  while (options_.bad_starts && !full_ && !up && chance(60)) up = start_badly(&power);
  if (!up) {
    Status started = start_daemon();
    if (!started.ok() && full_) {
      ++refused_;
      expect_names_its_object(started.error().message);
      EXPECT_EQ(started.error().code, ckpt::ErrorCode::kResourceExhausted)
          << started.error().message;
      full_ = false;
      world_.disk().set_capacity(kRoom);
      world_.disk().set_faults({});
      started = start_daemon();
    }
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  for (auto& rank : job_.ranks) {
    if (rank == nullptr) continue;
    if (power || chance(5)) {
      rank = nullptr;  // the machine lost power, or the trainer died meanwhile
    } else if (!rank->reconnect()) {
      rank->error();
      rank = nullptr;
    }
  }
}

void Simulation::break_the_disk() {
  MemoryFaults faults;
  if (options_.silent_faults) {
    // Faults of payloads and their headers. SalvageTest has the faults of the journal.
    faults.path_prefix = "segments/";
    double* const kinds[] = {&faults.flipped_write, &faults.misdirected_write, &faults.lost_write,
                             &faults.torn_write};
    *kinds[pick(std::size(kinds))] = 0.1;
    world_.disk().set_faults(faults);
    return;
  }
  faults.path_prefix = chance(80) ? "segments/" : "journal/";
  (chance(50) ? faults.fail_nth_write : faults.fail_nth_sync) = 1 + pick(4);
  world_.disk().set_faults(faults);
}

// Others fill the disk to the last byte, or leave room for a few snapshots, or one write fails.
void Simulation::fill_the_disk() {
  full_ = true;
  const Disk::Space space = world_.disk().space().value();
  const uint64_t used = space.total_bytes - space.free_bytes;
  switch (pick(4)) {
    case 0:
      world_.disk().set_capacity(0);
      break;
    case 1:
      world_.disk().set_capacity(used + pick(1u << 20));
      break;
    case 2:
      world_.disk().set_capacity(used + (1u << 20) + pick(2u << 20));
      break;
    default:
      MemoryFaults faults;
      const char* const prefixes[] = {"", "segments/", "journal/"};
      faults.path_prefix = prefixes[pick(std::size(prefixes))];
      faults.full_nth_write = 1 + pick(6);
      faults.short_write = 0.3;
      world_.disk().set_faults(faults);
  }
}

// After any refusals training goes on without a restart of any process.
void Simulation::clear_disk_full() {
  full_ = false;
  world_.disk().set_capacity(kRoom);
  world_.disk().set_faults({});
  // Exception: an error of the journal other than a full disk has closed the journal.
  const bool closed =
      world_.daemon().metrics_text().find("ckptd_journal_open 0") != std::string::npos;
  if (options_.disk_faults && closed) restart_daemon();
  // Snapshots that wait in vain for a rank hold slabs until their deadline, and so do later
  // snapshots that wait for these slabs.
  const bool waited = chance(50);
  for (int rounds = waited ? 8 : 0; rounds > 0; --rounds) {
    world_.run();
    world_.tick(std::chrono::seconds(61));
  }
  world_.run();
  listen();
  if (::testing::Test::HasFailure()) return;
  if (!waited || !group_complete()) form_group();
  if (::testing::Test::HasFailure()) return;
  save_whole();
}

}  // namespace ckptd::testing

// Kill -9 of a real ckptd at random moments while trainers save all the time, over and over, on the
// same store. The oracle is the list of snapshots that were announced to a trainer.
//
// CKPT_KILL_ROUNDS and CKPT_KILL_SEED choose how many kills and their moments. A seed does not
// repeat the scheduling of the machine.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "tests/client/trainers.h"

namespace ckpt::test {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kRoundsOfAStore = 25;
constexpr size_t kSnapshotsInFlight = 3;
constexpr std::chrono::minutes kPatience(2);

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Number of durable snapshots of all trainers together.
class Announcements {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  // Waits for `more` announcements after this call. False after a timeout.
  bool wait_for(size_t more) {
    std::unique_lock lock(mutex_);
    const size_t wanted = count_ + more;
    return changed_.wait_for(lock, kPatience, [&] { return count_ >= wanted; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t count_ = 0;
};

// Trainer that saves without a pause until stop(), and records the steps announced durable.
class TirelessTrainer {
 public:
  TirelessTrainer(const DaemonProcess& daemon, SmallRun run, uint64_t seed,
                  Announcements& announcements)
      : daemon_(daemon),
        run_(std::move(run)),
        random_(seed),
        announcements_(announcements),
        thread_([this] { train(); }) {}
  ~TirelessTrainer() { stop(); }
  void stop() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const SmallRun& run() const { return run_; }
  std::set<uint64_t> announced() const {
    const std::lock_guard lock(mutex_);
    return announced_;
  }

 private:
  void train() {
    auto session = open_trainer(daemon_, run_);
    ASSERT_OK(session);
    ASSERT_OK(session->join(as_rank(0, 1)));
    std::deque<std::pair<uint64_t, client::Snapshot>> under_way;
    for (uint64_t step = 1; !over_ || !under_way.empty(); ++step) {
      if (!over_) {
        const auto plan = run_.plan(step, 1);
        auto snapshot = session->begin(plan);
        const bool saved =
            snapshot && write_share(*snapshot, run_, plan, 0).ok() && snapshot->end().ok();
        if (saved) under_way.emplace_back(step, std::move(*snapshot));
      }
      const size_t most = over_ ? 0 : random_() % (kSnapshotsInFlight + 1);
      while (under_way.size() > most) {
        if (under_way.front().second.wait(CKPT_LEVEL_DURABLE, 60'000)) {
          {
            const std::lock_guard lock(mutex_);
            announced_.insert(under_way.front().first);
          }
          announcements_.add();
        }
        under_way.pop_front();
      }
    }
    ASSERT_OK(session->leave());
  }

  const DaemonProcess& daemon_;
  const SmallRun run_;
  std::mt19937_64 random_;
  Announcements& announcements_;
  std::atomic<bool> over_ = false;
  mutable std::mutex mutex_;
  std::set<uint64_t> announced_;
  std::thread thread_;  // the last one: it uses the others
};

class KillRounds : public testing::Test {
 protected:
  Finished ctl(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), program("ckptctl"));
    return run_program(arguments, {"CKPTD_SOCKET=unix:" + daemon_->socket()});
  }
  std::set<uint64_t> listed(const SmallRun& run) const {
    const Finished finished = ctl({"log", run.name, "--json"});
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    std::set<uint64_t> steps;
    for (const Json& commit : Json::parse(finished.out, nullptr, false)) {
      EXPECT_EQ(commit.value("level", ""), "durable") << commit;
      steps.insert(commit.value("step", uint64_t{0}));
    }
    return steps;
  }
  // All commits announced so far are listed, and the newest of them restores to its state.
  void expect_kept(const SmallRun& run, const std::set<uint64_t>& announced) const {
    if (announced.empty()) return;
    const std::set<uint64_t> steps = listed(run);
    for (const uint64_t step : announced) {
      EXPECT_TRUE(steps.contains(step)) << run.name << " step " << step << " is lost";
    }
    auto reader = open_trainer(*daemon_, run);
    ASSERT_OK(reader);
    expect_state(*reader, run, *announced.rbegin());
  }
  // Every listed commit is whole, whether it was announced or not.
  void expect_whole(const SmallRun& run) const {
    auto reader = open_trainer(*daemon_, run);
    ASSERT_OK(reader);
    for (const uint64_t step : listed(run)) expect_state(*reader, run, step);
  }

  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(KillRounds, AnnouncedSnapshotsSurviveRandomKills) {
  const uint64_t rounds = from_environment("CKPT_KILL_ROUNDS", kRoundsOfAStore);
  const uint64_t seed = from_environment("CKPT_KILL_SEED", 1);
  std::cout << "CKPT_KILL_SEED=" << seed << std::endl;
  std::mt19937_64 random(seed);
  size_t announced = 0;
  for (uint64_t round = 0; round < rounds && !HasFailure(); round += kRoundsOfAStore) {
    daemon_ = std::make_unique<DaemonProcess>(std::vector<std::string>{"--arena", "64MiB"});
    Announcements announcements;
    TirelessTrainer large(*daemon_, {.name = "large"}, random(), announcements);
    TirelessTrainer small(*daemon_, {.name = "small", .unit_bytes = {3'000, 70'000, 5}}, random(),
                          announcements);
    for (uint64_t kill = 0; kill < std::min(kRoundsOfAStore, rounds - round); ++kill) {
      // At every third kill the trainers are known to be saving, however slow the machine. The
      // other kills may also hit reconnects and the recovery of ckptd.
      if (kill % 3 == 0) {
        ASSERT_TRUE(announcements.wait_for(1 + random() % 3)) << "nothing is saved any more";
      }
      // The moment is the point of the test.
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
      const auto of_large = large.announced();
      const auto of_small = small.announced();
      daemon_->crash_and_restart();
      expect_kept(large.run(), of_large);
      expect_kept(small.run(), of_small);
      if (HasFailure()) FAIL() << "in round " << round + kill;
    }
    large.stop();
    small.stop();
    for (const TirelessTrainer* trainer : {&large, &small}) {
      announced += trainer->announced().size();
      expect_kept(trainer->run(), trainer->announced());
      expect_whole(trainer->run());
    }
    const Finished verified = ctl({"verify"});
    EXPECT_EQ(verified.exit_code, 0) << verified.out;
  }
  std::cout << rounds << " kills, " << announced << " snapshots announced\n";
  EXPECT_GE(announced, rounds / 3) << "of rounds in which little is saved little is learnt";
}

}  // namespace
}  // namespace ckpt::test

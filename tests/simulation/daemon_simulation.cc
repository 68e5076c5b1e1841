// Plays random histories of the daemon core, each from a seed, on all cores, until the count or the
// time is over or something is found.
//
//   daemon_simulation [--history NAME ...] [--first SEED] [--seeds COUNT] [--seconds N] [--jobs N]
//   daemon_simulation --history NAME --seed N          this one history
//   ... --without SAFEGUARD                            of a daemon that lacks it
//   (ckptd/safeguards.h)
//
// Environment: CKPT_FUZZ_SECONDS (then the count does not matter), CKPT_FUZZ_SEED. What is found is
// told together with the line that repeats it. Exit codes: 0 nothing found, 1 found something,
// 2 bad usage.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <iostream>
#include <map>
#include <optional>
#include <thread>

#include "tests/simulation/left_out.h"
#include "tests/simulation/simulation.h"
#include "tests/support/signals.h"

namespace ckptd::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct History {
  std::string name;
  Simulation::Options options;
};

// A long run with partial snapshots of changed and unchanged units, and with prunes.
Simulation::Options lived(Simulation::Options more) {
  more.events = 90;
  more.partial = true;
  more.prune = true;
  more.unchanged = true;
  return more;
}

const std::vector<History>& all_histories() {
  static const std::vector<History> histories = {
      {"crashes", {}},
      {"faults", {.disk_faults = true}},
      {"partial", {.disk_faults = true, .partial = true}},
      {"prunes", {.events = 90, .disk_faults = true, .partial = true, .prune = true}},
      {"silent", {.silent_faults = true}},
      {"unchanged", lived({.disk_faults = true})},
      {"unchanged_silent", {.silent_faults = true, .unchanged = true}},
      {"deltas", lived({.disk_faults = true, .deltas = true})},
      {"deltas_silent", {.silent_faults = true, .deltas = true}},
      {"scrub", lived({.disk_faults = true, .scrub = true})},
      {"scrub_silent", {.silent_faults = true, .scrub = true}},
      {"scrub_deltas", lived({.disk_faults = true, .deltas = true, .scrub = true})},
      {"blobs", {.events = 90, .disk_faults = true, .partial = true, .prune = true, .blobs = true}},
      {"blobs_silent", {.silent_faults = true, .scrub = true, .blobs = true}},
      {"blobs_deltas",
       lived({.disk_faults = true, .deltas = true, .blobs = true, .bad_starts = true})},
      {"grows", {.events = 90, .disk_faults = true, .partial = true, .grows = true}},
      {"grows_prunes", {.events = 90, .prune = true, .grows = true, .bad_starts = true}},
      {"grows_deltas", lived({.deltas = true, .blobs = true, .grows = true})},
      {"full", {.events = 90, .prune = true, .full = true}},
      {"full_scrub", lived({.deltas = true, .scrub = true, .full = true})},
      {"full_faults", {.disk_faults = true, .full = true, .bad_starts = true}},
      {"starts", {.bad_starts = true}},
      {"starts_scrub",
       lived({.disk_faults = true, .deltas = true, .scrub = true, .bad_starts = true})},
  };
  return histories;
}

struct Settings {
  std::vector<std::string> names;
  uint64_t first = 1;
  uint64_t seeds = 25;
  uint64_t seconds = 0;  // 0: until all seeds are played
  uint64_t only = 0;     // this seed alone
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  std::string without;
};

// Progress of a worker, in memory shared with the parent, so that a crash of the worker leaves it.
struct Progress {
  uint64_t seed = 0;
  size_t history = 0;
  uint64_t played = 0;
  uint64_t announced = 0;
  uint64_t pruned = 0;
  uint64_t scrubs = 0;
  uint64_t refused = 0;
  uint64_t bad_starts = 0;
};

class Simulations {
 public:
  Simulations(Settings settings, std::vector<History> histories)
      : settings_(std::move(settings)),
        histories_(std::move(histories)),
        end_(Clock::now() + std::chrono::seconds(settings_.seconds)) {
    void* const shared = ::mmap(nullptr, settings_.jobs * sizeof(Progress), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CKPT_ASSERT(shared != MAP_FAILED);
    progress_ = static_cast<Progress*>(shared);
  }

  int run() {
    for (unsigned job = 0; job < settings_.jobs; ++job) {
      const pid_t pid = ::fork();
      CKPT_ASSERT(pid >= 0);
      if (pid == 0) work(job);
      workers_[pid] = job;
    }
    std::optional<unsigned> found;
    while (!workers_.empty()) {
      int status = 0;
      const auto ended = workers_.find(::waitpid(-1, &status, 0));
      if (ended == workers_.end()) continue;
      if (status != 0 && !found) {
        found = ended->second;
        for (const auto& [pid, job] : workers_) (void)ckpt::test::send_signal(pid, SIGKILL);
      }
      workers_.erase(ended);
    }
    return found ? print(progress_[*found]) : sum_up();
  }

 private:
  // Every jobs-th seed. A failed assertion of GoogleTest is thrown, and ends the process.
  [[noreturn]] void work(unsigned job) {
    const uint64_t last = settings_.first + settings_.seeds;
    for (uint64_t seed = settings_.first + job;
         settings_.seconds > 0 ? Clock::now() < end_ : seed < last; seed += settings_.jobs) {
      play(progress_[job], seed);
    }
    ::_exit(0);
  }

  void play(Progress& progress, uint64_t seed) {
    progress.seed = seed;
    progress.history = seed % histories_.size();
    Simulation::Options options = histories_[progress.history].options;
    options.seed = seed;
    Simulation simulation(options);
    try {
      simulation.play();
    } catch (const std::exception& failure) {
      std::cout << failure.what() << std::endl;
      ::_exit(1);
    }
    progress.played += 1;
    progress.announced += simulation.announced();
    progress.pruned += simulation.pruned();
    progress.scrubs += simulation.scrubs();
    progress.refused += simulation.refused();
    progress.bad_starts += simulation.bad_starts();
  }

  int print(const Progress& progress) const {
    uint64_t played = 1;
    for (unsigned job = 0; job < settings_.jobs; ++job) played += progress_[job].played;
    std::cout << "found in history " << played << "\nrepeat with: daemon_simulation --history "
              << histories_[progress.history].name << " --seed " << progress.seed;
    if (!settings_.without.empty()) std::cout << " --without " << settings_.without;
    std::cout << std::endl;
    return 1;
  }

  int sum_up() const {
    Progress sum;
    for (unsigned job = 0; job < settings_.jobs; ++job) {
      sum.played += progress_[job].played;
      sum.announced += progress_[job].announced;
      sum.pruned += progress_[job].pruned;
      sum.scrubs += progress_[job].scrubs;
      sum.refused += progress_[job].refused;
      sum.bad_starts += progress_[job].bad_starts;
    }
    std::cout << sum.played << " histories from seed " << settings_.first << ", " << sum.announced
              << " commits announced, " << sum.pruned << " pruned, " << sum.scrubs
              << " times read back, " << sum.refused << " refusals of a full disk, "
              << sum.bad_starts << " starts disturbed, nothing found\n";
    const auto any = [this](bool Simulation::Options::*kind) {
      return std::ranges::any_of(histories_,
                                 [kind](const History& history) { return history.options.*kind; });
    };
    const bool enough = sum.announced > 2 * sum.played &&
                        any(&Simulation::Options::prune) == (sum.pruned > 0) &&
                        any(&Simulation::Options::scrub) == (sum.scrubs > 0) &&
                        any(&Simulation::Options::full) == (sum.refused > 0) &&
                        any(&Simulation::Options::bad_starts) == (sum.bad_starts > 0);
    if (sum.played < 10 || enough) return 0;
    std::cout << "histories in which so little happens prove little\n";
    return 1;
  }

  const Settings settings_;
  const std::vector<History> histories_;
  const Clock::time_point end_;
  Progress* progress_ = nullptr;
  std::map<pid_t, unsigned> workers_;
};

int bad_usage(const std::string& what) {
  std::cerr << "daemon_simulation: " << what << '\n';
  return 2;
}

int simulate(Settings settings) {
  std::vector<History> histories;
  histories.reserve(all_histories().size());
  for (const History& history : all_histories()) {
    const auto& names = settings.names;
    const bool wanted = names.empty() || std::ranges::find(names, history.name) != names.end();
    if (wanted) histories.push_back(history);
  }
  if (!settings.names.empty() && histories.size() != settings.names.size()) {
    std::string known;
    for (const History& history : all_histories()) known += " " + history.name;
    return bad_usage("there are the histories" + known);
  }
  if (settings.only != 0) {
    if (histories.size() != 1) return bad_usage("--seed goes with one --history");
    settings.first = settings.only;
    settings.seeds = settings.jobs = 1;
    settings.seconds = 0;
  }
  if (!settings.without.empty() && !leave_out(settings.without)) {
    return bad_usage("there is no safeguard of that name");
  }
  return Simulations(std::move(settings), std::move(histories)).run();
}

}  // namespace
}  // namespace ckptd::testing

int main(int argc, char** argv) {
  // Each history allocates and frees the same megabytes. Returning them to the kernel in between
  // would take two thirds of the time.
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  ::mallopt(M_MMAP_THRESHOLD, INT_MAX);
  GTEST_FLAG_SET(throw_on_failure, true);
  ::testing::InitGoogleTest(&argc, argv);
  ckptd::testing::Settings settings;
  CLI::App app("Plays random histories of the daemon core.");
  app.add_option("--history", settings.names, "crashes, faults, partial, prunes, ...; all of them");
  app.add_option("--first", settings.first, "the first seed")->envname("CKPT_FUZZ_SEED");
  app.add_option("--seeds", settings.seeds, "how many");
  app.add_option("--seconds", settings.seconds, "for so long")->envname("CKPT_FUZZ_SECONDS");
  app.add_option("--seed", settings.only, "this one only");
  app.add_option("--jobs", settings.jobs)->check(CLI::Range(1, 1024));
  app.add_option("--without", settings.without, "a safeguard");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return ckptd::testing::simulate(std::move(settings));
}

// A second, naive implementation of ds: single steps, a list of checkpoints, no special case for
// events during waits. Its times equal those of the simulator to the microsecond.
#include <algorithm>
#include <set>

#include "tests/trainer/simulate/cluster.h"

namespace simtest {
namespace {

struct Naive {
  const CostModel& model;
  const NodeTrace& trace;
  uint64_t every;
  Micros now = 0;
  std::array<Micros, kKinds> time{};
  std::set<uint32_t> there{};
  std::vector<std::set<uint32_t>> groups{};  // surviving nodes of the last groups
  std::set<uint32_t> working{};

  Micros& of(Kind kind) { return time[static_cast<size_t>(kind)]; }

  // Lets time pass from event to event of the trace. False if one of `busy` died.
  bool wait(Kind kind, Micros duration, const std::set<uint32_t>& busy) {
    const Micros until = std::min(now + duration, trace.end);
    for (;;) {
      Micros next = trace.end;
      for (const NodeEvent& event : trace.events) {
        if (event.at >= trace.end || done.contains(&event)) continue;
        next = std::min(next, event.at);
      }
      if (next > until) break;
      of(kind) += next - now;
      now = next;
      if (now == trace.end) return false;
      if (!apply(busy)) return false;
    }
    of(kind) += until - now;
    now = until;
    return now < trace.end;
  }

  std::set<const NodeEvent*> done{};
  bool apply(const std::set<uint32_t>& busy) {
    bool good = true;
    for (const NodeEvent& event : trace.events) {
      if (event.at != now || done.contains(&event)) continue;
      done.insert(&event);
      if (event.add) {
        there.insert(event.node);
      } else {
        there.erase(event.node);
        for (auto& group : groups) group.erase(event.node);
        good = good && !busy.contains(event.node);
      }
    }
    return good;
  }
};

// ds: groups of two nodes, synchronous checkpoints, restart from the last one. Joiners only come in
// with a recovery.
struct NaiveDs : Naive {
  double samples = 0;
  uint64_t step = 0;
  struct Saved {
    uint64_t step = 0;
    double samples = 0;
    Micros train = 0;
  } saved;

  Micros step_us() const {
    const LoadModel load = LoadModel::zipf(model);
    // Experts 0, 1 are on the first node of a group, 2, 3 on the second.
    std::vector<double> slowest;
    for (const auto& layer : load.loads(load.epoch_of(step))) {
      const auto first = static_cast<double>(layer[0] + layer[1]);
      const auto all = static_cast<double>(kLoadUnits);
      slowest.push_back(std::max(first, all - first) * 2 / all);
    }
    return step_time(model, {2, static_cast<uint32_t>(working.size()), 2}, slowest);
  }

  // Groups of two: whole ones stay, then broken ones; the lowest numbers that are left fill up.
  std::vector<std::set<uint32_t>> choose() const {
    std::vector<std::set<uint32_t>> chosen;
    for (const bool whole : {true, false}) {
      for (const auto& group : groups) {
        if ((group.size() == 2) == whole) chosen.push_back(group);
      }
    }
    chosen.resize(there.size() / 2);
    std::set<uint32_t> left = there;
    for (const auto& group : chosen) {
      for (const uint32_t node : group) left.erase(node);
    }
    for (auto& group : chosen) {
      while (group.size() < 2) group.insert(left.extract(left.begin()));
    }
    return chosen;
  }

  void run() {
    wait(Kind::kIdle, 0, {});
    bool started = false;
    bool noticed = true;
    while (now < trace.end) {
      if (there.size() < 2) {
        wait(Kind::kIdle, next_change() - now, {});
        noticed = true;
        continue;
      }
      const auto chosen = choose();
      working.clear();
      for (const auto& group : chosen) working.insert(group.begin(), group.end());
      if (started) {
        // A node holds two of the four experts of each layer, and all that is dense.
        const double node = model.dense_bytes() + 2 * model.layers * model.expert_bytes();
        const double bytes = model.every_rank_reads > 0 ? static_cast<double>(working.size()) * node
                                                        : model.checkpoint_bytes();
        const double load = saved.step == 0 ? 0 : bytes / model.remote_read_bytes_per_s;
        const Micros took =
            (noticed ? 0 : micros(model.timeout_s)) + micros(model.restart_s) + micros(load);
        if (!wait(Kind::kRecover, took, working)) {
          noticed = false;
          continue;
        }
        of(Kind::kRedo) += of(Kind::kTrain) - saved.train;
        of(Kind::kTrain) = saved.train;
        step = saved.step;
        samples = saved.samples;
      }
      started = true;
      groups = chosen;
      noticed = train();
    }
  }

  Micros next_change() const {
    Micros next = trace.end;
    for (const NodeEvent& event : trace.events) {
      if (!done.contains(&event) && event.at < trace.end) next = std::min(next, event.at);
    }
    return next;
  }

  // Trains until a node is lost (returns false) or the trace ends.
  bool train() {
    uint64_t due = step + every;
    for (;;) {
      if (step >= due) {
        due = step + every;
        const double bytes = model.checkpoint_bytes();
        const double seconds =
            bytes / static_cast<double>(working.size()) / model.copy_bytes_per_s +
            bytes / model.remote_write_bytes_per_s;
        if (!wait(Kind::kCheckpoint, micros(seconds), working)) return false;
        saved = {step, samples, of(Kind::kTrain)};
      }
      const Micros before = of(Kind::kTrain);
      if (!wait(Kind::kTrain, step_us(), working)) {
        if (now == trace.end) {
          // A step that is done when the trace ends counts.
          if (of(Kind::kTrain) - before == step_us())
            samples += static_cast<double>(working.size());
          return true;
        }
        of(Kind::kRedo) += of(Kind::kTrain) - before;
        of(Kind::kTrain) = before;
        return false;
      }
      ++step;
      samples += static_cast<double>(working.size());
    }
  }
};

TEST(Naive, DsMatchesNaiveSimulation) {
  size_t rewinds = 0;
  for (uint64_t seed = 1000; seed < 1150; ++seed) {
    Case one = random_case(seed);
    // Spares return while others recover; none may join a group that trains.
    one.model.join_wait_s = 1e7;
    NaiveDs naive{
        {.model = one.model, .trace = one.trace, .every = one.checkpoint_steps}, 0, 0, {}};
    naive.run();
    const Outcome outcome = run(one.model, one.trace, "ds", one.checkpoint_steps);
    EXPECT_EQ(outcome.time, naive.time) << "seed " << seed;
    EXPECT_EQ(outcome.samples, naive.samples) << "seed " << seed;
    rewinds += outcome.rewinds;
  }
  EXPECT_GT(rewinds, 100U);
}

}  // namespace
}  // namespace simtest

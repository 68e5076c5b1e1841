// The gate against a model: every interleaving of a few activities that begin, wait and end, in two
// runs. A schedule is a list of choices among the steps that are possible; it is replayed from the
// start for every change of its end.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/history/run_gate.h"

namespace ckptd {
namespace {

// The table of run_gate.h, written a second time: rows begin, columns go on.
constexpr std::array<std::string_view, kRunActivities> kExpected = {
    "x . . . . .",  // administer
    ". x x x . x",  // delete commits
    ". x x x x x",  // remove the run
    ". x x x x x",  // replace the run
    ". . x x . .",  // register units
    ". x x x . x",  // write an epoch
    ". x x x . .",  // hold a view
    ". x x x . .",  // reference a version
    ". . x x . .",  // record an epoch's end
};
constexpr size_t kLastingActivities = 6;

bool expected_to_exclude(size_t running, size_t wanted) {
  return running < kLastingActivities && kExpected[wanted][2 * running] == 'x';
}

TEST(RunGateModel, TableIsAsDocumented) {
  for (size_t wanted = 0; wanted < kRunActivities; ++wanted) {
    for (size_t running = 0; running < kRunActivities; ++running) {
      EXPECT_EQ(excludes(RunActivity(running), RunActivity(wanted)),
                expected_to_exclude(running, wanted))
          << wanted << " while " << running;
    }
  }
}

// Begins its activity once, or waits for that, and ends it.
struct Actor {
  RunActivity activity = RunActivity::kAdminister;
  ckpt::RunId run = kAllRuns;
};

enum class Stage : uint8_t { kBegins, kWaits, kWoken, kRunning, kOver };
enum class WhenWoken : uint8_t { kAtOnce /* inside the release */, kLater /* a step of its own */ };

class World {
 public:
  World(const std::vector<Actor>& actors, WhenWoken when_woken)
      : actors_(actors),
        when_woken_(when_woken),
        stages_(actors.size(), Stage::kBegins),
        tokens_(actors.size()) {}

  std::vector<size_t> possible() const {
    std::vector<size_t> steps;
    for (size_t i = 0; i < actors_.size(); ++i) {
      if (stages_[i] != Stage::kWaits && stages_[i] != Stage::kOver) steps.push_back(i);
    }
    return steps;
  }

  void step(size_t actor) {
    if (stages_[actor] == Stage::kRunning) {
      stages_[actor] = Stage::kOver;  // first: the release may wake others, who look at the model
      tokens_[actor].reset();
    } else {
      begin_or_wait(actor);
    }
  }

  // The property that does not hold, or empty.
  std::string fault() const {
    if (!fault_.empty()) return fault_;
    for (const ckpt::RunId run : {kAllRuns, ckpt::RunId{1}, ckpt::RunId{2}}) {
      for (size_t activity = 0; activity < kRunActivities; ++activity) {
        if (gate_.may(RunActivity(activity), run) != may(activity, run)) {
          return "may() differs from the table";
        }
        if (gate_.busy(RunActivity(activity), run) != busy(activity, run)) {
          return "busy() differs from the tokens held";
        }
      }
    }
    for (size_t i = 0; i < actors_.size(); ++i) {
      if (stages_[i] == Stage::kWaits && may(index(i), actors_[i].run)) return "a lost wake-up";
    }
    return {};
  }

  // After the last possible step.
  std::string fault_at_end() const {
    for (const Stage stage : stages_) {
      if (stage != Stage::kOver) return "an activity waits for ever";
    }
    return {};
  }

 private:
  size_t index(size_t actor) const { return static_cast<size_t>(actors_[actor].activity); }

  bool may(size_t wanted, ckpt::RunId run) const {
    for (size_t i = 0; i < actors_.size(); ++i) {
      if (stages_[i] != Stage::kRunning || actors_[i].run != run) continue;
      if (expected_to_exclude(index(i), wanted)) return false;
    }
    return true;
  }

  bool busy(size_t activity, ckpt::RunId run) const {
    for (size_t i = 0; i < actors_.size(); ++i) {
      if (stages_[i] == Stage::kRunning && actors_[i].run == run && index(i) == activity)
        return true;
    }
    return false;
  }

  void begin_or_wait(size_t actor) {
    const Actor& it = actors_[actor];
    if (gate_.may(it.activity, it.run)) {
      if (!may(index(actor), it.run)) fault_ = "begins although the table excludes it";
      tokens_[actor] = gate_.begin(it.activity, it.run);
      stages_[actor] = Stage::kRunning;
    } else {
      stages_[actor] = Stage::kWaits;
      gate_.wait(it.activity, it.run, [this, it] { woken(it); });
    }
  }

  // Wakes all who wait for the same activity of the run: the gate has one callback for them.
  void woken(const Actor& with) {
    for (size_t i = 0; i < actors_.size(); ++i) {
      const bool waits = stages_[i] == Stage::kWaits && actors_[i].run == with.run &&
                         actors_[i].activity == with.activity;
      if (!waits) continue;
      stages_[i] = Stage::kWoken;
      if (when_woken_ == WhenWoken::kAtOnce) begin_or_wait(i);
    }
  }

  const std::vector<Actor> actors_;
  const WhenWoken when_woken_;
  RunGate gate_;
  std::vector<Stage> stages_;
  std::vector<std::optional<RunGate::Token>> tokens_;
  std::string fault_;
};

// The choices of one schedule, and at each step the number of possible ones.
struct Schedule {
  std::vector<size_t> choices;
  std::vector<size_t> possible;

  // The next one in the order of a depth-first walk. False: this was the last.
  bool advance() {
    while (!choices.empty() && choices.back() + 1 >= possible.back()) {
      choices.pop_back();
      possible.pop_back();
    }
    if (choices.empty()) return false;
    ++choices.back();
    return true;
  }
};

// Replays the schedule, and continues with the first possible step. Returns the fault, or empty.
// Steps before the last given choice were checked in an earlier play.
std::string play(const std::vector<Actor>& actors, WhenWoken when_woken, Schedule& schedule) {
  World world(actors, when_woken);
  const size_t given = schedule.choices.size();
  for (size_t step = 0;; ++step) {
    const std::vector<size_t> possible = world.possible();
    if (possible.empty()) return world.fault_at_end();
    if (step == schedule.choices.size()) {
      schedule.choices.push_back(0);
      schedule.possible.push_back(possible.size());
    }
    world.step(possible[schedule.choices[step]]);
    if (step + 1 < given) continue;
    if (std::string fault = world.fault(); !fault.empty()) return fault;
  }
}

// Plays all interleavings. Returns their number.
size_t play_all(const std::vector<Actor>& actors, WhenWoken when_woken) {
  size_t played = 0;
  Schedule schedule;
  do {
    const std::string fault = play(actors, when_woken, schedule);
    ++played;
    if (fault.empty()) continue;
    std::string text = fault + ":";
    for (const Actor& actor : actors) {
      text += " activity " + std::to_string(static_cast<int>(actor.activity)) + " of run " +
              std::to_string(actor.run) + ",";
    }
    text += " choices";
    for (const size_t choice : schedule.choices) text += " " + std::to_string(choice);
    ADD_FAILURE() << text;
    return played;
  } while (schedule.advance());
  return played;
}

// Plays all combinations of `count` of these actors, with repetitions. Returns the number of plays.
size_t play_combinations(const std::vector<Actor>& kinds, size_t count) {
  size_t played = 0;
  std::vector<Actor> chosen;
  const auto choose = [&](const auto& self, size_t from) -> void {
    if (chosen.size() == count) {
      played += play_all(chosen, WhenWoken::kAtOnce);
      played += play_all(chosen, WhenWoken::kLater);
      return;
    }
    for (size_t i = from; i < kinds.size(); ++i) {
      chosen.push_back(kinds[i]);
      self(self, i);
      chosen.pop_back();
    }
  };
  choose(choose, 0);
  return played;
}

// All lasting activities of these runs.
std::vector<Actor> kinds_of_runs(const std::vector<ckpt::RunId>& runs) {
  std::vector<Actor> kinds;
  for (const ckpt::RunId run : runs) {
    for (size_t i = 1; i < kLastingActivities; ++i) kinds.push_back({RunActivity(i), run});
  }
  return kinds;
}

TEST(RunGateModel, ThreeActivitiesInTwoRunsMatchTheModel) {
  std::vector<Actor> kinds = kinds_of_runs({1, 2});
  kinds.push_back({RunActivity::kAdminister, kAllRuns});
  const size_t played = play_combinations(kinds, 3);
  EXPECT_GT(played, 286u * 2 * 40) << "combinations, ways to wake, interleavings";
}

TEST(RunGateModel, FourActivitiesInOneRunMatchTheModel) {
  const size_t played = play_combinations(kinds_of_runs({1}), 4);
  EXPECT_GT(played, 70u * 2 * 100);
}

// Tokens that may be held together, released in every order: at the end all waiting ones are awake.
TEST(RunGateModel, ReleaseOrderDoesNotMatter) {
  const std::vector<Actor> together = {{RunActivity::kAdminister, kAllRuns},
                                       {RunActivity::kRegister, 1},
                                       {RunActivity::kWriteEpoch, 1},
                                       {RunActivity::kRemove, 2}};
  std::vector<size_t> order = {0, 1, 2, 3};
  do {
    RunGate gate;
    std::vector<RunGate::Token> tokens;
    for (const Actor& actor : together) tokens.push_back(gate.begin(actor.activity, actor.run));
    std::string woken;
    gate.wait(RunActivity::kRemove, 1, [&] { woken += "remove 1 "; });
    gate.wait(RunActivity::kHold, 2, [&] { woken += "hold 2 "; });
    for (const size_t token : order) tokens[token].release();
    EXPECT_TRUE(woken == "remove 1 hold 2 " || woken == "hold 2 remove 1 ") << woken;
    for (const Actor& actor : together) EXPECT_FALSE(gate.busy(actor.activity, actor.run));
  } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace
}  // namespace ckptd

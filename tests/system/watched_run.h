// A training run under watch: its events as they come, signals to its ranks, and an end when a test
// has seen what it waited for. No number of steps has to last until then.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/system/training.h"

namespace systemtest {

Flags operator+(Flags a, const Flags& b);

class WatchedRun {
 public:
  using Wanted = std::function<bool(const nlohmann::json&)>;

  // A program and its arguments: of a run whose --events go to this file.
  WatchedRun(const std::string& program, const Flags& arguments, std::string events);

  // All that the ranks have said so far.
  const std::vector<nlohmann::json>& events();
  bool told(const Wanted& wanted);
  // Waits, bounded, until one has been told; false if the run has ended without.
  bool await(const Wanted& wanted);
  bool await_step(uint64_t step);  // completed by some rank
  bool await_steps(uint64_t more) { return await_step(newest_step() + more); }
  // Waits until a group of this size trains after a change, and has completed two steps.
  bool await_group(uint32_t size);
  uint64_t newest_step();

  // To the process that is this rank, which has joined; false if there is none.
  bool signal_rank(uint32_t rank, int number);
  Program& program() { return program_; }
  const Program& program() const { return program_; }
  // Asks the run to stop. It must end as one that was.
  Ended stop();

 private:
  const std::string path_;
  std::vector<nlohmann::json> events_;
  size_t read_ = 0;  // bytes of the file
  Program program_;
};

// Runs that go on with whoever is left, of eight experts and sequences: enough for eight ranks.
class GoingOnTest : public TrainingTest {
 protected:
  // A run of so many ranks, with its events in a file.
  Flags going_on(const std::string& report, const std::string& ranks, const std::string& steps,
                 const Flags& more);
  // To its end, which must be a good one; the report.
  nlohmann::json go_on(const std::string& report, const std::string& ranks, const Flags& more);
  // Runs until it is stopped.
  WatchedRun watch(const std::string& report, const std::string& ranks, const Flags& more);
  void expect_undisturbed(const nlohmann::json& report) {
    TrainingTest::expect_undisturbed(report, kModel);
  }

  static const Flags kModel;
  // What is run; a test may choose something else.
  std::string program_ = "moetrain";
  Flags model_ = kModel;
  const std::string events_ = folder_ / "events";
  // Whatever is lost was just saved.
  const Flags saved_ = {"--checkpoint-every", "1", "--checkpoint-wait", "durable"};
  const Flags twice_ = {"--placement", "lazarus", "--slots", "4", "--min-replicas", "2"};
};

}  // namespace systemtest

// A training run with access to its events and ranks. It trains until a test has seen the awaited
// events and stops it, so that no test depends on a number of steps.
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

  // Starts the program; its --events must name the file `events`.
  WatchedRun(const std::string& program, const Flags& arguments, std::string events);

  // All events of the ranks so far.
  const std::vector<nlohmann::json>& events();
  bool has_event(const Wanted& wanted);
  // Waits, bounded, for an event that `wanted` accepts; false if the run has ended without one.
  bool await(const Wanted& wanted);
  bool await_step(uint64_t step);  // completed by some rank
  bool await_steps(uint64_t more) { return await_step(newest_step() + more); }
  // Waits until a group of this size trains after a membership change, and has completed two steps.
  bool await_group(uint32_t size);
  uint64_t newest_step();

  // Signals the process of this rank, which must have joined; false if the rank has no process.
  bool signal_rank(uint32_t rank, int number);
  Program& program() { return program_; }
  const Program& program() const { return program_; }
  // Asks the run to stop; it must end with the exit code of a stopped run.
  Ended stop();

 private:
  const std::string path_;
  std::vector<nlohmann::json> events_;
  size_t read_ = 0;  // bytes of the file
  Program program_;
};

// Runs that continue with the survivors; eight experts and sequences, enough for eight ranks.
class ContinueTest : public TrainingTest {
 protected:
  // Arguments of a run with `ranks` ranks and its events in a file.
  Flags continue_flags(const std::string& report, const std::string& ranks,
                       const std::string& steps, const Flags& more);
  // Runs to the end, which must succeed; returns the report.
  nlohmann::json run_continued(const std::string& report, const std::string& ranks,
                               const Flags& more);
  // Starts a run that trains until it is stopped.
  WatchedRun watch(const std::string& report, const std::string& ranks, const Flags& more);
  void expect_undisturbed(const nlohmann::json& report) {
    TrainingTest::expect_undisturbed(report, kModel);
  }

  static const Flags kModel;
  // Program to run; a test may replace it.
  std::string program_ = "moetrain";
  Flags model_ = kModel;
  const std::string events_ = folder_ / "events";
  // All lost state was saved just before the loss.
  const Flags saved_ = {"--checkpoint-every", "1", "--checkpoint-wait", "durable"};
  const Flags twice_ = {"--placement", "lazarus", "--slots", "4", "--min-replicas", "2"};
};

}  // namespace systemtest

// Whole training runs of a tiny model, and their reports.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "tests/system/programs.h"

namespace systemtest {

using Flags = std::vector<std::string>;  // command line flags

class TrainingTest : public testing::Test {
 protected:
  TrainingTest();
  // Arguments of a tiny run that writes this report, followed by `more`.
  std::vector<std::string> arguments(const std::string& report,
                                     const std::vector<std::string>& more) const;
  // Runs to the end, which must succeed; returns the report.
  nlohmann::json train(const std::string& report, const std::vector<std::string>& more);
  nlohmann::json read_report(const std::string& report) const;
  // Losses of the first steps of a run with these flags and without failures, by step.
  std::map<uint64_t, std::string> undisturbed(const std::vector<std::string>& flags,
                                              uint64_t steps);
  // Checks that the run's losses, up to its last step, equal those of undisturbed().
  void expect_undisturbed(const nlohmann::json& report, const std::vector<std::string>& flags);
  // The bits of the losses, by step.
  static std::map<uint64_t, std::string> bits(const nlohmann::json& report);
  static std::map<uint64_t, double> losses(const nlohmann::json& report);
  // Process of this rank in a run that is still training; -1: the rank has no process now.
  static pid_t pid_of(const Program& run, uint32_t rank);

  Folder folder_;
  const std::string data_ = folder_ / "text.txt";
  std::string last_error_output_;
};

}  // namespace systemtest

// Whole training runs of a tiny model, and what they report.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "tests/system/programs.h"

namespace systemtest {

using Flags = std::vector<std::string>;  // of a command line

class TrainingTest : public testing::Test {
 protected:
  TrainingTest();
  // Arguments of a tiny run, with this report; `more` comes last.
  std::vector<std::string> arguments(const std::string& report,
                                     const std::vector<std::string>& more) const;
  // Runs to the end, which must be a good one; the report.
  nlohmann::json train(const std::string& report, const std::vector<std::string>& more);
  nlohmann::json read_report(const std::string& report) const;
  // The losses of so many steps of a run with these flags that nothing happens to, by step.
  std::map<uint64_t, std::string> undisturbed(const std::vector<std::string>& flags,
                                              uint64_t steps);
  // As far as the run went, its losses are those.
  void expect_undisturbed(const nlohmann::json& report, const std::vector<std::string>& flags);
  // By step.
  static std::map<uint64_t, std::string> bits(const nlohmann::json& report);
  static std::map<uint64_t, double> losses(const nlohmann::json& report);
  // Of the rank with this number, of a run that goes on; -1: it has none now.
  static pid_t pid_of(const Program& run, uint32_t rank);

  Folder folder_;
  const std::string data_ = folder_ / "text.txt";
  std::string last_error_output_;
};

}  // namespace systemtest

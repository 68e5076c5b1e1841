// Whole training runs of a tiny model, and what they report.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "tests/system/programs.h"

namespace systemtest {

class TrainingTest : public testing::Test {
 protected:
  TrainingTest();
  // Arguments of a tiny run, with this report; `more` comes last.
  std::vector<std::string> arguments(const std::string& report,
                                     const std::vector<std::string>& more) const;
  // Runs to the end, which must be a good one; the report.
  nlohmann::json train(const std::string& report, const std::vector<std::string>& more);
  nlohmann::json read_report(const std::string& report) const;
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

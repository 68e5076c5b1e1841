#include "tests/system/training.h"

#include <algorithm>
#include <fstream>

namespace systemtest {

using nlohmann::json;

TrainingTest::TrainingTest() {
  // Text of our own: results do not change with the sources.
  std::ofstream text(data_, std::ios::binary);
  for (int i = 0; i < 3000; ++i) text << "step " << i * i % 997 << " of expert " << i % 13 << '\n';
}

std::vector<std::string> TrainingTest::arguments(const std::string& report,
                                                 const std::vector<std::string>& more) const {
  std::vector<std::string> all = {"run",
                                  "--run",
                                  "tiny",
                                  "--data",
                                  data_,
                                  "--hidden",
                                  "16",
                                  "--heads",
                                  "2",
                                  "--kv-heads",
                                  "1",
                                  "--head-dim",
                                  "8",
                                  "--intermediate",
                                  "24",
                                  "--experts",
                                  "4",
                                  "--seq",
                                  "16",
                                  "--batch",
                                  "4",
                                  "--report",
                                  folder_ / report};
  // A flag that is given again wins.
  for (const std::string& flag : more) {
    const auto found = std::ranges::find(all, flag);
    if (flag.starts_with("--") && found != all.end()) all.erase(found, found + 2);
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

json TrainingTest::train(const std::string& report, const std::vector<std::string>& more) {
  const Ended ended = run("moetrain", arguments(report, more));
  EXPECT_EQ(ended.code(), 0) << ended.err;
  last_error_output_ = ended.err;
  return read_report(report);
}

json TrainingTest::read_report(const std::string& report) const {
  auto document = json::parse(read_file(folder_ / report), nullptr, false);
  EXPECT_TRUE(document.is_object()) << report;
  return document;
}

// Neither the number of ranks nor later steps change a bit, so the longest run so far with these
// flags has all losses.
std::map<uint64_t, std::string> TrainingTest::undisturbed(const std::vector<std::string>& flags,
                                                          uint64_t steps) {
  static std::map<std::vector<std::string>, std::map<uint64_t, std::string>> runs;
  auto& longest = runs[flags];
  if (longest.size() < steps) {
    std::vector<std::string> alone = flags;
    const uint64_t enough = std::max<uint64_t>(2 * steps, 32);
    alone.insert(alone.end(), {"--ranks", "1", "--steps", std::to_string(enough)});
    const Ended ended = run("moetrain", arguments("undisturbed.json", alone));
    EXPECT_EQ(ended.code(), 0) << ended.err;
    longest = bits(read_report("undisturbed.json"));
  }
  return {longest.begin(), longest.upper_bound(steps)};
}

void TrainingTest::expect_undisturbed(const json& report, const std::vector<std::string>& flags) {
  const auto after = bits(report);
  ASSERT_FALSE(after.empty());
  EXPECT_EQ(after, undisturbed(flags, after.rbegin()->first));
}

std::map<uint64_t, std::string> TrainingTest::bits(const json& report) {
  std::map<uint64_t, std::string> result;
  for (const json& loss : report.at("losses")) result[loss.at("step")] = loss.at("loss_bits");
  return result;
}

std::map<uint64_t, double> TrainingTest::losses(const json& report) {
  std::map<uint64_t, double> result;
  for (const json& loss : report.at("losses")) result[loss.at("step")] = loss.at("loss");
  return result;
}

pid_t TrainingTest::pid_of(const Program& run, uint32_t rank) {
  for (const Program::Child& child : run.children()) {
    if (child.arguments.size() < 4 || child.arguments[1] != "rank") continue;
    const json options = json::parse(child.arguments[3], nullptr, false);
    if (options.is_object() && options.value("rank", UINT32_MAX) == rank) return child.pid;
  }
  return -1;
}

}  // namespace systemtest

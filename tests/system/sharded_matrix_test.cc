// Sharded experts on eight rank processes: placement policies and schedule switches, pairwise, give
// the bits of replicated experts that stay where they are.
//
// Kept small, about two seconds a run on two cores: tests/trainer/parallel has many more
// combinations, micro-batches among them, of ranks that are threads.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;

constexpr size_t kMatrixSteps = 60;

// All pairs of a policy, a prefetch depth and a way to re-shard occur.
struct MatrixRow {
  const char* policy;
  const char* prefetch;
  const char* reshard;
};
constexpr MatrixRow kRows[] = {
    {"static", "0", "inline"},    {"static", "1", "delayed"},  {"static", "2", "inline"},
    {"eplb", "0", "delayed"},     {"eplb", "1", "inline"},     {"eplb", "2", "delayed"},
    {"laer", "0", "inline"},      {"laer", "1", "delayed"},    {"laer", "2", "inline"},
    {"frontier", "0", "delayed"}, {"frontier", "1", "inline"}, {"frontier", "2", "delayed"}};

// By prefetch depth, so that one replicated run serves four rows.
const std::map<std::string, Flags> kTrainings = {
    {"0", {"--layers", "2", "--top-k", "1", "--idle-experts", "skip"}},
    {"1", {"--layers", "2", "--top-k", "2", "--clip", "0.1"}},
    {"2", {"--layers", "3", "--top-k", "2"}}};

class ShardedMatrixTest : public TrainingTest {
 protected:
  struct Result {
    std::map<uint64_t, std::string> loss_bits;
    std::vector<double> norms;
  };

  Result train_steps(const Flags& training, const Flags& more) {
    const std::string metrics = folder_ / "metrics.jsonl";
    std::filesystem::remove(metrics);
    // A learning rate at which the loss moves: a difference in the last digit would grow.
    const Flags model = Flags{"--hidden", "8", "--heads", "1", "--intermediate", "8"} +
                        Flags{"--seq", "8", "--batch", "8", "--experts", "8"} +
                        Flags{"--lr", "0.003", "--warmup", "2", "--checkpoint-every", "0"} +
                        Flags{"--steps", std::to_string(kMatrixSteps), "--metrics", metrics};
    Result result{.loss_bits = bits(train("matrix.json", model + training + more)), .norms = {}};
    for (const json& line : read_lines(metrics)) {
      if (line.contains("gradient_norm")) result.norms.push_back(line["gradient_norm"]);
    }
    return result;
  }
  Result replicated(const Flags& training) {
    return train_steps(training,
                       {"--ranks", "2", "--expert-state", "replicated", "--placement", "static"});
  }
  Result sharded(const Flags& training, const MatrixRow& row) {
    Flags flags = {"--ranks",  "8",          "--expert-state", "sharded",   "--placement",
                   row.policy, "--prefetch", row.prefetch,     "--reshard", row.reshard};
    // A plan of frontier takes longer than such a step.
    if (std::string(row.policy) == "frontier") flags.insert(flags.end(), {"--replan-every", "10"});
    return train_steps(training, flags);
  }
  static void expect_same(const Result& result, const Result& expected) {
    ASSERT_EQ(expected.loss_bits.size(), kMatrixSteps);
    EXPECT_EQ(result.loss_bits, expected.loss_bits);
    ASSERT_EQ(expected.norms.size(), kMatrixSteps);
    ASSERT_EQ(result.norms.size(), kMatrixSteps);
    for (size_t i = 0; i < kMatrixSteps; ++i) {
      EXPECT_LE(std::abs(result.norms[i] - expected.norms[i]), 1e-12 * expected.norms[i])
          << "step " << i + 1;
    }
  }
};

TEST_F(ShardedMatrixTest, RowsHaveAllPairs) {
  std::set<std::pair<std::string, std::string>> pairs;
  std::map<std::string, std::set<std::string>> values;
  for (const MatrixRow& row : kRows) {
    const std::string cells[] = {row.policy, std::string("prefetch ") + row.prefetch, row.reshard};
    const char* columns[] = {"policy", "prefetch", "reshard"};
    for (size_t a = 0; a < 3; ++a) {
      values[columns[a]].insert(cells[a]);
      for (size_t b = a + 1; b < 3; ++b) pairs.emplace(cells[a], cells[b]);
    }
  }
  EXPECT_EQ(values["policy"].size(), 4u);
  EXPECT_EQ(values["prefetch"].size(), 3u);
  EXPECT_EQ(values["reshard"].size(), 2u);
  EXPECT_EQ(pairs.size(), 4u * 3 + 4 * 2 + 3 * 2);
}

TEST_F(ShardedMatrixTest, PoliciesAndSchedulesChangeNoBit) {
  std::map<std::string, Result> expected;
  for (const auto& [prefetch, training] : kTrainings) expected[prefetch] = replicated(training);
  for (const MatrixRow& row : kRows) {
    SCOPED_TRACE(testing::Message()
                 << row.policy << ", prefetch " << row.prefetch << ", " << row.reshard);
    expect_same(sharded(kTrainings.at(row.prefetch), row), expected.at(row.prefetch));
  }
}

}  // namespace
}  // namespace systemtest

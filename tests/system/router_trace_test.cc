// Runs whose routing follows a trace: a function of the text and the step, and part of the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class RouterTraceTest : public TrainingTest {
 protected:
  // Three samples of two layers of four experts: experts 0, 1 and 2 are popular in turn.
  std::string write_trace(const std::string& name, int popular) {
    const std::string path = folder_ / name;
    std::ofstream file(path);
    file << "iteration,layer,e0,e1,e2,e3\n";
    for (int sample = 0; sample < 3; ++sample) {
      for (int layer = 0; layer < 2; ++layer) {
        file << sample << "," << layer;
        for (int expert = 0; expert < 4; ++expert) file << "," << (expert == sample ? popular : 10);
        file << "\n";
      }
    }
    return path;
  }

  const std::string trace_ = write_trace("trace.csv", 1000);
  const Flags following_ = {"--router-trace", trace_, "--router-trace-hold", "4"};
};

Flags joined(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

TEST_F(RouterTraceTest, RanksAndRestartsChangeNoBit) {
  const Flags flags =
      joined(following_, {"--steps", "12", "--checkpoint-every", "3", "--lr", "0.003"});
  const auto expected = bits(train("one.json", joined(flags, {"--ranks", "1"})));
  ASSERT_EQ(expected.size(), 12u);
  const std::vector<Flags> runs = {
      {"--ranks", "3"},
      {"--ranks", "2", "--expert-state", "sharded", "--placement", "laer", "--kill", "1@6"}};
  for (const Flags& more : runs) {
    EXPECT_EQ(bits(train("other.json", joined(flags, more))), expected)
        << testing::PrintToString(more);
  }
  Flags other = flags;
  other[3] = "5";
  EXPECT_NE(bits(train("longer.json", other)), expected) << "the hold counts";
}

TEST_F(RouterTraceTest, ResumeRequiresSameRouterTrace) {
  const std::string store = folder_ / "store";
  const Flags flags = {"--ranks", "2", "--data-dir", store, "--checkpoint-every", "3"};
  const auto expected =
      bits(train("whole.json", joined(following_, {"--steps", "9", "--ranks", "2"})));
  train("first.json", joined(joined(flags, following_), {"--steps", "5"}));
  const Flags resume = joined(flags, {"--steps", "9", "--resume", "latest"});
  const auto refused = [&](const Flags& more) {
    const Ended ended = run("moetrain", arguments("refused.json", joined(resume, more)));
    EXPECT_EQ(ended.code(), 2) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(refused({}), HasSubstr("was trained by a routing trace with CRC32C"));
  EXPECT_THAT(refused({"--router-trace", write_trace("other.csv", 900)}),
              HasSubstr("was trained by another trace"));
  EXPECT_THAT(refused({"--router-trace", folder_ / "none.csv"}),
              HasSubstr("none.csv: No such file or directory"));
  const json report = train("second.json", joined(resume, {"--router-trace", trace_}));
  for (const auto& [step, loss_bits] : bits(report)) {
    EXPECT_EQ(loss_bits, expected.at(step)) << "step " << step;
  }
  EXPECT_EQ(bits(report).rbegin()->first, 9u);

  const Ckptd daemon(store);
  const std::string name = "tiny@9";
  const Flags eval = {"eval",   name,  "--socket",    "unix:" + daemon.socket(),
                      "--data", data_, "--sequences", "2"};
  const Ended without = run("moetrain", eval);
  EXPECT_EQ(without.code(), 2);
  EXPECT_THAT(without.err, HasSubstr("name its file by --router-trace"));
  const Ended with = run("moetrain", joined(eval, {"--router-trace", trace_, "--json"}));
  EXPECT_EQ(with.code(), 0) << with.err;
  EXPECT_GT(with.json().at("loss").get<double>(), 0);
}

}  // namespace
}  // namespace systemtest

// moetrain simulate and calibrate as programs: output, refusals and exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/system/programs.h"

namespace systemtest {
namespace {

using testing::HasSubstr;

class SimulateTest : public testing::Test {
 protected:
  Ended simulate(std::vector<std::string> more) {
    std::vector<std::string> arguments{"simulate", "--model", model_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("moetrain", arguments);
  }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

  // The line "KEY = VALUE  # comment" of a model file.
  static std::string line_of(const std::string& text, const std::string& key) {
    const size_t begin = text.find("\n" + key + " = ");
    if (begin == std::string::npos) return {};
    return text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
  }

  Folder folder_;
  const std::string model_ = SIMULATE_MODELS "/gpt-l.toml";
};

TEST_F(SimulateTest, ComparesPoliciesOnATrace) {
  const std::string trace = file("t.csv",
                                 "0,add,a\n0,add,b\n0,add,c\n0,add,d\n0,add,e\n300000,remove,e\n"
                                 "600000,add,f\n");
  const std::string svg = folder_ / "goodput.svg";
  const Ended ended =
      simulate({"--trace", trace, "--policies", "ds,lazarus,ours", "--json", "--svg", svg});
  ASSERT_EQ(ended.code(), 0) << ended.err;
  const nlohmann::json document = ended.json();
  ASSERT_EQ(document["policies"].size(), 3U);
  for (const auto& [name, policy] : document["policies"].items()) {
    double sum = 0;
    for (const auto& [kind, seconds] : policy["time"].items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, 600, 1e-6) << name;
    EXPECT_GT(policy["goodput"].get<double>(), 0) << name;
  }
  EXPECT_GT(document["policies"]["ours"]["samples"], document["policies"]["lazarus"]["samples"]);
  EXPECT_TRUE(std::ifstream(svg).good());
}

TEST_F(SimulateTest, SimulatesClusterOfOneNode) {
  const std::string trace = file("t.csv", "0,add,a\n");
  const Ended ended = simulate({"--trace", trace, "--duration", "10m", "--policies", "ours",
                                "--set", "cluster.slots_per_rank=16", "--json"});
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_GT(ended.json()["policies"]["ours"]["goodput"].get<double>(), 0);
}

// The last event of a recording takes effect only if the simulation continues after it.
TEST_F(SimulateTest, DurationReplacesEndOfTrace) {
  const std::string trace = file("t.csv", "0,add,a\n0,add,b\n0,add,c\n0,add,d\n300000,remove,d\n");
  const Ended cut = simulate({"--trace", trace, "--policies", "ds", "--json"});
  ASSERT_EQ(cut.code(), 0) << cut.err;
  EXPECT_THAT(cut.err, HasSubstr("ends with its last event at 300 s"));
  EXPECT_EQ(cut.json()["policies"]["ds"]["failures"], 0);
  const Ended longer =
      simulate({"--trace", trace, "--duration", "10m", "--policies", "ds", "--json"});
  ASSERT_EQ(longer.code(), 0) << longer.err;
  EXPECT_EQ(longer.err, "");
  EXPECT_EQ(longer.json()["policies"]["ds"]["failures"], 1);
  const Ended shorter =
      simulate({"--trace", trace, "--duration", "100s", "--policies", "ds", "--json"});
  ASSERT_EQ(shorter.code(), 0) << shorter.err;
  EXPECT_EQ(shorter.json()["policies"]["ds"]["failures"], 0);
}

TEST_F(SimulateTest, RefusesBadInputInOneSentence) {
  struct Refusal {
    std::vector<std::string> flags;
    int code;
    const char* says;
  };
  const std::string unknown = file("unknown.csv", "0,add,a\n1,remove,b\n");
  const std::string repeated = file("repeated.csv", "0,add,a\n1,add,a\n");
  const std::string still = file("still.csv", "0,add,a\n0,add,b\n");
  const Refusal refusals[] = {
      {{"--trace", folder_ / "none.csv"}, 3, "none.csv: no such file"},
      {{"--trace", folder_.path()}, 2, ": not a regular file"},
      {{"--trace", unknown}, 2, "unknown.csv:2: node b is removed and was never added"},
      {{"--trace", repeated}, 2, "repeated.csv:2: node a is added and is there already"},
      {{"--trace", still}, 2, "still.csv: everything happens at 0"},
      {{"--trace", still, "--duration", "0s"}, 2, "a trace of 0 s"},
      {{"--trace", still, "--mtbf", "5m"}, 2, "not with --trace"},
      {{}, 2, "give a trace"},
      {{"--nodes-max", "2"}, 2, "give --trace"},
      {{"--nodes", "4", "--mtbf", "5"}, 2, "--mtbf"},
      {{"--nodes", "4", "--mtbf", "5m", "--policies", "best"}, 2, "the policies are ds"},
      {{"--nodes", "4", "--mtbf", "5m", "--set", "load.zip=1"}, 2, "no such parameter"},
      {{"--nodes", "4", "--mtbf", "5m", "--set", "load.zipf=-1"}, 2, "load.zipf -1"},
  };
  for (const Refusal& refusal : refusals) {
    const Ended ended = simulate(refusal.flags);
    EXPECT_EQ(ended.code(), refusal.code) << refusal.says;
    EXPECT_THAT(ended.err, HasSubstr(refusal.says));
    EXPECT_EQ(ended.out, "");
  }
}

TEST_F(SimulateTest, ComparesShardedSystemsOnAStep) {
  const std::string sharded = SIMULATE_MODELS "/sharded/laer-moe.toml";
  const auto run_sharded = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"simulate", "--sharded", "--model", sharded};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("moetrain", arguments);
  };
  const Ended ended = run_sharded(
      {"--shape", "mixtral-8x7b-e16k4", "--steps", "2", "--policies", "laer,fsdp-ep", "--json"});
  ASSERT_EQ(ended.code(), 0) << ended.err;
  const nlohmann::json systems = ended.json()["shapes"]["mixtral-8x7b-e16k4"];
  ASSERT_EQ(systems.size(), 2U);
  EXPECT_LT(systems["laer"]["step_s"], systems["fsdp-ep"]["step_s"]);
  const Ended skew =
      run_sharded({"--shape", "mixtral-8x7b-e8k2", "--steps", "2", "--fit-skew", "1.7"});
  ASSERT_EQ(skew.code(), 0) << skew.err;
  EXPECT_TRUE(skew.out.starts_with("mixtral-8x7b-e8k2 zipf 0.")) << skew.out;
  EXPECT_THAT(run_sharded({"--shape", "none"}).err, HasSubstr("the model file has mixtral"));
  EXPECT_THAT(run_sharded({"--mtbf", "5m"}).err, HasSubstr("simulates a step without failures"));
  EXPECT_THAT(run_sharded({"--set", "load.seed=x"}).err, HasSubstr("must be load.seed=NUMBER"));
  EXPECT_EQ(run_sharded({"--steps", "0"}).code(), 2);
  EXPECT_THAT(simulate({"--shape", "x"}).err, HasSubstr("need --sharded"));
}

// calibrate writes a model file that simulate accepts.
TEST_F(SimulateTest, CalibratesAModel) {
  const std::string text = file("text.txt", std::string(20'000, 'a') + "some other text");
  const Ended measured = run("moetrain", {"calibrate", "--steps", "4", "--data", text});
  ASSERT_EQ(measured.code(), 0) << measured.err;
  EXPECT_TRUE(measured.out.starts_with("# tiny on 4 ranks")) << measured.out.substr(0, 100);
  EXPECT_THAT(measured.out, HasSubstr("replicas_min = 2  # assumed"));
  EXPECT_THAT(measured.out, HasSubstr("timeout_s = 15  # assumed: NCCL times out after"));
  for (const char* key : {"restart_s", "plan_s", "ours_detect_s", "ours_regroup_s"}) {
    const std::string line = line_of(measured.out, key);
    EXPECT_THAT(line, HasSubstr("  # measured: "));
    EXPECT_GT(std::strtod(line.c_str() + line.find('=') + 1, nullptr), 0) << line;
  }
  const std::string model = file("here.toml", measured.out);
  const Ended ended = run("moetrain", {"simulate", "--model", model, "--nodes", "4", "--mtbf", "1m",
                                       "--duration", "10m", "--policies", "ds,ours", "--json"});
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_GT(ended.json()["policies"]["ours"]["goodput"].get<double>(), 0);
  EXPECT_EQ(run("moetrain", {"calibrate", "--ranks", "2"}).code(), 2);
}

}  // namespace
}  // namespace systemtest

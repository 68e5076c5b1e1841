// ckptctl with answers of any length, and with runs whose units differ.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/client/ctl_fixture.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// A unit of another run: one tensor of `floats` floats with the same value.
struct OtherUnit {
  std::string name;
  std::string tensor;
  uint64_t floats = 0;
  float value = 0;
};

class CtlAnswers : public Ctl {
 protected:
  void make_run(const std::string& run, const std::vector<OtherUnit>& units,
                const std::vector<uint32_t>& saved) {
    client::OpenOptions options;
    options.socket = daemon_.socket();
    options.run = run;
    options.arena_bytes = 4 << 20;
    options.slab_bytes = 256 << 10;
    auto session = client::Session::open(options);
    ASSERT_OK(session);
    std::vector<client::UnitInfo> infos;
    for (const OtherUnit& unit : units) {
      client::UnitInfo info;
      info.name = unit.name;
      info.bytes = 4 * unit.floats;
      info.layer = 0;
      info.expert = static_cast<int32_t>(infos.size());
      info.part = "weights";
      info.tensors = {{unit.tensor, "F32", {unit.floats}, 0}};
      infos.push_back(info);
    }
    ASSERT_OK(session->register_units(infos));
    ASSERT_OK(session->join(as_rank(0, 1)));
    client::SnapshotOptions plan;
    plan.step = 10;
    plan.units = saved;
    for (const uint32_t unit : saved) plan.fragments.push_back({0, unit, 0, infos[unit].bytes});
    auto snapshot = session->begin(plan);
    ASSERT_OK(snapshot);
    for (const uint32_t unit : saved) {
      const std::vector<float> floats(units[unit].floats, units[unit].value);
      ASSERT_OK(snapshot->write(unit, 0, floats.data(), infos[unit].bytes));
    }
    ASSERT_OK(snapshot->end());
    ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
    ASSERT_OK(session->leave());
  }
  std::map<std::string, Json> diff(const std::string& from, const std::string& to) {
    std::map<std::string, Json> units;
    const Json document = json({"diff", from, to});
    for (const Json& unit : document["units"]) units[unit["unit"]] = unit;
    return units;
  }
};

// The same units registered in reverse order, so that each has another number.
TEST_F(CtlAnswers, DiffOfTwoRunsMatchesUnitsByName) {
  make_run("one", {{"a", "w.a", 1024, 2}, {"b", "w.b", 1024, 4}, {"c", "w.c", 64, 1}}, {0, 1, 2});
  make_run("two", {{"c", "w.c", 64, 3}, {"b", "w.b", 1024, 5}, {"a", "w.a", 1024, 3}}, {0, 1, 2});
  const auto units = diff("one@10", "two@10");
  ASSERT_EQ(units.size(), 3u);
  EXPECT_DOUBLE_EQ(units.at("a")["relative_norm"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(units.at("b")["relative_norm"].get<double>(), 0.25);
  EXPECT_DOUBLE_EQ(units.at("c")["relative_norm"].get<double>(), 2.0);
  for (const auto& [name, unit] : units) EXPECT_FALSE(unit.contains("reason")) << name;
}

TEST_F(CtlAnswers, DiffGivesReasonForMissingNorm) {
  make_run("one",
           {{"a", "w.a", 1024, 2}, {"b", "w.b", 64, 4}, {"c", "w.c", 64, 1}, {"d", "w.d", 8, 0}},
           {0, 1, 2, 3});
  make_run(
      "two",
      {{"c", "w.other", 64, 3}, {"b", "w.b", 128, 5}, {"a", "w.a", 1024, 3}, {"d", "w.d", 8, 1}},
      {0, 1, 2, 3});
  const auto units = diff("one@10", "two@10");
  ASSERT_EQ(units.size(), 4u);
  EXPECT_DOUBLE_EQ(units.at("a")["relative_norm"].get<double>(), 0.5);
  EXPECT_EQ(units.at("b")["reason"], "tensor w.b is F32 [64], then F32 [128]");
  EXPECT_EQ(units.at("c")["reason"], "tensor w.c is only in the first view");
  EXPECT_EQ(units.at("d")["reason"], "it was all zero before");
  for (const char* name : {"b", "c", "d"}) EXPECT_TRUE(units.at(name)["relative_norm"].is_null());
  EXPECT_THAT(ctl({"diff", "one@10", "two@10"}).out, HasSubstr("tensor w.b is F32 [64]"));
  EXPECT_EQ(diff("tiny@10", "tiny@20").at("trainer")["reason"], "it has no floating-point tensors");
}

// Pages of one row each give the same answers as a single page.
TEST_F(CtlAnswers, PagedAnswerEqualsSinglePage) {
  json({"tag", "tiny@10", "best"});
  const std::vector<std::vector<std::string>> questions = {
      {"runs"},
      {"log", "tiny"},
      {"log", "tiny", "-n", "1"},
      {"alarms", "tiny"},
      {"show", "tiny@latest"},
      {"show", "tiny@best", "--memory"},
      {"unit", "tiny", "trainer"},
      {"experts", "tiny"},
      {"diff", "tiny@10", "tiny@20"},
      {"prune", "tiny", "--keep-last", "1", "--dry-run"},
      {"rm", "tiny", "--force", "--dry-run"},
      {"wait", "tiny@20"}};
  for (std::vector<std::string> question : questions) {
    const Finished table = ctl(question);
    const Json document = json(question);
    EXPECT_EQ(table.exit_code, 0) << question[0] << table.err;
    question.insert(question.end(), {"--page-bytes", "1"});
    EXPECT_EQ(json(question), document) << question[0];
    EXPECT_EQ(ctl(question).out, table.out) << question[0];
  }
  const std::string out = daemon_.folder().path("paged");
  EXPECT_EQ(json({"export", "tiny@10", "--out", out, "--page-bytes", "1"})["step"], 10);
  EXPECT_EQ(json({"log", "tiny", "--page-bytes", "1"}).size(), 2u);
  EXPECT_THAT(ctl({"--help"}).out, Not(HasSubstr("page-bytes")));
}

TEST_F(CtlAnswers, PruneSucceedsThoughAnswerIsTruncated) {
  auto session = train(as_rank(0, 1));
  ASSERT_OK(session);
  for (uint64_t step : {30, 40, 50, 60}) commit(*session, step);
  ASSERT_OK(session->leave());
  const Finished pruned = ctl({"prune", "tiny", "--keep-last", "1", "--yes", "--page-bytes", "1"});
  EXPECT_EQ(pruned.exit_code, 0) << pruned.err;
  EXPECT_THAT(pruned.out, HasSubstr("2 kept, 4 removed"));
  EXPECT_THAT(pruned.out, HasSubstr("and 1 kept, 3 removed that are not listed here"));
  EXPECT_EQ(json({"log", "tiny"}).size(), 2u);
  EXPECT_EQ(json({"log", "tiny", "--deleted", "--page-bytes", "1"}).size(), 4u);
}

// The older step is found although few commits are requested at a time.
TEST_F(CtlAnswers, ExportFallsBackOverManyDamagedSteps) {
  auto session = train(as_rank(0, 1));
  ASSERT_OK(session);
  for (uint64_t step : {30, 40}) commit(*session, step);
  ASSERT_OK(session->leave());
  EXPECT_EQ(daemon_.stop(), 0);
  for (const float step : {40.f, 30.f, 20.f}) damage_weights_of(step);
  daemon_.start();
  const std::string out = daemon_.folder().path("fallback");
  const Json exported = json({"export", "tiny@40", "--out", out, "--page-bytes", "1"});
  EXPECT_EQ(exported["step"], 10);
  EXPECT_EQ(exported["fallbacks"].size(), 3u);
}

TEST_F(CtlAnswers, MapMarksExpertWithoutVersion) {
  make_run("part", {{"a", "w.a", 16, 1}, {"b", "w.b", 16, 1}}, {0});
  EXPECT_EQ(ctl({"experts", "part"}).out,
            "part~1@10: tokens each expert would lose in a restore\n"
            "layer experts 0-1\n"
            "    0 ..!!\n"
            ".. 0  !! no version  tokens\n");
  EXPECT_EQ(json({"experts", "part"})["layers"][0]["experts"][1]["version_step"], nullptr);
}

TEST_F(CtlAnswers, UsageErrorShowsCorrectUsage) {
  const Finished grant = ctl({"grant", "tiny", "nobody", "--right", "read"});
  EXPECT_EQ(grant.exit_code, 2);
  EXPECT_EQ(grant.err,
            "ckptctl grant: unknown flag `--right`\n`ckptctl grant --help` tells more\n");
  EXPECT_THAT(ctl({"grant"}).err, HasSubstr("ckptctl grant tiny evaluator read"));
  const Finished no_right = ctl({"grant", "tiny", "54321"});
  EXPECT_THAT(no_right.err, HasSubstr("grant: say what user 54321 may do (read, commit, prune)"));
  EXPECT_THAT(no_right.err, HasSubstr("ckptctl grant RUN USER read|commit"));
  const Finished no_user = ctl({"grant", "tiny", "nosuchuser"});
  EXPECT_EQ(no_user.exit_code, 3);
  EXPECT_THAT(no_user.err, HasSubstr("user nosuchuser: no such user on this machine"));
  EXPECT_THAT(ctl({"grant", "tiny", "--revoke"}).err,
              HasSubstr("grant: --revoke: the user is missing whose rights end"));
  for (const char* name : {"ckptctl", "ckptd"}) {
    const Finished version = run_program({program(name), "--version"}, {});
    EXPECT_EQ(version.exit_code, 0) << name;
    EXPECT_EQ(version.out, std::string(name) + " " + CKPT_PROJECT_VERSION + "\n");
  }
}

}  // namespace
}  // namespace ckpt::test

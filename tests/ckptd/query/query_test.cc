// The documents of ckptctl: the fields that scripts rely on.
#include <gtest/gtest.h>

#include "tests/ckptd/query/query_fixture.h"

namespace ckptd {
namespace {

using nlohmann::json;

TEST_F(QueryTest, ListsReadableRuns) {
  const json runs = ask("runs", json::object());
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["run"], "tiny");
  EXPECT_EQ(runs[0]["parent"], nullptr);
  EXPECT_EQ(runs[0]["created"], "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(runs[0]["last_step"], 15);
  EXPECT_EQ(runs[0]["commits"], 4);
  EXPECT_EQ(runs[0]["bytes"], catalog_.run("tiny")->bytes);
  context_.may_read = [](const RunInfo&) { return false; };
  EXPECT_EQ(ask("runs", json::object()), json::array());
  const json refused = ask("log", {{"target", "tiny"}}, 3);
  EXPECT_EQ(refused["error"], "run tiny: no such run");
  EXPECT_EQ(refused["detail"], static_cast<int>(ckpt::ErrorDetail::kNoSuchRun));
}

TEST_F(QueryTest, LogIsNewestFirstOverAllLineages) {
  const json log = ask("log", {{"target", "tiny"}});
  ASSERT_EQ(log.size(), 4u);
  const std::vector<std::pair<int, int>> order = {{2, 15}, {1, 15}, {1, 10}, {1, 5}};
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(log[i]["lineage"], order[i].first);
    EXPECT_EQ(log[i]["step"], order[i].second);
    EXPECT_EQ(log[i]["level"], "durable");
  }
  EXPECT_EQ(log[2]["units"], 3);
  EXPECT_EQ(log[2]["experts"], 1);
  EXPECT_EQ(log[3]["experts"], 2);
  EXPECT_EQ(log[2]["tags"], json::array({"best"}));
  EXPECT_EQ(log[0]["tags"], json::array());
  EXPECT_EQ(log[2]["bytes"], units_[0].bytes + units_[1].bytes + units_[4].bytes);
  EXPECT_EQ(log[2]["time"], "2023-11-14T22:13:30.000Z");
  EXPECT_DOUBLE_EQ(log[2]["metrics"]["loss"], 1.0 / 11);
  EXPECT_EQ(log[2]["plt"], nullptr);
  EXPECT_EQ(log[3]["plt"], 0);
  EXPECT_EQ(ask("log", {{"target", "tiny~2"}}).size(), 1u);
  EXPECT_EQ(ask("log", {{"target", "tiny"}, {"limit", 2}}).size(), 2u);
}

TEST_F(QueryTest, LogListsDamagedButNotDeletedCommits) {
  add(commit_damaged({1, 5}, "unit trainer: segment 1 offset 4096: checksum"));
  add(deleted({1, 15}, "retention"));
  const json log = ask("log", {{"target", "tiny"}});
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[2]["level"], "damaged");
  EXPECT_EQ(log[2]["reason"], "unit trainer: segment 1 offset 4096: checksum");
  EXPECT_EQ(ask("runs", json::object())[0]["commits"], 3);
}

TEST_F(QueryTest, ShowListsTheViewOfOneStep) {
  const json view = ask("show", {{"target", "tiny~1@10"}});
  EXPECT_EQ(view["run"], "tiny");
  EXPECT_EQ(view["step"], 10);
  EXPECT_EQ(view["complete"], true);
  ASSERT_EQ(view["units"].size(), units_.size());
  const json& fresh = view["units"][0];
  EXPECT_EQ(fresh["unit"], "layers.0.experts.0.weights");
  EXPECT_EQ(fresh["version_step"], 10);
  EXPECT_EQ(fresh["staleness"], 0);
  EXPECT_EQ(fresh["bytes"], units_[0].bytes);
  EXPECT_EQ(fresh["layer"], 0);
  EXPECT_EQ(fresh["expert"], 0);
  EXPECT_EQ(fresh["part"], "weights");
  const auto crc = ckpt::base::crc32c(unit_bytes(units_[0], {1, 10}));
  EXPECT_EQ(fresh["crc32c"], fmt::format("{:08x}", crc));
  const json& stale = view["units"][2];
  EXPECT_EQ(stale["version_step"], 5);
  EXPECT_EQ(stale["staleness"], 5);
  EXPECT_EQ(view["units"][4]["layer"], nullptr);
  EXPECT_EQ(view["units"][4]["part"], "");
  EXPECT_EQ(ask("show", {{"target", "tiny@best"}}), view);
  // The current lineage forked at 10: its step 15 is another than lineage 1's.
  EXPECT_EQ(ask("show", {{"target", "tiny@15"}})["units"][0]["version_step"], 10);
  EXPECT_EQ(ask("show", {{"target", "tiny~1@15"}})["units"][0]["version_step"], 15);
  EXPECT_EQ(ask("show", {{"target", "tiny"}})["lineage"], 2);
}

TEST_F(QueryTest, ShowOfDamagedCommitListsOlderVersions) {
  add(commit_damaged({1, 10}, "its header"));
  const json view = ask("show", {{"target", "tiny~1@10"}});
  EXPECT_EQ(view["damaged"], "its header");
  EXPECT_EQ(view["units"][0]["version_step"], 5);
}

TEST_F(QueryTest, AMissingUnitMakesTheViewIncomplete) {
  ckpt::UnitSpec late;
  late.name = "late";
  late.bytes = 3;
  add(units_registered({late}, 5));
  const json view = ask("show", {{"target", "tiny~1@10"}});
  EXPECT_EQ(view["complete"], false);
  EXPECT_EQ(view["units"][5]["version_step"], nullptr);
  EXPECT_EQ(view["units"][5]["crc32c"], nullptr);
  expect_error("show", {{"target", "tiny@latest"}}, 3, "run tiny: no complete view");
}

TEST_F(QueryTest, ListsSchemaAndVersionsOfUnit) {
  const json schema = ask("schema", {{"target", "tiny"}});
  EXPECT_EQ(schema["metadata"]["hf_config"]["layers"], 2);
  ASSERT_EQ(schema["units"].size(), units_.size());
  EXPECT_EQ(schema["units"][1]["id"], 1);
  EXPECT_EQ(schema["units"][1]["part"], "optimizer");
  EXPECT_EQ(schema["units"][0]["tensors"][0]["dtype"], "F32");
  EXPECT_EQ(schema["units"][0]["tensors"][0]["shape"], json::array({16}));
  const json unit = ask("unit", {{"target", "tiny"}, {"unit", "trainer"}});
  EXPECT_EQ(unit["unit"], "trainer");
  ASSERT_EQ(unit["versions"].size(), 4u);
  EXPECT_EQ(unit["versions"][0]["lineage"], 2);
  EXPECT_EQ(unit["versions"][3]["step"], 5);
  EXPECT_EQ(unit["versions"][3]["fragments"], 2);
}

TEST_F(QueryTest, MetadataNestedTooDeepIsNotShown) {
  add(run_created("deep", 8, std::string(500'000, '[') + std::string(500'000, ']')));
  add(units_registered(units_, 0, 8));
  const json schema = ask("schema", {{"target", "deep"}});
  EXPECT_EQ(schema["metadata"], nullptr);
  EXPECT_EQ(schema["units"].size(), units_.size());
}

TEST_F(QueryTest, ListsExpertsByLayer) {
  const json document = ask("experts", {{"target", "tiny~1@10"}});
  ASSERT_EQ(document["layers"].size(), 1u);
  EXPECT_EQ(document["layers"][0]["layer"], 0);
  const json& experts = document["layers"][0]["experts"];
  ASSERT_EQ(experts.size(), 2u);
  EXPECT_EQ(experts[0], (json{{"expert", 0},
                              {"version_step", 10},
                              {"staleness", 0},
                              {"lost_tokens", 0},
                              {"lost_so_far", nullptr}}));
  EXPECT_EQ(experts[1], (json{{"expert", 1},
                              {"version_step", 5},
                              {"staleness", 5},
                              {"lost_tokens", nullptr},
                              {"lost_so_far", nullptr}}));
}

TEST_F(QueryTest, ListsAlarmsOfCommitsAndRefusedSnapshots) {
  using fb::AlarmKind;
  add(committed({.point = {2, 20},
                 .units = {0, 4},
                 .alarms = {{0, AlarmKind::NotFinite, 3}, {4, AlarmKind::Unchanged, 15}}},
                units_));
  add(snapshot_refused({2, 25}, {{2, AlarmKind::Stale, 5}}, 1));
  const json alarms = ask("alarms", {{"target", "tiny"}});
  ASSERT_EQ(alarms.size(), 4u) << alarms;
  EXPECT_EQ(alarms[0]["step"], 25);
  EXPECT_EQ(alarms[0]["attempt"], 1);
  EXPECT_EQ(alarms[0]["refused"], true);
  EXPECT_EQ(alarms[0]["kind"], "stale");
  EXPECT_EQ(alarms[0]["expert"], 1);
  EXPECT_EQ(alarms[0]["version_step"], 5);
  EXPECT_EQ(alarms[0]["text"],
            "unit layers.0.experts.1.weights: not in the plan, its newest version is of step 5, 20 "
            "steps old");
  EXPECT_EQ(alarms[1]["kind"], "not_finite");
  EXPECT_EQ(alarms[1]["refused"], false);
  EXPECT_EQ(alarms[1]["floats"], 3);
  EXPECT_EQ(alarms[1]["version_step"], nullptr);
  EXPECT_EQ(alarms[2]["text"], "unit trainer: unchanged since step 15 (checksum equal)");
  EXPECT_EQ(alarms[3]["kind"], "more");
  EXPECT_EQ(alarms[3]["count"], 1) << "the helper leaves out half of them once more";
  EXPECT_EQ(ask("log", {{"target", "tiny"}})[0]["alarms"], 3);
  EXPECT_EQ(ask("log", {{"target", "tiny"}})[1]["alarms"], 0);
  EXPECT_EQ(ask("alarms", {{"target", "tiny"}, {"limit", 1}}).size(), 1u);
  EXPECT_EQ(ask("alarms", {{"target", "tiny~1"}}), json::array());
  EXPECT_EQ(ask("alarms", {{"target", "tiny~1@5"}}), json::array());
}

TEST_F(QueryTest, DiffListsWhatChanged) {
  const json diff = ask("diff", {{"from", "tiny~1@5"}, {"to", "tiny~1@10"}});
  ASSERT_EQ(diff["units"].size(), 3u);
  EXPECT_EQ(diff["units"][0]["change"], "changed");
  EXPECT_EQ(diff["units"][0]["from_step"], 5);
  EXPECT_EQ(diff["units"][0]["to_step"], 10);
  EXPECT_EQ(diff["bytes"], units_[0].bytes + units_[1].bytes + units_[4].bytes);
  EXPECT_EQ(ask("diff", {{"from", "tiny~1@5"}, {"to", "tiny~1@5"}})["units"], json::array());
}

TEST_F(QueryTest, RestorePlanListsBytesPerSource) {
  sources_.at(SourceId::kSegment).measured(1000);
  const json plan = ask("restore-plan", {{"target", "tiny~1@10"}});
  uint64_t total = 0;
  for (const auto& unit : units_) total += unit.bytes;
  const uint64_t rest = total - units_[0].bytes;
  EXPECT_EQ(plan["sources"][0],
            (json{{"source", "memory"}, {"bytes", units_[0].bytes}, {"seconds", nullptr}}));
  EXPECT_EQ(plan["sources"][1]["source"], "segment");
  EXPECT_EQ(plan["sources"][1]["bytes"], rest);
  EXPECT_DOUBLE_EQ(plan["sources"][1]["seconds"], static_cast<double>(rest) / 1000);
}

TEST_F(QueryTest, RestorePlanSkipsKnownDamage) {
  const ScrubDamage damage{
      .run = "tiny", .lineage = 1, .step = 10, .unit = units_[1].name, .reason = "CRC differs"};
  context_.damages = std::span(&damage, 1);
  EXPECT_EQ(ask("restore-plan", {{"target", "tiny~1@10"}})["notes"],
            json::array({"unit " + units_[1].name + ": step 5 instead of 10: CRC differs"}));
  EXPECT_EQ(ask("restore-plan", {{"target", "tiny~1@5"}})["notes"], json::array());
}

TEST_F(QueryTest, RestorePlanReadsADamagedVersionFromMemory) {
  const ScrubDamage damage{
      .run = "tiny", .lineage = 1, .step = 10, .unit = units_[0].name, .reason = "CRC differs"};
  context_.damages = std::span(&damage, 1);
  EXPECT_EQ(ask("restore-plan", {{"target", "tiny~1@10"}})["notes"], json::array());
}

TEST_F(QueryTest, RestorePlanFailsWithoutAnIntactVersion) {
  const ScrubDamage damage{
      .run = "tiny", .lineage = 1, .step = 5, .unit = units_[1].name, .reason = "CRC differs"};
  context_.damages = std::span(&damage, 1);
  expect_error("restore-plan", {{"target", "tiny~1@5"}}, 4, "the view has no older version of it");
}

TEST_F(QueryTest, RunWithoutCommitIsReported) {
  add(run_created("fresh", kTestRun + 1));
  const json empty = ask("show", {{"target", "fresh"}}, 3);
  EXPECT_EQ(empty["error"], "run fresh: it has no commit yet");
  EXPECT_EQ(empty["detail"], static_cast<int>(ckpt::ErrorDetail::kNoCommit));
}

TEST_F(QueryTest, ErrorsNameTheObjectAndTheExitCode) {
  expect_error("log", {{"target", "other"}}, 3, "run other: no such run");
  expect_error("show", {{"target", "tiny@7"}}, 3, "run tiny step 7: no commit at this step");
  expect_error("show", {{"target", "tiny~9@5"}}, 3, "run tiny: no lineage 9");
  expect_error("log", {{"target", "tiny~9"}}, 3, "run tiny: no lineage 9");
  expect_error("show", {{"target", "tiny@nothing"}}, 3, "run tiny: no tag nothing");
  expect_error("unit", {{"target", "tiny"}, {"unit", "x"}}, 3, "run tiny unit x: no such unit");
  expect_error("show", {{"target", "tiny@@"}}, 2, "selector 'tiny@@'");
  expect_error("show", json::object(), 2, "argument target");
  expect_error("show", {{"target", 5}}, 2, "argument target");
  expect_error("log", {{"target", "tiny"}, {"limt", 5}}, 2, "unknown argument limt");
  expect_error("log", {{"target", "tiny"}, {"limit", -5}}, 2, "argument limit");
  expect_error("log", {{"target", "tiny@5"}, {"lineages", "some"}}, 2, "all, line or others");
  expect_error("sing", json::object(), 2, "unknown verb sing");
  for (const char* args : {"[", "[]", "1", "{\"target\":\"\xff\"}", "{} {}", "nul"}) {
    EXPECT_EQ(answer_query(context_, "log", args).exit_code, 2) << args;
  }
}

TEST_F(QueryTest, ParsesVerifyAndTagArguments) {
  const auto all = parse_verify_args(context_, "");
  EXPECT_EQ(all->runs.size(), catalog_.runs().size());
  QueryContext stranger = context_;
  stranger.may_read = [](const RunInfo& run) { return run.id != kTestRun; };
  const auto readable = parse_verify_args(stranger, "");
  EXPECT_EQ(readable->runs.size(), all->runs.size() - 1);
  const auto run = parse_verify_args(context_, R"({"target": "tiny"})");
  EXPECT_EQ(run->runs, std::vector{kTestRun});
  EXPECT_FALSE(run->point.has_value());
  const auto point = parse_verify_args(context_, R"({"target": "tiny~1@10"})");
  EXPECT_EQ(point->point, (ViewPoint{1, 10}));
  const auto tag = parse_tag_args(context_, R"({"target": "tiny~1@15", "tag": "good"})");
  ASSERT_TRUE(tag.ok());
  EXPECT_EQ(tag->target.point, (ViewPoint{1, 15}));
  EXPECT_EQ(tag->tag, "good");
  const auto removal =
      parse_tag_args(context_, R"({"target": "tiny", "tag": "best", "remove": true})");
  ASSERT_TRUE(removal.ok());
  EXPECT_TRUE(removal->remove);
  const auto code = [&](std::string_view args) {
    return parse_tag_args(context_, args).error().code;
  };
  EXPECT_EQ(code(R"({"target": "tiny~1@15", "tag": "latest"})"), ckpt::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(R"({"target": "tiny@99", "tag": "x"})"), ckpt::ErrorCode::kNotFound);
  EXPECT_EQ(code(R"({"target": "tiny", "tag": "x", "remove": true})"), ckpt::ErrorCode::kNotFound);
  add(commit_damaged({1, 15}, "its header"));
  EXPECT_EQ(code(R"({"target": "tiny~1@15", "tag": "x"})"), ckpt::ErrorCode::kCorrupt);
}

TEST_F(QueryTest, VerifyAnswerListsErrors) {
  EXPECT_EQ(verify_answer({.checked_bytes = 7, .commits = 1}).exit_code, 0);
  VerifyReport report;
  report.checked_bytes = 9;
  report.errors.push_back({"tiny", 1, 5, "trainer", "segment 1 offset 4096: \xff"});
  const QueryAnswer answer = verify_answer(report);
  EXPECT_EQ(answer.exit_code, 4);
  const json document = json::parse(answer.json);
  EXPECT_EQ(document["checked_bytes"], 9);
  EXPECT_EQ(document["errors"][0]["run"], "tiny");
  EXPECT_EQ(document["errors"][0]["step"], 5);
  EXPECT_EQ(document["errors"][0]["unit"], "trainer");
}

TEST_F(QueryTest, VerifyListsUncheckedUnitsSeparately) {
  VerifyReport report;
  report.unchecked.push_back({"tiny", 1, 5, "trainer", "segment 1: too many open files", false});
  const QueryAnswer unchecked = verify_answer(report);
  EXPECT_EQ(unchecked.exit_code, 1);
  EXPECT_EQ(json::parse(unchecked.json)["errors"], json::array());
  EXPECT_EQ(json::parse(unchecked.json)["unchecked"][0]["unit"], "trainer");
  report.errors.push_back({"tiny", 1, 5, "embed", "CRC32C mismatch"});
  EXPECT_EQ(verify_answer(report).exit_code, 4) << "damage outweighs it";
}

}  // namespace
}  // namespace ckptd

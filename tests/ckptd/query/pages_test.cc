// Answers in pages: at any page size the pages together are the whole answer.
#include <gtest/gtest.h>

#include "tests/ckptd/query/query_fixture.h"

namespace ckptd {
namespace {

using nlohmann::json;

const std::vector<std::pair<std::string, json>>& questions() {
  static const std::vector<std::pair<std::string, json>> all = {
      {"runs", json::object()},
      {"log", {{"target", "tiny"}}},
      {"log", {{"target", "tiny"}, {"limit", 3}}},
      {"log", {{"target", "tiny~1"}, {"before", 15}}},
      {"alarms", {{"target", "tiny"}}},
      {"show", {{"target", "tiny@latest"}}},
      {"schema", {{"target", "tiny"}}},
      {"unit", {{"target", "tiny"}, {"unit", "trainer"}}},
      {"diff", {{"from", "tiny~1@5"}, {"to", "tiny~1@15"}}}};
  return all;
}

TEST_F(QueryTest, PagesTogetherEqualWholeAnswer) {
  for (const auto& [verb, args] : questions()) {
    const json whole = ask(verb, args);
    for (const size_t bytes : {size_t{1}, size_t{300}, size_t{700}, size_t{1} << 20}) {
      EXPECT_EQ(ask_in_pages(verb, args, bytes), whole) << verb << " " << args << " " << bytes;
      if (bytes > 700) {
        EXPECT_EQ(pages_, 1u) << verb;
      }
    }
    ask_in_pages(verb, args, 1);
    const json& list = whole.is_array()          ? whole
                       : whole.contains("units") ? whole["units"]
                                                 : whole["versions"];
    EXPECT_EQ(pages_, std::max<size_t>(1, list.size())) << verb << ": a row each";
  }
}

TEST_F(QueryTest, SplitLayerContinuesOnNextPage) {
  const json whole = ask("experts", {{"target", "tiny"}});
  ASSERT_EQ(whole["layers"].size(), 1u);
  const json cut = ask_in_pages("experts", {{"target", "tiny"}}, 1);
  ASSERT_EQ(cut["layers"].size(), 2u) << "of an expert each";
  EXPECT_EQ(cut["layers"][0]["experts"][0], whole["layers"][0]["experts"][0]);
  EXPECT_EQ(cut["layers"][1]["experts"][0], whole["layers"][0]["experts"][1]);
  EXPECT_EQ(ask_in_pages("experts", {{"target", "tiny"}}, 1 << 20), whole);
}

TEST_F(QueryTest, PagesOfShowKeepTheirView) {
  const json whole = ask("show", {{"target", "tiny"}});
  json args = {{"target", "tiny"}, {"page", ""}, {"page_bytes", 1}};
  const json first = ask("show", args);
  commit({2, 20}, all_units(units_), true);
  ckpt::UnitSpec late;
  late.name = "late";
  late.bytes = 3;
  add(units_registered({late}, 5));
  EXPECT_NE(ask("show", {{"target", "tiny@20"}})["step"], whole["step"]);
  json units = first["document"]["units"];
  for (args["page"] = first["next"]; !args["page"].is_null();) {
    const json page = ask("show", args);
    EXPECT_EQ(page["document"]["step"], whole["step"]);
    EXPECT_EQ(page["document"]["lineage"], whole["lineage"]);
    for (const json& unit : page["document"]["units"]) units.push_back(unit);
    args["page"] = page["next"];
  }
  EXPECT_EQ(units, whole["units"]);
  // The commit that the first page describes is deleted.
  args["page"] = first["next"];
  add(deleted({2, 15}, "retention"));
  expect_error("show", args, 1, "run tiny: it has changed since the answer's first page");
}

TEST_F(QueryTest, PagesOfLogIgnoreNewerCommits) {
  json args = {{"target", "tiny"}, {"page", ""}, {"page_bytes", 1}};
  const json first = ask("log", args);
  commit({2, 20}, all_units(units_), true);
  args["page"] = first["next"];
  EXPECT_EQ(ask("log", args)["document"][0]["lineage"], 1);
}

TEST_F(QueryTest, LogListsCommitsBeforeGivenStep) {
  const json log = ask("log", {{"target", "tiny~1"}, {"before", 15}, {"limit", 1}});
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0]["step"], 10);
  EXPECT_TRUE(ask("log", {{"target", "tiny"}, {"before", 5}}).empty());
}

TEST_F(QueryTest, RefusesInvalidPageArguments) {
  for (const auto& [verb, args] : questions()) {
    json wrong = args;
    for (const char* page :
         {"x", ".", "1.", ".1", "-1", "1.2.3.4.5.6.7.8.9.10.11.12", "18446744073709551616", " 1"}) {
      wrong["page"] = page;
      expect_error(verb, wrong, 2, "argument page");
    }
    wrong["page"] = 7;
    expect_error(verb, wrong, 2, "argument page must be a text");
    wrong["page"] = "";
    wrong["page_bytes"] = -1;
    expect_error(verb, wrong, 2, "argument page_bytes");
  }
}

TEST_F(QueryTest, ErrorOfTooLongAnswerNamesRemedy) {
  context_.page_bytes_max = 300;
  expect_error("log", {{"target", "tiny"}}, 1,
               "run tiny: the answer to log is longer than the most, 300 bytes: ask for it in "
               "pages (page), or for less");
  expect_error("diff", {{"from", "tiny~1@5"}, {"to", "tiny~1@15"}}, 1, "run tiny~1@5: the answer");
  EXPECT_EQ(ask("log", {{"target", "tiny"}, {"limit", 1}}).size(), 1u);
  const json page = ask("log", {{"target", "tiny"}, {"page", ""}, {"page_bytes", 1 << 20}});
  EXPECT_FALSE(page["next"].is_null()) << "never more than the daemon allows";
}

// The daemon's own page limit, with more units than a message holds.
TEST_F(QueryTest, APageFitsIntoAMessage) {
  std::vector<ckpt::UnitSpec> many(130'000);
  for (size_t i = 0; i < many.size(); ++i) {
    many[i].name = fmt::format("{:0>200}", i);
    many[i].bytes = 1;
  }
  add(units_registered(many, 5));
  for (const std::string verb : {"show", "schema"}) {
    json args = {{"target", verb == "show" ? "tiny~1@10" : "tiny"}};
    expect_error(verb, args, 1, "ask for it in pages");
    size_t pages = 0;
    size_t units = 0;
    for (args["page"] = ""; !args["page"].is_null(); ++pages) {
      const QueryAnswer answer = answer_query(context_, verb, args.dump());
      ASSERT_EQ(answer.exit_code, 0) << answer.json;
      EXPECT_LE(answer.json.size(), limits::kQueryReplyBytesMax);
      const json page = json::parse(answer.json);
      units += page["document"]["units"].size();
      args["page"] = page["next"];
    }
    EXPECT_EQ(pages, 2u) << verb;
    EXPECT_EQ(units, units_.size() + many.size()) << verb;
  }
}

// -- plans of prune and rm
// -------------------------------------------------------------------------

PrunePlan long_plan() {
  PrunePlan plan;
  for (ckpt::Step step = 1; step <= 20; ++step) {
    plan.kept.push_back({.point = {1, step}, .reasons = {"the last"}});
    plan.removed.push_back({.point = {1, 100 + step}, .reason = "no rule keeps it", .bytes = 7});
  }
  return plan;
}

TEST_F(QueryTest, ExecutedPrunePlanCountsOmittedRows) {
  const RunInfo run = catalog_.run("tiny").value();
  const PrunePlan plan = long_plan();
  const json all = json::parse(prune_answer(run, plan, false, {}).json);
  EXPECT_EQ(all["kept"].size(), 20u);
  EXPECT_EQ(all["removed"].size(), 20u);
  EXPECT_EQ(all["bytes"], 140);
  EXPECT_FALSE(all.contains("left_out"));
  const QueryAnswer answer = prune_answer(run, plan, false, {.bytes = 1000});
  EXPECT_EQ(answer.exit_code, 0);
  const json some = json::parse(answer.json);
  for (const char* list : {"kept", "removed"}) {
    EXPECT_GT(some[list].size(), 0u);
    EXPECT_LT(some[list].size(), 20u);
    EXPECT_EQ(some[list].size() + some["left_out"][list].get<size_t>(), 20u);
  }
  EXPECT_EQ(some["bytes"], 140);
  EXPECT_FALSE(parse_prune_args(context_, R"({"target": "tiny", "page": ""})").ok());
}

TEST_F(QueryTest, DryRunPagesRefuseChangedPlan) {
  const RunInfo run = catalog_.run("tiny").value();
  const PrunePlan plan = long_plan();
  const json all = json::parse(prune_answer(run, plan, true, {}).json);
  json kept = json::array();
  json removed = json::array();
  json next = "";
  for (int pages = 0; !next.is_null(); ++pages) {
    ASSERT_LT(pages, 100);
    const json args = {{"target", "tiny"}, {"dry_run", true}, {"page", next}, {"page_bytes", 500}};
    const auto parsed = parse_prune_args(context_, args.dump());
    ASSERT_TRUE(parsed.ok());
    const json page = json::parse(prune_answer(run, plan, true, parsed->page).json);
    for (const json& one : page["document"]["kept"]) kept.push_back(one);
    for (const json& one : page["document"]["removed"]) removed.push_back(one);
    EXPECT_EQ(page["document"]["bytes"], 140);
    next = page["next"];
    if (pages > 0 || next.is_null()) continue;
    PrunePlan other = plan;
    other.removed.pop_back();
    const json again = {{"target", "tiny"}, {"dry_run", true}, {"page", next}};
    const PlanPage page_of_it = parse_prune_args(context_, again.dump())->page;
    const QueryAnswer changed = prune_answer(run, other, true, page_of_it);
    EXPECT_EQ(changed.exit_code, 1);
    EXPECT_THAT(changed.json, testing::HasSubstr("has changed"));
  }
  EXPECT_EQ(kept, all["kept"]);
  EXPECT_EQ(removed, all["removed"]);
}

TEST_F(QueryTest, VerifyCountsErrorsLeftOut) {
  VerifyReport report;
  report.errors_left_out = 3;
  for (int i = 0; i < 10; ++i) report.errors.push_back({"tiny", 1, 5, "trainer", "CRC differs"});
  const QueryAnswer answer = verify_answer(report, 400);
  EXPECT_EQ(answer.exit_code, 4);
  const json document = json::parse(answer.json);
  EXPECT_LT(document["errors"].size(), 10u);
  EXPECT_EQ(document["errors"].size() + document["errors_left_out"].get<size_t>(), 13u);
}

// If no view is complete, the map marks the units that were never saved.
TEST_F(QueryTest, ExpertsMarksUnitsThatWereNeverSaved) {
  ckpt::UnitSpec late;
  late.name = "layers.0.experts.2.weights";
  late.bytes = 3;
  late.layer = 0;
  late.expert = 2;
  add(units_registered({late}, 5));
  expect_error("show", {{"target", "tiny"}}, 3, "run tiny: no complete view yet");
  const json experts = ask("experts", {{"target", "tiny"}});
  EXPECT_EQ(experts["step"], 15);
  EXPECT_EQ(experts["lineage"], 2);
  const json& cells = experts["layers"][0]["experts"];
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(cells[2]["version_step"], nullptr);
  EXPECT_NE(cells[0]["version_step"], nullptr);
  expect_error("experts", {{"target", "tiny@latest"}}, 3, "run tiny: no complete view yet");
}

}  // namespace
}  // namespace ckptd

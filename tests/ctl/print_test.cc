#include "client/ctl/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/ctl/table.h"

namespace ckptctl {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  Table table({{"UNIT"}, {"SIZE", Table::Align::kRight}});
  table.add({"a", "1"});
  table.add({"layers.0", "1000"});
  EXPECT_EQ(table.text(),
            "UNIT      SIZE\n"
            "a            1\n"
            "layers.0  1000\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({{"A"}, {"B"}});
  table.add({"\xc3\xa9", "x"});  // one character
  EXPECT_EQ(table.text(), "A  B\n\xc3\xa9  x\n");
}

TEST(Print, LogShowsTagsMetricsAndSizes) {
  const Json log = Json::parse(R"([{"step": 1200, "lineage": 2, "time": "2026-01-31T12:00:00.000Z",
    "level": "durable", "units": 12, "experts": 8, "bytes": 67108864, "tags": ["best"],
    "metrics": {"loss": 2.5}, "plt": null, "lost_so_far": 40,
    "alarms": 3}])");
  EXPECT_EQ(print_log(log),
            "STEP  LINEAGE  TIME                      LEVEL    UNITS  EXPERTS      SIZE  PLT"
            "  LOST  ALARMS  TAGS  METRICS\n"
            "1200        2  2026-01-31T12:00:00.000Z  durable     12        8  64.0 MiB    -"
            "    40       3  best  loss=2.5\n");
}

TEST(Print, AlarmsSayWhatWasRefused) {
  const Json alarms = Json::parse(R"([
    {"step": 12, "lineage": 1, "time": "2026-01-31T12:00:00.000Z", "refused": true,
     "kind": "not_finite", "text": "unit a: 3 of its floats are NaN or infinite"},
    {"step": 12, "lineage": 1, "time": "2026-01-31T12:00:00.000Z", "refused": false,
     "kind": "more", "count": 7}])");
  EXPECT_EQ(print_alarms(alarms),
            "STEP  LINEAGE  TIME                      TAKEN    WHAT\n"
            "  12        1  2026-01-31T12:00:00.000Z  refused  unit a: 3 of its floats are NaN or "
            "infinite\n"
            "  12        1  2026-01-31T12:00:00.000Z  yes      and 7 more\n");
}

TEST(Print, ShowSaysWhatIsMissing) {
  const Json show = Json::parse(R"({"run": "tiny", "step": 10, "lineage": 1, "complete": false,
    "units": [{"unit": "a", "version_step": 8, "staleness": 2, "bytes": 512,
               "crc32c": "e3069283"},
              {"unit": "b", "version_step": null, "staleness": null, "bytes": 1,
               "crc32c": null}]})");
  EXPECT_EQ(print_show(show),
            "tiny~1@10, NOT complete\n"
            "UNIT  VERSION  STALE  LEVEL   SIZE  CRC32C\n"
            "a           8      2  -      512 B  e3069283\n"
            "b     missing      -  -        1 B  -\n");
}

TEST(Print, VerifyNamesRunStepAndUnit) {
  const Json report = Json::parse(R"({"checked_bytes": 4096, "commits": 3, "errors": [
    {"run": "tiny", "step": 5, "lineage": 1, "unit": "layers.0", "reason": "CRC differs"}]})");
  EXPECT_EQ(print_verify(report),
            "run tiny step 5 unit layers.0: CRC differs\n"
            "4.0 KiB checked in 3 commits, 1 ERRORS\n");
}

TEST(Print, ScrubShowsThePassUnderWayAndTheLast) {
  const Json report = Json::parse(R"({"state": "yielding", "store_bytes": 8192, "errors": [
    {"run": "tiny", "step": 5, "lineage": 1, "unit": "layers.0", "reason": "CRC differs"}],
    "pass": {"number": 2, "began": "2026-01-02", "checked_bytes": 4096, "commits": 1},
    "last_pass": {"number": 1, "ended": "2026-01-01", "checked_bytes": 8192, "commits": 3}})");
  EXPECT_EQ(print_scrub(report),
            "run tiny step 5 unit layers.0: CRC differs\n"
            "pass 2 began 2026-01-02, yielding: 4.0 KiB of about 8.0 KiB checked\n"
            "pass 1 ended 2026-01-01: 8.0 KiB checked in 3 commits, 1 ERRORS\n");
  Json more = report;
  more["errors_left_out"] = 7;
  EXPECT_THAT(print_scrub(more), testing::AllOf(testing::HasSubstr("\n7 more findings"),
                                                testing::HasSubstr("3 commits, 8 ERRORS\n")));
  EXPECT_EQ(print_scrub(Json::object()), "no pass has ended yet\n");
}

TEST(Print, MembersThatAnOlderDaemonDoesNotSendAreDashes) {
  EXPECT_NO_FATAL_FAILURE(print_runs(Json::parse("[{}]")));
  EXPECT_NO_FATAL_FAILURE(print_show(Json::object()));
  EXPECT_NO_FATAL_FAILURE(print_diff(Json::object()));
  EXPECT_NE(print_unit(Json::object()).find("run - unit -"), std::string::npos);
}

TEST(Print, AnyDocumentIsReadable) {
  EXPECT_EQ(print_members(Json::parse(R"({"sessions": 2, "arena_bytes": 1048576,
              "runs": [{"run": "tiny"}], "none": []})")),
            "sessions: 2\n"
            "arena_bytes: 1.0 MiB\n"
            "runs:\n"
            "  -\n"
            "    run: tiny\n"
            "none: []\n");
}

}  // namespace
}  // namespace ckptctl

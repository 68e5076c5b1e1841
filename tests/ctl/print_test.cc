#include "client/ctl/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/ctl/print_daemon.h"
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
    "alarms": 3, "name": "tiny@1200", "forked_from": {"step": 800, "lineage": 1}}])");
  EXPECT_EQ(print_log(log),
            "COMMIT     LINEAGE  TIME                      LEVEL    UNITS  EXPERTS      SIZE  PLT"
            "  LOST  ALARMS  TAGS  METRICS\n"
            "tiny@1200        2  2026-01-31T12:00:00.000Z  durable     12        8  64.0 MiB    -"
            "    40       3  best  loss=2.5\n");
}

TEST(Print, AlarmsMarkRefusedUnits) {
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
  EXPECT_EQ(print_alarms(Json::array()), "no alarms\n");
}

TEST(Print, ShowMarksMissingUnits) {
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

TEST(Print, LogNamesDamagedUnitsAndTheRemedy) {
  const std::string text = print_log(Json::parse(R"([
    {"step": 20, "lineage": 1, "level": "durable", "name": "tiny@20", "damaged_units": 18,
     "damage": [{"unit": "layers.0", "reason": "CRC32C mismatch"},
                {"unit": "trainer", "reason": "CRC32C mismatch"}], "remedy": "save anew"},
    {"step": 10, "lineage": 1, "level": "damaged", "name": "tiny@10", "reason": "no header"}])"));
  EXPECT_THAT(text, testing::HasSubstr("durable, 18 damaged units"));
  EXPECT_THAT(text, testing::EndsWith("\n\ntiny@20: unit layers.0 is damaged: CRC32C mismatch\n"
                                      "tiny@20: unit trainer is damaged: CRC32C mismatch\n"
                                      "tiny@10 is damaged: no header\n"
                                      "and 16 more: ckptctl scrub --status lists what is "
                                      "damaged\nwhat to do: save anew\n"));
}

TEST(Print, ShowMarksDamagedUnitsAndTheRemedy) {
  const Json show = Json::parse(R"({"run": "tiny", "step": 10, "lineage": 1, "complete": true,
    "damaged_units": 1, "remedy": "save anew",
    "units": [{"unit": "a", "version_step": 10, "staleness": 0, "level": "durable", "bytes": 512,
               "crc32c": "e3069283", "damage": "CRC32C mismatch"}]})");
  EXPECT_EQ(print_show(show),
            "tiny~1@10, complete, 1 unit DAMAGED\n"
            "UNIT  VERSION  STALE  LEVEL     SIZE  CRC32C\n"
            "a          10      0  damaged  512 B  e3069283\n"
            "\nunit a is damaged: CRC32C mismatch\nwhat to do: save anew\n");
}

TEST(Print, VerifyNamesCommitAndUnit) {
  const Json report = Json::parse(R"({"checked_bytes": 4096, "commits": 3, "errors": [
    {"run": "tiny", "step": 5, "lineage": 1, "unit": "layers.0", "reason": "CRC differs"}]})");
  EXPECT_EQ(print_verify(report),
            "tiny~1@5 unit layers.0: CRC differs\n"
            "4.0 KiB checked in 3 commits, 1 ERROR\n");
}

TEST(Print, CheckOfNothingIsNoResult) {
  EXPECT_EQ(print_verify(Json::parse(R"({"checked_bytes": 0, "commits": 0, "errors": []})")),
            "nothing checked: the store has no commit that you may read\n");
  EXPECT_EQ(print_runs(Json::array()), "no runs that you may read\n");
  const Json unread = Json::parse(R"({"checked_bytes": 0, "commits": 0, "errors": [],
    "unchecked": [{"run": "", "unit": "catalog", "reason": "EACCES"}]})");
  EXPECT_EQ(print_verify(unread),
            "catalog: could not be checked: EACCES\n"
            "0 B checked in 0 commits, no errors, 1 COULD NOT BE CHECKED\n");
}

TEST(Print, PruneNamesRemovedCommitsAndTags) {
  const Json plan = Json::parse(R"({"run": "tiny", "dry_run": true, "bytes": 512,
    "kept": [{"step": 9, "lineage": 2, "time": "2026-01-02", "reasons": ["pinned"]}],
    "removed": [{"step": 5, "lineage": 1, "time": "2026-01-01", "reason": "no rule keeps it",
                 "tags": ["best", "good"], "units_left": 0, "bytes": 512}]})");
  EXPECT_EQ(print_prune(plan),
            "COMMIT    TIME        WOULD BE   SIZE  UNITS LEFT  WHY\n"
            "tiny~2@9  2026-01-02  kept          -           -  pinned\n"
            "tiny~1@5  2026-01-01  removed   512 B           0  no rule keeps it; removes its tags "
            "best good\n"
            "1 kept, 1 would be removed, 512 B\n");
}

TEST(Print, DeletedCommitsAreNamed) {
  const Json log = Json::parse(R"([
    {"step": 5, "lineage": 1, "time": "2026-01-01", "deleted": "2026-01-03", "units_left": 2,
     "reason": "old", "name": "tiny@5"},
    {"step": 6, "lineage": 1, "time": "2026-01-01", "deleted": "2026-01-03", "units_left": 0,
     "reason": "old"}])");
  EXPECT_EQ(print_log(log),
            "COMMIT  TIME        DELETED     UNITS LEFT  REASON\n"
            "tiny@5  2026-01-01  2026-01-03           2  old\n"
            "~1@6    2026-01-01  2026-01-03           0  old\n");
}

TEST(Print, RestorePlanShowsTimesAndNotes) {
  const Json plan = Json::parse(R"({"run": "tiny", "step": 10, "lineage": 1, "sources": [
    {"source": "memory", "bytes": 512, "seconds": 0.0261575},
    {"source": "segment", "bytes": 1024, "seconds": null}],
    "notes": ["unit a: step 5 instead of 10: CRC32C mismatch"]})");
  EXPECT_EQ(print_restore_plan(plan),
            "tiny~1@10\n"
            "SOURCE      SIZE   TIME\n"
            "memory     512 B  26 ms\n"
            "segment  1.0 KiB      -\n"
            "note: unit a: step 5 instead of 10: CRC32C mismatch\n");
}

TEST(Print, ScrubShowsCurrentAndLastPass) {
  const Json report = Json::parse(R"({"state": "yielding", "store_bytes": 8192, "errors": [
    {"run": "tiny", "step": 5, "lineage": 1, "unit": "layers.0", "reason": "CRC differs"}],
    "pass": {"number": 2, "began": "2026-01-02", "checked_bytes": 4096, "commits": 1},
    "last_pass": {"number": 1, "ended": "2026-01-01", "checked_bytes": 8192, "commits": 3}})");
  EXPECT_EQ(print_scrub(report),
            "tiny~1@5 unit layers.0: CRC differs\n"
            "pass 2 began 2026-01-02, yielding: 4.0 KiB of about 8.0 KiB checked\n"
            "pass 1 ended 2026-01-01: 8.0 KiB checked in 3 commits, 1 UNIT IS KNOWN TO BE "
            "DAMAGED\n");
  Json more = report;
  more["errors_left_out"] = 7;
  EXPECT_THAT(print_scrub(more),
              testing::AllOf(testing::HasSubstr("\n7 more findings"),
                             testing::HasSubstr("3 commits, 8 UNITS ARE KNOWN")));
  EXPECT_EQ(print_scrub(Json::object()), "no pass has ended yet\n");
}

TEST(Print, MissingMembersOfOlderDaemonAreDashes) {
  EXPECT_NO_FATAL_FAILURE(print_runs(Json::parse("[{}]")));
  EXPECT_NO_FATAL_FAILURE(print_show(Json::object()));
  EXPECT_NO_FATAL_FAILURE(print_diff(Json::object()));
  EXPECT_NE(print_unit(Json::object()).find("run - unit -"), std::string::npos);
}

TEST(Print, StatusShowsHealthDiskAndDurableSteps) {
  const std::string text = print_status(Json::parse(R"({"store": "01ab", "state": "ready",
    "can_save": false, "uptime_seconds": 65.0, "runs": 1, "engine": "uring", "io_shape": "32x4MiB",
    "conditions": [{"name": "disk_full", "seconds": 12.0, "stops_saving": true,
                    "reason": "disk full: No space left on device", "remedy": "delete commits"}],
    "durable": [{"run": "tiny", "trained": true, "lineage": 2, "step": 60, "age_seconds": 75.0,
                 "failing": {"snapshots": 3, "reason": "disk full"}}],
    "sessions": [{"session": 4, "process": 4711, "user": 1000, "client": "moetrain rank 0",
                  "run": "tiny", "rank": 0, "epoch": 3, "arena_bytes": 67108864}],
    "arena_bytes": 67108864, "arena_bytes_max": 1073741824, "warm_pool_bytes": 0,
    "slabs": {"free": 3, "leased": 0}, "snapshots_open": 1, "journal_bytes": 4096,
    "segment_bytes_written": 1048576,
    "disk": {"free_bytes": 1048576, "total_bytes": 2097152, "reserve_bytes": 524288,
             "mount_point": "/data"}})"));
  for (const char* line :
       {"ckptd:     running, up 1 min 5 s, 1 run in store 01ab\n", "health:    NOT SAVING",
        "  disk_full for 12 s: disk full: No space left on device\n", "    to do: delete commits\n",
        "disk:      1.0 MiB of 2.0 MiB free on /data, of which disk_reserve keeps 512.0 KiB\n",
        "arenas:    64.0 MiB of 1.0 GiB, 0 B prepared for new sessions; slabs: 3 free\n",
        "TRAINED  SAVES FAILED  WHY\n",
        "tiny            60  1 min 15 s        2  yes                 3  disk full\n",
        "moetrain rank 0  tiny     0      3  64.0 MiB\n"}) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
  EXPECT_THAT(print_status(Json::parse(R"({"conditions": []})")),
              testing::HasSubstr("health:    ok\n"));
  EXPECT_THAT(print_status(Json::parse(R"({"disk": {"free_bytes": 1048576,
                "total_bytes": 2097152, "reserve_bytes": 2097152}})")),
              testing::HasSubstr("disk:      1.0 MiB of 2.0 MiB free, all of it kept by "
                                 "disk_reserve (2.0 MiB)\n"));
}

TEST(Print, ShowCountsDamagedUnitsFirst) {
  const auto head = [](const char* members) {
    const std::string text = print_show(Json::parse(
        fmt::format(R"({{"run": "tiny", "step": 10, "lineage": 1, "units": [], {}}})", members)));
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(head(R"("complete": true, "damaged_units": 0)"), "tiny~1@10, complete");
  EXPECT_EQ(head(R"("complete": true, "damaged_units": 2)"),
            "tiny~1@10, complete, 2 units DAMAGED");
  EXPECT_EQ(head(R"("complete": false, "damaged": "EIO", "damaged_units": 2)"),
            "tiny~1@10, NOT complete, DAMAGED");
}

TEST(Print, GrantsTellWhoMayNotConnect) {
  EXPECT_EQ(print_grants(Json::parse(R"({"run": "tiny", "owner": 1, "grants": [
              {"user": 7, "rights": ["read"]},
              {"user": 8, "rights": ["read", "commit"], "may_connect": false}]})")),
            "USER  MAY\n"
            "   1  everything: it is the owner's\n"
            "   7  read\n"
            "   8  read, commit\n"
            "user 8 may not connect yet: add 8 to allow_uids in ckptd's configuration file and "
            "restart ckptd\n");
}

TEST(Print, StatusShowsHowManySlabsAreEvictable) {
  EXPECT_THAT(
      print_status(Json::parse(R"({"arena_bytes": 67108864, "arena_bytes_max": 67108864,
                "warm_pool_bytes": 0, "slabs": {"free": 1, "leased": 2, "sealed": 0, "durable": 9,
                "held": 4}})")),
      testing::HasSubstr("arenas:    64.0 MiB of 64.0 MiB, 0 B prepared for new sessions; "
                         "slabs: 1 free, 2 leased, 9 durable, 4 held; 15 used, of which at most "
                         "13 evictable\n"));
}

TEST(Print, StatusShowsSnapshotsWaitingForDisk) {
  Json run = Json::parse(R"({"run": "tiny", "trained": true, "step": null, "failing": null,
    "waiting": {"snapshots": 3, "first_step": 5, "seconds": 25.0}})");
  const auto line = [&] { return print_status({{"durable", Json::array({run})}}); };
  EXPECT_THAT(line(), testing::HasSubstr("tiny      none yet    -        -  yes                 -  "
                                         "3 snapshots not written yet, the oldest, of step 5, for "
                                         "25 s\n"));
  run["waiting"]["seconds"] = 0.1;
  EXPECT_THAT(line(), testing::Not(testing::HasSubstr("not written yet")));
  run["trained"] = false;
  EXPECT_THAT(line(), testing::Not(testing::HasSubstr("none yet")));
  run["awaited"] = true;
  EXPECT_THAT(line(), testing::HasSubstr("  awaited "));
}

TEST(Print, KeepShowsRulesInWordsAndPins) {
  EXPECT_EQ(print_keep(Json::parse(R"({"run": "tiny", "rules": {"last": 2, "daily": 0,
              "every_steps": 20, "within_seconds": 604800, "tags": ["best"],
              "best": [{"metric": "loss", "count": 1, "highest": false}]},
              "pins": [{"step": 5, "lineage": 1}]})")),
            "run tiny keeps what one of these rules keeps:\n"
            "  --keep-last 2            the newest 2 commits\n"
            "  --keep-every-steps 20    the first of every 20 steps\n"
            "  --keep-within            all that are at most 7 d 0 h older than the newest\n"
            "  --keep-tag best          those with this tag\n"
            "  --keep-best loss:1       the 1 with the lowest loss\n"
            "pinned: tiny~1@5\n");
  EXPECT_EQ(print_keep(Json::parse(R"({"run": "tiny", "rules": {}, "pins": []})")),
            "run tiny has no rules: `ckptctl prune tiny` needs some, as in `ckptctl keep tiny "
            "--keep-last 5`\nno commit is pinned\n");
}

TEST(Print, ChangesOfHistoryAreSentences) {
  EXPECT_EQ(print_gc(Json::parse(R"({"freed_bytes": 1572864, "segments_removed": 2,
              "deletions_waiting": 1, "waiting_for": "a restore"})")),
            "1.5 MiB of disk space freed, 2 segments removed\n"
            "1 deletion still waits for a restore\n");
  EXPECT_EQ(print_gc(Json::parse(R"({"freed_bytes": 0, "segments_removed": 0})")),
            "nothing to free: the space of earlier removals is free already\n");
  EXPECT_EQ(print_gc(Json::parse(R"({"freed_bytes": 0, "segments_removed": 0,
              "deletions_waiting": 2, "waiting_for": "a restore"})")),
            "2 deletions still wait for a restore\n");
  EXPECT_EQ(print_pin(Json::parse(R"({"run": "tiny", "step": 5, "lineage": 1, "pinned": true})")),
            "tiny~1@5 is pinned: no rule removes it\n");
  EXPECT_EQ(print_tag(Json::parse(R"({"run": "tiny", "tag": "best", "step": 5, "lineage": 1})")),
            "tag best names tiny~1@5\n");
  EXPECT_EQ(print_tag(Json::parse(R"({"run": "tiny", "tag": "best", "step": 9, "lineage": 2,
              "moved_from": {"step": 5, "lineage": 1}})")),
            "tag best names tiny~2@9 (was tiny~1@5)\n");
  EXPECT_EQ(print_tag(Json::parse(R"({"run": "tiny", "tag": "best", "removed": true})")),
            "tag best removed from run tiny\n");
  EXPECT_EQ(
      print_wait(Json::parse(R"({"run": "tiny", "step": 5, "lineage": 3, "level": "durable"})")),
      "tiny~3@5 is durable\n");
  for (const auto print :
       {print_status, print_keep, print_gc, print_pin, print_tag, print_rebuild}) {
    EXPECT_THAT(print(Json::object()), testing::Not(testing::HasSubstr("{"))) << "no dump";
  }
}

}  // namespace
}  // namespace ckptctl

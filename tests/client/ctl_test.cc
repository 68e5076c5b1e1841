// Output and exit codes of ckptctl: the JSON members that scripts rely on.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "formats/safetensors.h"
#include "tests/client/ctl_fixture.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(Ctl, KeepRulesDecideWhatPruneKeeps) {
  EXPECT_EQ(json({"keep", "tiny"})["rules"]["last"], 0);
  json({"keep", "tiny", "--keep-last", "1", "--keep-best", "loss:1:highest", "--keep-tag", "a",
        "--keep-tag", "b", "--keep-within", "1h"});
  const Json rules = json({"keep", "tiny"})["rules"];
  EXPECT_EQ(rules["last"], 1);
  EXPECT_EQ(rules["best"][0]["highest"], true);
  EXPECT_EQ(rules["tags"], Json({"a", "b"}));
  EXPECT_EQ(rules["within_seconds"], 3600);
  EXPECT_EQ(ctl({"keep", "tiny", "--keep-within", "5s"}).exit_code, 2);
  EXPECT_THAT(ctl({"keep", "tiny", "--keep-tag", "a,b"}).err, HasSubstr("tag a,b"));
  EXPECT_THAT(ctl({"prune", "tiny", "--keep-tag", "of-nobody", "--yes"}).err,
              HasSubstr("match none of its"));
  EXPECT_EQ(ctl({"keep", "tiny", "--keep-best", "loss"}).exit_code, 2);
  EXPECT_THAT(ctl({"prune", "tiny", "--keep-last", "1", "--keep-best", "losss:1", "--yes"}).err,
              HasSubstr("none of its 2 commits has the metric losss"));
  EXPECT_EQ(ctl({"keep", "tiny", "--none", "--keep-last", "1"}).exit_code, 2);
  // An unset variable of a script must not make ckptctl use the run's own rules.
  for (const std::vector<std::string>& nothing : {std::vector<std::string>{"--keep-last", "0"},
                                                  {"--keep-every-steps", "0"},
                                                  {"--keep-within", ""},
                                                  {"--keep-tag", ""},
                                                  {"--keep-last", ""},
                                                  {"--keep-every-steps", "-1"},
                                                  {"--keep-every-steps", "99999999999999999999"}}) {
    for (std::vector<std::string> all :
         {std::vector<std::string>{"keep", "tiny"}, {"prune", "tiny", "--yes"}}) {
      all.insert(all.end(), nothing.begin(), nothing.end());
      const Finished refused = ctl(all);
      EXPECT_EQ(refused.exit_code, 2) << testing::PrintToString(all) << refused.err;
      EXPECT_THAT(refused.err, HasSubstr(nothing[0] == "--keep-tag" ? "tag" : nothing[0]));
    }
  }
  EXPECT_EQ(json({"keep", "tiny"})["rules"], rules);
  json({"keep", "tiny", "--none"});
  EXPECT_EQ(ctl({"prune", "tiny", "--yes"}).exit_code, 1) << "no rules: nothing goes by mistake";

  json({"pin", "tiny@10"});
  const Json pinned = json({"prune", "tiny", "--keep-last", "1", "--dry-run"});
  EXPECT_EQ(pinned["kept"].size(), 2u);
  EXPECT_EQ(pinned["kept"][1]["reasons"][0], "pinned");
  json({"unpin", "tiny@10"});
  const Finished dry = ctl({"prune", "tiny", "--keep-last", "1", "--dry-run"});
  EXPECT_THAT(dry.out, HasSubstr("1 kept, 1 would be removed"));
  EXPECT_EQ(json({"log", "tiny"}).size(), 2u);

  const Json pruned = json({"prune", "tiny", "--keep-last", "1", "--yes"});
  EXPECT_EQ(pruned["removed"][0]["step"], 10);
  EXPECT_EQ(pruned["removed"][0]["reason"], "no rule keeps it");
  EXPECT_EQ(json({"log", "tiny"}).size(), 1u);
  const Json deleted = json({"log", "tiny", "--deleted"});
  ASSERT_EQ(deleted.size(), 1u);
  expect_members(deleted[0], {"step", "lineage", "time", "deleted", "reason", "units_left"});
  EXPECT_THAT(ctl({"log", "tiny", "--deleted"}).out, testing::ContainsRegex("tiny@10 .*no rule"));
  const Json gc = json({"gc"});
  expect_members(gc, {"freed_bytes", "segments_removed", "deletions_waiting"});
  EXPECT_EQ(gc["deletions_waiting"], 0);
  EXPECT_EQ(json({"verify"})["errors"].size(), 0u);
  EXPECT_EQ(ctl({"show", "tiny@10"}).exit_code, 3);
}

TEST_F(Ctl, PinRefusesWholeRun) {
  const Finished whole_run = ctl({"pin", "tiny"});
  EXPECT_EQ(whole_run.exit_code, 2);
  EXPECT_THAT(whole_run.err, HasSubstr("name one, tiny@STEP or tiny@latest"));
}

TEST_F(Ctl, GrantsAreSetShownAndRevoked) {
  EXPECT_EQ(json({"grant", "tiny"})["grants"].size(), 0u);
  const Json granted = json({"grant", "tiny", "54321", "commit", "prune"});
  expect_members(granted, {"run", "owner", "grants"});
  EXPECT_EQ(granted["grants"][0]["user"], 54321);
  EXPECT_EQ(granted["grants"][0]["rights"], Json({"read", "commit", "prune"}));
  EXPECT_THAT(ctl({"grant", "tiny"}).out, HasSubstr("54321  read, commit, prune"));
  EXPECT_EQ(json({"grant", "tiny", "daemon", "read"})["grants"].size(), 2u) << "by name";
  EXPECT_EQ(json({"grant", "tiny", "54321", "--revoke"})["grants"].size(), 1u);
  EXPECT_EQ(ctl({"grant", "tiny", "54321", "--revoke"}).exit_code, 3);
  EXPECT_EQ(ctl({"grant", "tiny", "54321"}).exit_code, 2);
  EXPECT_EQ(ctl({"grant", "tiny", "54321", "write"}).exit_code, 2);
  EXPECT_EQ(ctl({"grant", "tiny", "54321", "read", "--revoke"}).exit_code, 2);
  const Finished nobody = ctl({"grant", "tiny", "no-such-user", "read"});
  EXPECT_EQ(nobody.exit_code, 3);
  EXPECT_THAT(nobody.err, HasSubstr("user no-such-user: no such user on this machine"));
}

TEST_F(Ctl, HistoryHasStableJsonMembers) {
  const Json runs = json({"runs"});
  ASSERT_EQ(runs.size(), 1u);
  expect_members(runs[0], {"run", "parent", "created", "last_step", "commits", "bytes"});
  EXPECT_EQ(runs[0]["last_step"], 20);
  const Json log = json({"log", "tiny"});
  ASSERT_EQ(log.size(), 2u);
  expect_members(log[0], {"step", "lineage", "time", "level", "units", "experts", "bytes", "tags",
                          "metrics", "plt", "lost_so_far"});
  EXPECT_EQ(log[0]["step"], 20);
  EXPECT_EQ(log[0]["metrics"]["loss"], 2.5);
  EXPECT_EQ(json({"log", "tiny", "--limit", "1"}).size(), 1u);
  const Json show = json({"show", "tiny@10"});
  EXPECT_EQ(show["complete"], true);
  ASSERT_EQ(show["units"].size(), 3u);
  expect_members(show["units"][0], {"unit", "version_step", "staleness", "bytes", "crc32c", "layer",
                                    "expert", "part"});
  const Json unit = json({"unit", "tiny", "trainer"});
  EXPECT_EQ(unit["versions"].size(), 2u);
  const Json experts = json({"experts", "tiny"});
  expect_members(experts["layers"][0]["experts"][0],
                 {"expert", "version_step", "staleness", "lost_tokens", "lost_so_far"});
  const Json plan = json({"restore", "--plan", "tiny@latest"});
  ASSERT_FALSE(plan["sources"].empty());
  expect_members(plan["sources"][0], {"source", "bytes", "seconds"});
}

// The optimizer's bytes are equal at both steps, and the daemon's alarm policy is warn.
TEST_F(Ctl, ShowsAlarmsAndExpertMap) {
  const Json alarms = json({"alarms", "tiny"});
  ASSERT_EQ(alarms.size(), 1u) << alarms;
  EXPECT_EQ(alarms[0]["kind"], "unchanged");
  EXPECT_EQ(alarms[0]["unit"], "layers.0.experts.1.optimizer");
  EXPECT_EQ(alarms[0]["step"], 20);
  EXPECT_EQ(alarms[0]["version_step"], 10);
  EXPECT_EQ(alarms[0]["refused"], false);
  EXPECT_EQ(json({"log", "tiny"})[0]["alarms"], 1);
  EXPECT_NE(ctl({"alarms", "tiny"}).out.find("unchanged since step 10 (checksum equal)"),
            std::string::npos);
  EXPECT_EQ(ctl({"experts", "tiny"}).out,
            "tiny~1@20: tokens each expert would lose in a restore\n"
            "none of 1 expert in 1 layer would lose a token; --list shows the version "
            "of each\n");
  const std::string svg = daemon_.folder().path("experts.svg");
  EXPECT_EQ(ctl({"experts", "tiny", "--by", "staleness", "--svg", svg}).exit_code, 0);
  EXPECT_NE(read(svg).find("<title>layer 0 expert 1: 0 steps</title>"), std::string::npos);
  EXPECT_THAT(ctl({"experts", "tiny", "--list"}).out, HasSubstr("LOST TOKENS  LOST SO FAR"));
  EXPECT_THAT(ctl({"experts", "tiny", "--by", "lost-so-far"}).out,
              HasSubstr("tiny~1@20: tokens each expert has lost so far\n"));
  EXPECT_EQ(ctl({"experts", "tiny", "--by", "heat"}).exit_code, 2);
}

// The expert of step 30 is in memory only, as long as its trainer lives.
TEST_F(Ctl, ExpertMapIncludesMemoryLevelOnRequest) {
  auto session = train(as_rank(0, 1));
  ASSERT_OK(session);
  commit(*session, 30, {0, 1});
  const auto expert = [this](std::vector<std::string> arguments) {
    return json(std::move(arguments))["layers"][0]["experts"][0];
  };
  EXPECT_EQ(expert({"experts", "tiny"})["version_step"], 20);
  EXPECT_EQ(expert({"experts", "tiny"})["staleness"], 10);
  EXPECT_EQ(expert({"experts", "tiny", "--memory"})["version_step"], 30);
  EXPECT_EQ(expert({"experts", "tiny", "--memory"})["staleness"], 0);
  EXPECT_THAT(ctl({"experts", "tiny", "--by", "staleness"}).out, HasSubstr("to 10"));
  EXPECT_THAT(ctl({"experts", "tiny", "--by", "staleness", "--memory"}).out,
              Not(HasSubstr("to 10")));
  ASSERT_OK(session->leave());
}

TEST_F(Ctl, PrintsTables) {
  const Finished log = ctl({"log", "tiny"});
  EXPECT_EQ(log.exit_code, 0);
  EXPECT_EQ(std::count(log.out.begin(), log.out.end(), '\n'), 3);
  EXPECT_NE(log.out.find("loss=2.5"), std::string::npos) << log.out;
  EXPECT_NE(ctl({"show", "tiny@latest"}).out.find("tiny~1@20, complete"), std::string::npos);
  EXPECT_NE(ctl({"status"}).out.find(":"), std::string::npos);
}

TEST_F(Ctl, DiffMeasuresTheChange) {
  const Json diff = json({"diff", "tiny@10", "tiny@20"});
  std::map<std::string, Json> units;
  for (const Json& unit : diff["units"]) units[unit["unit"]] = unit;
  ASSERT_EQ(units.size(), 2u);  // the optimizer's bytes are the same
  EXPECT_EQ(units["layers.0.experts.1.weights"]["change"], "changed");
  EXPECT_DOUBLE_EQ(units["layers.0.experts.1.weights"]["relative_norm"], 1.0);  // 10 -> 20
  EXPECT_TRUE(units["trainer"]["relative_norm"].is_null());
}

TEST_F(Ctl, ExportIsHuggingFaceFolder) {
  const std::string out = daemon_.folder().path("model");
  const Json exported = json({"export", "tiny@10", "--out", out});
  EXPECT_EQ(exported["tensors"], 1);
  EXPECT_EQ(Json::parse(read(out + "/config.json"))["model_type"], "mixtral");
  const std::string file = read(out + "/model.safetensors");
  const auto header = safetensors::parse_header(as_bytes(file), file.size());
  ASSERT_OK(header);
  ASSERT_EQ(header->tensors.size(), 1u);
  EXPECT_EQ(header->tensors[0].name, "model.w");
  float first = 0;
  std::memcpy(&first, file.data() + header->data_offset, sizeof first);
  EXPECT_EQ(first, 10.0f);
  const std::string shards = daemon_.folder().path("shards");
  json({"export", "tiny", "--out", shards, "--include-optimizer", "--shard-bytes", "4KiB"});
  const Json index = Json::parse(read(shards + "/model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"]["optimizer.model.w.m"], "model-00002-of-00002.safetensors");
  // One folder holds one layout, or a reader would load the wrong one.
  EXPECT_EQ(ctl({"export", "tiny", "--out", shards}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(shards + "/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(shards + "/model.safetensors.index.json"));
  EXPECT_FALSE(std::filesystem::exists(shards + "/model-00001-of-00002.safetensors"));
}

TEST_F(Ctl, TagsNameCommits) {
  EXPECT_EQ(json({"tag", "tiny@10", "best"})["tag"], "best");
  EXPECT_EQ(json({"show", "tiny@best"})["step"], 10);
  EXPECT_EQ(json({"log", "tiny"})[1]["tags"], Json::array({"best"}));
  EXPECT_EQ(ctl({"untag", "tiny@20", "best"}).exit_code, 2) << "it is not of that step";
  EXPECT_EQ(json({"untag", "tiny", "best"})["removed"], true);
  EXPECT_EQ(ctl({"show", "tiny@best"}).exit_code, 3);
}

TEST_F(Ctl, DamagedJournalIsDetectedAndRewritten) {
  const Json log = json({"log", "tiny"});
  const std::string path = daemon_.data() + "/journal/journal.log";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(12'600);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(12'600);
    file.put(byte);
  }
  const Finished rebuilt = ctl({"rebuild"});
  EXPECT_EQ(rebuilt.exit_code, 4);
  EXPECT_THAT(rebuilt.err + rebuilt.out, testing::HasSubstr("journal/journal.log"));
  EXPECT_EQ(json({"log", "tiny"}), log) << "nothing was given up";
  const Finished verified = ctl({"verify"});
  EXPECT_EQ(verified.exit_code, 4);
  EXPECT_THAT(verified.out, testing::HasSubstr("journal/journal.log: journal at offset"));
  EXPECT_EQ(ctl({"scrub", "--rate", "1GiB"}).exit_code, 4);
  daemon_.crash_and_restart();
  EXPECT_EQ(json({"log", "tiny"}), log);
  EXPECT_EQ(ctl({"verify"}).exit_code, 0);
  EXPECT_EQ(ctl({"rebuild"}).exit_code, 0);
  EXPECT_EQ(json({"log", "tiny"}), log);
  EXPECT_TRUE(std::filesystem::exists(daemon_.data() + "/journal/damaged-1.log"));
  EXPECT_THAT(daemon_.log(), testing::HasSubstr("the damaged one is kept as"));
}

TEST_F(Ctl, RebuildReproducesHistory) {
  json({"tag", "tiny@10", "best"});
  const Json log = json({"log", "tiny"});
  const Json show = json({"show", "tiny@20"});
  json({"rebuild"});
  EXPECT_EQ(json({"log", "tiny"}), log);
  EXPECT_EQ(json({"show", "tiny@20"}), show);
  EXPECT_EQ(daemon_.stop(), 0);
  std::filesystem::remove_all(daemon_.data() + "/catalog");
  daemon_.start();
  EXPECT_EQ(json({"log", "tiny"}), log);
  EXPECT_EQ(json({"show", "tiny@20"}), show);
}

TEST_F(Ctl, VerifyNamesUnitWithFlippedByte) {
  EXPECT_TRUE(json({"verify"})["errors"].empty());
  EXPECT_EQ(daemon_.stop(), 0);
  damage_weights_of(10);
  daemon_.start();
  const Json report = json({"verify", "tiny"}, 4);
  ASSERT_EQ(report["errors"].size(), 1u) << report;
  EXPECT_EQ(report["errors"][0]["run"], "tiny");
  EXPECT_EQ(report["errors"][0]["step"], 10);
  EXPECT_EQ(report["errors"][0]["unit"], "layers.0.experts.1.weights");
  const Finished text = ctl({"verify"});
  EXPECT_EQ(text.exit_code, 4);
  EXPECT_NE(text.out.find("tiny~1@10 unit layers.0.experts.1.weights"), std::string::npos);
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"log", "tiny"}, std::vector<std::string>{"show", "tiny@10"}}) {
    const Finished marked = ctl(verb);
    EXPECT_EQ(marked.exit_code, 0) << marked.err;
    EXPECT_THAT(marked.out, HasSubstr("unit layers.0.experts.1.weights is damaged: segment 1"));
    EXPECT_THAT(marked.out, HasSubstr("what to do: a restore takes"));
  }
  const Finished refused = ctl({"export", "tiny@10", "--out", daemon_.folder().path("damaged")});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_EQ(refused.out, "");
}

TEST_F(Ctl, ScrubRemembersDamagedUnitsAcrossRestart) {
  const Json whole = json({"scrub"});
  expect_members(whole, {"state", "pass", "last_pass", "errors", "bytes_per_second",
                         "interval_seconds", "commits_waiting", "store_bytes"});
  EXPECT_TRUE(whole["errors"].empty());
  EXPECT_EQ(whole["last_pass"]["commits"], 2);
  EXPECT_EQ(whole["last_pass"]["checked_bytes"], json({"verify"})["checked_bytes"]);
  EXPECT_EQ(daemon_.stop(), 0);
  damage_weights_of(10);
  daemon_.start();
  EXPECT_EQ(json({"scrub", "--status"})["last_pass"], whole["last_pass"]) << "it finds nothing new";
  const Json report = json({"scrub", "--rate", "1GiB"}, 4);
  ASSERT_EQ(report["errors"].size(), 1u) << report;
  EXPECT_EQ(report["errors"][0]["run"], "tiny");
  EXPECT_EQ(report["errors"][0]["step"], 10);
  EXPECT_EQ(report["errors"][0]["unit"], "layers.0.experts.1.weights");
  daemon_.crash_and_restart();
  const Finished status = ctl({"scrub", "--status"});
  EXPECT_EQ(status.exit_code, 4);
  EXPECT_THAT(status.out, HasSubstr("tiny~1@10 unit layers.0.experts.1.weights"));
  EXPECT_THAT(status.out, HasSubstr("2 commits, 1 UNIT IS KNOWN TO BE DAMAGED"));
  EXPECT_THAT(daemon_.log(), HasSubstr("scrub: tiny~1@10 unit"));
  EXPECT_EQ(json({"status"})["scrub"]["damaged_units"], 1);
  for (const char* rate : {"1", "fast", "-1GiB", "1023KiB", "99999999999GiB"}) {
    EXPECT_EQ(ctl({"scrub", "--rate", rate}).exit_code, 2) << rate;
  }
  EXPECT_EQ(ctl({"scrub", "--status", "--rate", "1GiB"}).exit_code, 2);
}

// Lineage 2 forks at 10. Step 20 of lineage 1 is in an abandoned future and is never exported.
TEST_F(Ctl, ExportFallsBackWithinItsLineage) {
  client::JoinOptions resumed = as_rank(0, 1);
  resumed.resume = CKPT_RESUME_AT_STEP;
  resumed.resume_step = 10;
  auto session = train(resumed);
  ASSERT_OK(session);
  commit(*session, 30);
  ASSERT_OK(session->leave());
  EXPECT_EQ(daemon_.stop(), 0);
  damage_weights_of(30);
  daemon_.start();
  const std::string out = daemon_.folder().path("fallback");
  const Finished exact = ctl({"export", "tiny@30", "--exact", "--out", out});
  EXPECT_EQ(exact.exit_code, 4) << exact.err;
  const Json exported = json({"export", "tiny@30", "--out", out});
  EXPECT_EQ(exported["step"], 10);
  ASSERT_EQ(exported["fallbacks"].size(), 1u);
  EXPECT_EQ(exported["fallbacks"][0]["view"], "tiny@30");
}

TEST_F(Ctl, SuggestsSimilarRun) {
  EXPECT_EQ(ctl({"log", "tin"}).err, "ckptctl: run tin: no such run; did you mean `tiny`?\n");
  EXPECT_EQ(ctl({"log", "nobody"}).err,
            "ckptctl: run nobody: no such run; `ckptctl runs` lists them\n");
}

// ckptctl has no ranks: a reader is one session.
TEST(CtlArena, ExportWithoutRoomNamesArenaOfDaemon) {
  const DaemonProcess daemon({"--arena", "8MiB"});
  const Finished refused =
      run_program({program("ckptctl"), "export", "tiny@10", "--out", daemon.folder().path("out")},
                  {"CKPTD_SOCKET=unix:" + daemon.socket()});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("start ckptd with an --arena of 16.0 MiB or more"));
  EXPECT_THAT(refused.err, Not(HasSubstr("rank")));
}

TEST_F(Ctl, ExitCodesTellKindOfFailure) {
  EXPECT_EQ(ctl({"log", "nobody"}).exit_code, 3);
  EXPECT_EQ(ctl({"show", "tiny@15"}).exit_code, 3);
  EXPECT_EQ(ctl({"unit", "tiny", "nothing"}).exit_code, 3);
  EXPECT_EQ(ctl({"show", "tiny@@"}).exit_code, 2);
  EXPECT_EQ(ctl({"show"}).exit_code, 2);
  EXPECT_EQ(ctl({"bogus"}).exit_code, 2);
  for (const char* none : {"", "unix:"}) {
    EXPECT_EQ(ctl({"runs", "--socket", none}).exit_code, 2) << "CKPTD_SOCKET is not meant";
  }
  EXPECT_EQ(ctl({"export", "tiny", "--out", "x", "--shard-bytes", "lots"}).exit_code, 2);
  EXPECT_EQ(ctl({"wait", "tiny@99", "--timeout", "10ms"}).exit_code, 1);
  EXPECT_EQ(ctl({"wait", "tiny@20"}).exit_code, 0);
  EXPECT_EQ(ctl({"--help"}).exit_code, 0);
  const Finished nobody =
      run_program({program("ckptctl"), "runs", "--socket", "/nonexistent/sock"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_NE(nobody.err.find("/nonexistent/sock"), std::string::npos) << nobody.err;
}

}  // namespace
}  // namespace ckpt::test

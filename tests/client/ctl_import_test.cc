// ckptctl import and rm: exports come back unchanged, hostile folders give one error sentence, and
// removed commits are gone.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "tests/client/ctl_fixture.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;

TEST_F(Ctl, ImportOfExportReproducesIt) {
  const auto export_to = [&](const std::string& view, const std::string& folder,
                             std::vector<std::string> more) {
    std::vector<std::string> arguments = {"export", view, "--out", daemon_.folder().path(folder)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::map<std::string, std::string> files;
    const Json exported = json(arguments);
    for (const Json& name : exported["files"]) {
      files[name] = read(daemon_.folder().path(folder) + "/" + name.get<std::string>());
    }
    return files;
  };
  const std::vector<std::vector<std::string>> ways = {
      {}, {"--include-optimizer"}, {"--resumable"}, {"--resumable", "--shard-bytes", "4KiB"}};
  for (size_t i = 0; i < ways.size(); ++i) {
    const std::string copy = "copy" + std::to_string(i);
    const auto first = export_to("tiny@10", "first" + std::to_string(i), ways[i]);
    const bool resumable = !ways[i].empty() && ways[i][0] == "--resumable";
    const Json imported =
        json({"import", daemon_.folder().path("first" + std::to_string(i)), "--run", copy});
    EXPECT_EQ(imported["step"], 10);
    EXPECT_EQ(imported["resumable"], resumable);
    EXPECT_EQ(json({"show", copy + "@10"})["complete"], true);
    EXPECT_EQ(export_to(copy + "@10", "again" + std::to_string(i), ways[i]), first);
    if (!resumable) continue;
    // The trainer's own unit holds the step, so another --step is refused.
    const Finished moved = ctl({"import", daemon_.folder().path("first" + std::to_string(i)),
                                "--run", "moved", "--step", "11"});
    EXPECT_EQ(moved.exit_code, 2);
    EXPECT_THAT(moved.err, HasSubstr("--step 11"));
    EXPECT_THAT(moved.err, HasSubstr("; leave --step out\n"));
    EXPECT_TRUE(json({"diff", "tiny@10", copy + "@10"})["units"].empty());
    EXPECT_EQ(json({"unit", copy, "layers.0.experts.1.optimizer"})["part"], "optimizer");
  }
  // A folder that is not from an export, with a configuration of its own, is not overwritten.
  const std::string out = daemon_.folder().path("first0");
  EXPECT_EQ(ctl({"export", "tiny@10", "--out", out}).exit_code, 0) << "an export is";
  std::filesystem::remove(out + "/ckptd.json");
  EXPECT_THAT(ctl({"export", "tiny@20", "--out", out}).err,
              HasSubstr("model.safetensors exists and is not from an export"));
  const Json imported = json({"import", out, "--run", "theirs", "--step", "3"});
  EXPECT_EQ(imported["units"], 1) << "of the model";
  EXPECT_EQ(json({"show", "theirs@3"})["units"][1]["unit"], "ckptd.files");
  EXPECT_EQ(json({"show", "theirs@3"})["units"][0]["unit"], "model.w");
  const auto theirs = export_to("theirs@3", "theirs", {});
  EXPECT_EQ(theirs.at("model.safetensors"), read(out + "/model.safetensors"));
  EXPECT_EQ(theirs.at("config.json"), read(out + "/config.json"));
  EXPECT_THAT(ctl({"import", out, "--run", "theirs"}).err, HasSubstr("it has commits"));
  const Finished last = ctl({"import", out, "--run", "last", "--step", "18446744073709551615"});
  EXPECT_EQ(last.exit_code, 2);
  EXPECT_THAT(last.err, HasSubstr("--step 18446744073709551615: a commit's step is a number from"));
}

TEST_F(Ctl, ImportRefusesInvalidFiles) {
  const std::string out = daemon_.folder().path("model");
  json({"export", "tiny@10", "--out", out, "--include-optimizer", "--shard-bytes", "4KiB"});
  const std::string shard = out + "/model-00002-of-00002.safetensors";
  const std::string whole = read(shard);
  const auto refused = [&](const std::string& path, const std::string& bytes) {
    const std::string before = read(path);
    std::ofstream(path, std::ios::binary) << bytes;
    const Finished finished = ctl({"import", out, "--run", "hostile"});
    EXPECT_EQ(finished.exit_code, 1) << finished.err;
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    std::ofstream(path, std::ios::binary) << before;
    return finished.err;
  };
  EXPECT_THAT(refused(shard, ""), HasSubstr(shard));
  EXPECT_THAT(refused(shard, whole.substr(0, 7)), HasSubstr(shard));
  EXPECT_THAT(refused(shard, whole.substr(0, whole.size() - 1)), HasSubstr(shard));
  EXPECT_THAT(refused(shard, std::string(8, '\xff') + whole.substr(8)), HasSubstr(shard));
  EXPECT_THAT(refused(shard, whole + "x"), HasSubstr(shard));
  const std::string index = out + "/model.safetensors.index.json";
  EXPECT_THAT(refused(index, R"({"weight_map": {"w": "../../secret"}})"),
              HasSubstr("not a relative path"));
  EXPECT_THAT(refused(index, R"({"weight_map": {"w": "nothing.safetensors"}})"),
              HasSubstr("nothing.safetensors: there is no such file"));
  EXPECT_THAT(refused(index, std::string(5000, '[')), HasSubstr("nested"));
  EXPECT_THAT(refused(out + "/ckptd.json", "{}"), HasSubstr("ckptd.json: format is missing"));
  Json manifest = Json::parse(read(out + "/ckptd.json"));
  manifest["step"] = UINT64_MAX;
  EXPECT_THAT(refused(out + "/ckptd.json", manifest.dump()),
              HasSubstr("/ckptd.json: step 18446744073709551615: a commit's step"));
  std::filesystem::remove(out + "/ckptd.json");
  EXPECT_THAT(refused(out + "/config.json", "{"), HasSubstr("config.json: not JSON"));
  EXPECT_THAT(ctl({"import", daemon_.folder().path("nowhere"), "--run", "x"}).err,
              HasSubstr("nowhere: there is no such folder"));
  EXPECT_THAT(ctl({"import", out + "/config.json", "--run", "x"}).err,
              HasSubstr("config.json: it is no folder"));
  EXPECT_EQ(ctl({"import", out, "--run", "-x"}).exit_code, 2);
  EXPECT_EQ(json({"runs"}).size(), 1u) << "nothing came of all that";
}

TEST_F(Ctl, ImportRefusesDamagedOrExchangedWeights) {
  const std::string folder = daemon_.folder().path("backup");
  const std::string other = daemon_.folder().path("other");
  json({"export", "tiny@20", "--out", folder, "--resumable"});
  json({"export", "tiny@10", "--out", other, "--resumable"});
  const std::string weights = folder + "/model.safetensors";
  const std::string whole = read(weights);
  const std::string of_step_10 = read(other + "/model.safetensors");
  ASSERT_EQ(of_step_10.size(), whole.size());
  std::string flipped = whole;
  flipped.back() ^= 1;
  for (const std::string& bytes : {flipped, of_step_10}) {
    std::ofstream(weights, std::ios::binary) << bytes;
    const Finished refused = ctl({"import", folder, "--run", "copy"});
    EXPECT_EQ(refused.exit_code, 4) << refused.err;
    EXPECT_THAT(refused.err,
                HasSubstr(weights + ": it is not the file that the export of step 20"));
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    EXPECT_EQ(json({"runs"}).size(), 1u) << "no run is begun";
    const Finished over = ctl({"export", "tiny@20", "--out", folder, "--resumable"});
    EXPECT_EQ(over.exit_code, 1) << over.err;
    EXPECT_THAT(over.err, HasSubstr(weights + " is not the file that ckptd.json lists, or has "
                                              "changed since that export"));
    EXPECT_EQ(read(weights), bytes);
  }

  std::ofstream(weights, std::ios::binary) << whole;
  std::ofstream(folder + "/config.json") << R"({"model_type": "edited"})";
  EXPECT_EQ(json({"import", folder, "--run", "copy"})["resumable"], true);
  EXPECT_TRUE(json({"diff", "tiny@20", "copy@20"})["units"].empty());
  // The remedy for a file that was changed on purpose.
  std::ofstream(weights, std::ios::binary) << flipped;
  std::filesystem::remove(folder + "/ckptd.json");
  EXPECT_EQ(json({"import", folder, "--run", "theirs"})["resumable"], false);
}

TEST_F(Ctl, RunsAreRemovedWhenNothingProtectsThem) {
  json({"tag", "tiny@10", "best"});
  const Finished tagged = ctl({"rm", "tiny", "--yes"});
  EXPECT_EQ(tagged.exit_code, 1);
  EXPECT_THAT(tagged.err, HasSubstr("tag best of tiny~1@10; --force"));
  const Finished unconfirmed = ctl({"rm", "tiny", "--force"});
  EXPECT_EQ(unconfirmed.exit_code, 2) << "there is no terminal to ask at";
  EXPECT_THAT(unconfirmed.err, HasSubstr("pass --yes, or --dry-run"));
  EXPECT_EQ(json({"log", "tiny"}).size(), 2u) << "nothing was removed";
  const Finished dry = ctl({"rm", "tiny", "--force", "--dry-run"});
  EXPECT_THAT(dry.out, HasSubstr("0 kept, 2 would be removed"));
  EXPECT_THAT(dry.out, testing::EndsWith("run tiny would be removed\n"));
  EXPECT_EQ(json({"rm", "tiny@10", "--force", "--yes"})["removed"][0]["step"], 10);
  EXPECT_THAT(ctl({"log", "tiny", "--deleted"}).out, HasSubstr("removed by user"));
  json({"rm", "tiny", "--yes"});
  EXPECT_TRUE(json({"runs"}).empty());
  const Json removed = json({"runs", "--removed"});
  ASSERT_EQ(removed.size(), 1u);
  expect_members(removed[0], {"run", "created", "removed", "reason", "commits", "bytes"});
  EXPECT_THAT(ctl({"runs", "--removed"}).out, HasSubstr("removed by user"));
  EXPECT_EQ(ctl({"rm", "tiny", "--yes"}).exit_code, 3);
  EXPECT_EQ(ctl({"rm"}).exit_code, 2) << "not from the environment";
}

TEST_F(Ctl, RemovingEmptyRunReportsRemoval) {
  {
    client::OpenOptions options;
    options.socket = daemon_.socket();
    options.run = "empty";
    options.arena_bytes = 4 << 20;
    options.slab_bytes = 256 << 10;
    auto session = client::Session::open(options);
    ASSERT_OK(session);
    const std::vector<client::UnitInfo> units = {
        {"trainer", -1, -1, "", 8, {{"step", "U64", {}, 0}}}};
    ASSERT_OK(session->register_units(units, "{}"));
  }
  ASSERT_EQ(json({"runs"}).size(), 2u);
  EXPECT_THAT(ctl({"rm", "empty", "--dry-run"}).out,
              testing::EndsWith("run empty would be removed\n"));
  const Finished removed = ctl({"rm", "empty", "--yes"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_THAT(removed.out, testing::EndsWith("run empty is removed\n"));
  EXPECT_EQ(json({"runs"}).size(), 1u);
}

TEST_F(Ctl, FailedImportSuggestsRemedyForRun) {
  const std::string folder = daemon_.folder().path("copy");
  json({"export", "tiny@10", "--out", folder});
  // A ckptd that may not use any byte of its disk.
  const std::filesystem::space_info space = std::filesystem::space(daemon_.folder().path("."));
  const uint64_t reserve = (space.capacity + space.available) / 2;
  DaemonProcess full({"--disk-reserve", std::to_string(reserve) + "B"});
  const Finished failed = run_program({program("ckptctl"), "import", folder, "--run", "other"},
                                      {"CKPTD_SOCKET=unix:" + full.socket()});
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  EXPECT_THAT(failed.err,
              HasSubstr("warning: the import of run other may not be complete: look "
                        "with `ckptctl log other`; without a commit, repeat the import, "
                        "or remove the run with `ckptctl rm other`"));
}

TEST_F(Ctl, EnvironmentRunIsDefaultForReadingVerbs) {
  const std::string folder = daemon_.folder().path("copy");
  json({"export", "tiny@10", "--out", folder, "--resumable"});
  json({"import", folder, "--run", "other"});
  const std::vector<std::vector<std::string>> verbs = {
      {"log"},  {"show"},   {"experts"}, {"alarms"},
      {"keep"}, {"verify"}, {"unit"},    {"restore", "--plan"}};
  for (std::vector<std::string> verb : verbs) {
    SCOPED_TRACE(verb[0]);
    std::vector<std::string> said = verb;
    said.emplace_back("tiny");
    if (verb[0] == "unit") said.emplace_back("trainer");
    if (verb[0] == "unit") verb.emplace_back("trainer");
    const Finished without = ctl(said);
    EXPECT_EQ(without.exit_code, 0) << without.err;
    const bool plan = verb[0] == "restore";  // it has an estimate of a time
    const Finished beside = ctl(said, "other");
    EXPECT_EQ(beside.exit_code, 0) << beside.err;
    if (!plan) {
      EXPECT_EQ(beside.out, without.out) << "what is said counts";
    }
    if (verb[0] == "verify") continue;  // of the whole store
    const Finished instead = ctl(verb, "tiny");
    EXPECT_EQ(instead.exit_code, 0) << instead.err;
    if (!plan) {
      EXPECT_EQ(instead.out, without.out);
    }
    EXPECT_EQ(ctl(verb).exit_code, 2);
  }
  EXPECT_EQ(ctl({"keep", "tiny", "--keep-last", "7"}, "other").exit_code, 0);
  EXPECT_EQ(json({"keep", "tiny"})["rules"]["last"], 7);
  EXPECT_EQ(json({"keep", "other"})["rules"]["last"], 0);
  EXPECT_EQ(ctl({"verify", "nobody"}, "tiny").exit_code, 3);
  EXPECT_EQ(json({"diff", "other@10", "tiny@10"})["units"].size(), 0u);
  EXPECT_THAT(ctl({"unit", "tiny"}).err, HasSubstr("the argument `unit` is missing"));
  for (const char* verb : {"rm", "prune"}) {
    EXPECT_EQ(ctl({verb}, "tiny").exit_code, 2) << "what goes is said";
  }
}

}  // namespace
}  // namespace ckpt::test

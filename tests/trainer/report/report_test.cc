#include "trainer/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tests/trainer/report/sample.h"

namespace moetrain::report {
namespace {

using ckpt::ErrorCode;
using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

json sample_json() { return json::parse(to_json(sample_report())); }

// The message with which `document` is refused; empty if it is accepted.
std::string refusal(const json& document) {
  const auto report = parse_report(document.dump(), "run.json");
  if (report.ok()) return {};
  EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument);
  return report.error().message;
}

TEST(ReportJson, RoundTrips) {
  const std::string written = to_json(sample_report());
  const auto read = parse_report(written, "run.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(to_json(*read), written);
  EXPECT_EQ(read->failures.at(0).bytes.total(), sample_report().failures[0].bytes.total());
  EXPECT_EQ(read->losses.size(), 60U);
}

TEST(ReportJson, HasStableFields) {
  const json document = sample_json();
  EXPECT_EQ(document.at("ranks"), 4);
  EXPECT_EQ(document.at("tokens_per_step"), 2048);
  EXPECT_EQ(document.at("step_ms").at("p99"), 310.25);
  EXPECT_EQ(document.at("checkpoints").at("stall_ms_max"), 6.125);
  const json& rank_bytes = document.at("checkpoints").at("rank_bytes");
  EXPECT_EQ(rank_bytes.at("max"), 3 << 20) << "of the busiest";
  EXPECT_EQ(rank_bytes.at("mean"), 2 << 20);
  EXPECT_EQ(rank_bytes.at("max_over_mean"), 1.5);
  EXPECT_EQ(document.at("checkpoints").at("each").at(1).at("step"), 20);
  EXPECT_EQ(document.at("checkpoint_every"), 5);
  EXPECT_EQ(document.at("experts_per_checkpoint"), 2);
  EXPECT_EQ(document.at("experts_per_snapshot"), 3);
  EXPECT_EQ(document.at("checkpoints").at("bytes_kept"), 2 << 20);
  EXPECT_EQ(document.at("checkpoints").at("each").at(0).at("bytes_kept"), 2 << 20);
  EXPECT_EQ(document.at("reason"), "storage sustains 5 steps");
  EXPECT_EQ(document.at("on_loss"), "restart");
  EXPECT_EQ(document.at("on_loss_reason"), "as asked for");
  EXPECT_EQ(document.at("failures").at(0).at("ranks"), json::array({2}));
  EXPECT_EQ(document.at("failures").at(0).at("at_step"), 30);
  EXPECT_EQ(document.at("failures").at(0).at("bytes").at("memory"), 5 << 20);
  EXPECT_EQ(document.at("daemon_failures").at(0).at("down_ms"), 1180);
  EXPECT_EQ(document.at("saved_step"), 60);
  EXPECT_EQ(document.at("unsaved").at(0).at("cause"), "ckptd at /s does not answer");
  EXPECT_EQ(document.at("changes").at(0).at("joined"), json::array({4, 5}));
  EXPECT_EQ(document.at("changes").at(0).at("effective_replicas"), 2);
  EXPECT_EQ(document.at("changes").at(0).at("migrate_ms"), 13.5);
  EXPECT_EQ(document.at("changes").at(0).at("memory_bytes"), 6u << 20);
  EXPECT_EQ(document.at("changes").at(0).at("memory_bound"), 70u << 20);
  EXPECT_EQ(document.at("final_loss"), document.at("losses").at(59).at("loss"));
  EXPECT_EQ(document.at("loads").at(2),
            json({{"step", 3}, {"busiest_tokens", 4099}, {"max_over_mean", 1.75}}));
  EXPECT_EQ(document.at("max_over_mean"), 1.375) << "the mean of 1, 1.25, 1.5, 1.75";
  EXPECT_TRUE(json::parse(to_json(Report{})).at("max_over_mean").is_null());
}

TEST(ReportJson, PartsOfCheckpointAreMilliseconds) {
  const json parts = sample_json().at("checkpoints").at("each").at(0).at("parts_ms");
  EXPECT_EQ(parts.size(), 8u);
  EXPECT_EQ(parts.at("slab_wait"), 1);
  EXPECT_EQ(parts.at("sync"), 10.000001);
  const auto read = parse_report(to_json(sample_report()), "run.json");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->checkpoints.each.at(0).timings, sample_report().checkpoints.each[0].timings);
}

TEST(ReportJson, PartsMayBeMissingButNotWrong) {
  json document = sample_json();
  json& checkpoint = document["checkpoints"]["each"][0];
  checkpoint["parts_ms"]["copy"] = -1;
  EXPECT_THAT(refusal(document), HasSubstr("copy is no duration"));
  checkpoint["parts_ms"].erase("copy");
  EXPECT_EQ(refusal(document), "");
  checkpoint.erase("parts_ms");
  EXPECT_EQ(refusal(document), "") << "a report from before";
}

TEST(ReportJson, OlderReportsMayLackCheckpointFields) {
  json document = sample_json();
  for (const char* name : {"checkpoint_every", "experts_per_checkpoint", "reason"}) {
    document.erase(name);
  }
  document["checkpoints"].erase("each");
  document["checkpoints"].erase("rank_bytes");
  EXPECT_EQ(refusal(document), "");
  document["checkpoint_every"] = -1;
  EXPECT_THAT(refusal(document), HasSubstr("checkpoint_every is not a count"));
  document["checkpoint_every"] = 1;
  document["experts_per_checkpoint"] = uint64_t{1} << 32;
  EXPECT_THAT(refusal(document), HasSubstr("experts_per_checkpoint is too large"));
  document.erase("experts_per_checkpoint");
  document["checkpoints"]["each"] = json::array({json::object()});
  EXPECT_THAT(refusal(document), HasSubstr("checkpoints.each[0].step is missing"));
}

TEST(ReportJson, LossBitsAreExactForEveryFloat) {
  Report report = sample_report(1);
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    // Any 32 bits: denormals, infinities, quiet and signalling NaN among them.
    const auto bits = i == 0 ? 0x7f800000U : i == 1 ? 0x80000000U : random();
    report.losses[0].loss = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const std::string written = to_json(report);
    const auto read = parse_report(written, "run.json");
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(to_json(*read), written);
    ASSERT_EQ(json::parse(written)["losses"][0]["loss_bits"], fmt::format("{:08x}", bits));
  }
}

TEST(ReportJson, NonFiniteLossIsNull) {
  Report report = sample_report(2);
  report.losses[1].loss = std::bit_cast<float>(0x7fc00000U);
  const json document = json::parse(to_json(report));
  EXPECT_TRUE(document["losses"][1]["loss"].is_null());
  EXPECT_EQ(document["losses"][1]["loss_bits"], "7fc00000");
  EXPECT_TRUE(document["final_loss"].is_null());
}

TEST(ReportJson, UnknownTimesAreNull) {
  Report report = sample_report();
  report.failures[0].detected_ms.reset();
  report.failures[0].resumed_ms.reset();
  report.daemon_failures[0].down_ms.reset();
  json document = json::parse(to_json(report));
  EXPECT_TRUE(document["failures"][0].at("detected_ms").is_null());
  EXPECT_TRUE(document["failures"][0].at("resumed_ms").is_null());
  EXPECT_TRUE(document["daemon_failures"][0].at("down_ms").is_null());
  const auto read = parse_report(document.dump(), "run.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_FALSE(read->failures[0].detected_ms);
  EXPECT_FALSE(read->failures[0].resumed_ms);
  EXPECT_FALSE(read->daemon_failures[0].down_ms);
  document["failures"][0]["detected_ms"] = "soon";
  EXPECT_EQ(refusal(document), "run.json: failures[0].detected_ms is not a number");
  document["failures"][0].erase("detected_ms");
  EXPECT_THAT(refusal(document), HasSubstr("failures[0].detected_ms is missing"));
}

TEST(ReportJson, ErrorsNameTheField) {
  json document = sample_json();
  document["failures"][0].erase("resumed_ms");
  EXPECT_EQ(refusal(document), "run.json: failures[0].resumed_ms is missing (expected a number)");
  document = sample_json();
  document["ranks"] = -1;
  EXPECT_EQ(refusal(document), "run.json: ranks is not a count");
  document = sample_json();
  document["checkpoints"]["bytes"] = "many";
  EXPECT_EQ(refusal(document), "run.json: checkpoints.bytes is not a count");
  document = sample_json();
  document["losses"][3]["step"] = 3;
  EXPECT_EQ(refusal(document), "run.json: losses[3].step does not ascend");
  document = sample_json();
  document["failures"][0]["ranks"][0] = 1ULL << 40;
  EXPECT_THAT(refusal(document), HasSubstr("failures[0].ranks"));
  document = sample_json();
  document["changes"][0]["left"][0] = "one";
  EXPECT_EQ(refusal(document), "run.json: changes[0].left holds something that is no rank");
  document = sample_json();
  document["changes"][0]["group"] = 1ULL << 32;
  EXPECT_EQ(refusal(document), "run.json: changes[0].group is too large");
  document = sample_json();
  document["loads"][3]["step"] = 3;
  EXPECT_EQ(refusal(document), "run.json: loads[3].step does not ascend");
  for (const char* bits : {"", "4008000", "400800000", "4008000g", "0x400800", "+4008000"}) {
    document = sample_json();
    document["losses"][0]["loss_bits"] = bits;
    EXPECT_EQ(refusal(document), "run.json: losses[0].loss_bits is not 8 hex digits") << bits;
  }
}

TEST(ReportJson, RefusesReplansThatCannotBeDrawn) {
  const json replan = sample_json().at("replans").at(0);
  EXPECT_EQ(replan.at("moved"), true);
  EXPECT_EQ(replan.at("max_over_mean"), json({{"before", 1.75}, {"after", 1.125}}));
  EXPECT_EQ(replan.at("ranks").at("after"), json({{0}, {0, 1, 2, 3}}));
  const auto refused = [&](const char* pointer, const json& value) {
    json document = sample_json();
    document["replans"][0][json::json_pointer(pointer)] = value;
    return refusal(document);
  };
  EXPECT_THAT(refused("/ranks/after", {{0}, {0, 4}}),
              HasSubstr("replans[0].ranks.after holds something that is no expert with a load"));
  EXPECT_THAT(refused("/ranks/after", {{0}, {-1}}), HasSubstr("ranks.after holds something"));
  EXPECT_THAT(refused("/ranks/before", {0, 1}), HasSubstr("no list of experts"));
  EXPECT_THAT(refused("/ranks/after", json::array({{0, 1, 2, 3}})), HasSubstr("number of ranks"));
  EXPECT_THAT(refused("/ranks/before", json::array()), HasSubstr("before leaves an expert out"));
  EXPECT_THAT(refused("/ranks/after", {{0, 1}, {2}}), HasSubstr("after leaves an expert out"));
  EXPECT_THAT(refused("/loads", json::array()), HasSubstr("loads is empty"));
  EXPECT_THAT(refused("/loads", {1, 2, 3, "x"}), HasSubstr("loads holds something"));
  EXPECT_THAT(refused("/moved", 1), HasSubstr("moved is neither true nor false"));
  EXPECT_THAT(refused("/layer", uint64_t{1} << 32), HasSubstr("layer is too large"));
}

TEST(ReportJson, RefusesInvalidRankTimes) {
  EXPECT_EQ(sample_json().at("rank_times").at(1).at("slowest"), 54);
  const auto refused = [&](const char* field, const json& value) {
    json document = sample_json();
    document["rank_times"][1][field] = value;
    return refusal(document);
  };
  EXPECT_THAT(refused("rank", 0), HasSubstr("rank_times[1].rank does not ascend"));
  EXPECT_THAT(refused("rank", uint64_t{1} << 32), HasSubstr("rank_times[1].rank is too large"));
  EXPECT_THAT(refused("slowest", 61), HasSubstr("slowest is more than all steps"));
  EXPECT_THAT(refused("own_ms", "long"), HasSubstr("own_ms is not a number"));
}

TEST(ReportJson, ExchangeIsCompleteOrNull) {
  EXPECT_EQ(sample_json().at("exchange").at("restore_bytes"), 5u << 20);
  json document = sample_json();
  document["exchange"].erase("hidden_ms");
  EXPECT_THAT(refusal(document), HasSubstr("exchange.hidden_ms is missing"));
  document["exchange"] = nullptr;
  EXPECT_EQ(refusal(document), "");
  Report unknown = sample_report();
  unknown.exchange.reset();
  EXPECT_TRUE(json::parse(to_json(unknown)).at("exchange").is_null());
}

TEST(ReportJson, MissingRequiredFieldIsRefused) {
  const json whole = sample_json();
  for (const auto& field : whole.items()) {
    json document = whole;
    document.erase(field.key());
    const std::set<std::string> optionals = {"changes",
                                             "checkpoint_every",
                                             "daemon_failures",
                                             "exchange",
                                             "experts_per_checkpoint",
                                             "experts_per_snapshot",
                                             "final_loss",
                                             "loads",
                                             "lost_tokens",
                                             "max_over_mean",
                                             "on_loss",
                                             "on_loss_reason",
                                             "plt",
                                             "plt_rollback",
                                             "rank_times",
                                             "reason",
                                             "replans",
                                             "saved_step",
                                             "unsaved"};
    const bool optional = optionals.contains(field.key());
    EXPECT_EQ(refusal(document).empty(), optional) << field.key();
    document[field.key()] = "text";
    const std::set<std::string> anything = {"final_loss", "max_over_mean", "on_loss",
                                            "on_loss_reason", "reason"};
    EXPECT_EQ(refusal(document).empty(), anything.contains(field.key())) << field.key();
  }
}

TEST(ReportJson, LostTokensAreCounts) {
  for (const json& wrong : {json(-1), json(1.5), json("7"), json(UINT64_MAX)}) {
    json document = sample_json();
    document["lost_tokens"][2] = wrong;
    EXPECT_EQ(refusal(document), "run.json: lost_tokens [2] is not a count") << wrong;
  }
}

TEST(ReportJson, UnknownFieldsAreIgnored) {
  json document = sample_json();
  document["later"] = {1, 2};
  document["losses"][0]["later"] = true;
  EXPECT_EQ(refusal(document), "");
}

TEST(ReportJson, HostileBytesAreRefusedOrRead) {
  const std::string whole = to_json(sample_report(5));
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (uint32_t changes = random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % 2 == 0 ? bytes.size() : random() % bytes.size());
    const auto report = parse_report(bytes, "run.json");
    if (!report.ok()) {
      ASSERT_THAT(report.error().message, StartsWith("run.json: "));
    }
  }
  EXPECT_FALSE(parse_report(std::string(100'000, '['), "deep").ok());
}

class ReportFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/report_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return folder_ + "/" + name; }
  size_t file_count() const {
    const std::filesystem::directory_iterator files(folder_);
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }

 private:
  std::string folder_;
};

TEST_F(ReportFile, IsReplacedAsAWhole) {
  ASSERT_TRUE(write_file(path("a.json"), "old").ok());
  ASSERT_TRUE(write_file(path("a.json"), to_json(sample_report())).ok());
  const auto read = read_report(path("a.json"));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(sample_report()));
  EXPECT_EQ(file_count(), 1U);
}

TEST_F(ReportFile, ErrorsNameTheFile) {
  const auto missing = read_report(path("none.json"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("none.json: cannot open"));
  EXPECT_TRUE(check_writable(path("a.json")).ok()) << "whether it is there or not";
  EXPECT_TRUE(check_writable("a.json").ok());
  const std::map<std::string, std::string> refused = {
      {path("none/a.json"),
       path("none/a.json") + ": cannot create it in " + path("none") + ": No such file"},
      {path(""), "is a folder"}};
  for (const auto& [file, says] : refused) {
    const auto writable = check_writable(file);
    ASSERT_FALSE(writable.ok()) << file;
    EXPECT_NE(writable.error().message.find(says), std::string::npos) << writable.error().message;
  }
  const auto status = write_file(path("none/a.json"), "x");
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("none/a.json: cannot write: No such file"));
}

TEST_F(ReportFile, PipeIsWrittenNotReplaced) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  // A FIFO that is opened for both directions blocks no one.
  std::fstream pipe(path("pipe"), std::ios::in | std::ios::out);
  ASSERT_TRUE(write_file(path("pipe"), "hello\n").ok());
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
  std::string line;
  std::getline(pipe, line);
  EXPECT_EQ(line, "hello");
}

TEST_F(ReportFile, IsReadFromRegularFilesOnly) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& file : {path(""), path("pipe")}) {
    const auto read = read_report(file);
    ASSERT_FALSE(read.ok()) << file;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(read.error().message, file + ": not a regular file");
  }
}

}  // namespace
}  // namespace moetrain::report

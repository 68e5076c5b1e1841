// The table and the file of gpu_bench.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/gpu/report.h"
#include "tests/support/temp_folder.h"

namespace bench::gpu {
namespace {

Paired paired(const std::vector<double>& limit, const std::vector<double>& engine) {
  size_t a = 0, b = 0;
  Contest contest;
  contest.prepare = [] { return ckpt::Status(); };
  contest.limit = [&] { return Result<double>(limit[a++ % limit.size()]); };
  contest.engine = [&] { return Result<double>(engine[b++ % engine.size()]); };
  contest.progress = [](const std::string&) {};
  return measure_pairs(exactly(12), contest).value();
}

Row row(double pass_ratio, bool must = true) {
  Row row;
  row.what = "pack";
  row.unit = "GB/s";
  row.limit_name = "a copy";
  row.pass_ratio = pass_ratio;
  row.must = must;
  return row;
}

TEST(GpuReport, AVerdictNeedsABoundAndAQuietLimit) {
  EXPECT_EQ(measured(row(0.6), paired({100}, {70})).verdict, "pass");
  EXPECT_EQ(measured(row(0.6), paired({100}, {50})).verdict, "fail");
  EXPECT_EQ(measured(row(0.6, false), paired({100}, {50})).verdict, "below aim");
  EXPECT_EQ(measured(row(0.6, false), paired({100}, {70})).verdict, "pass");
  EXPECT_EQ(measured(row(0), paired({100}, {50})).verdict, "measured");
  const Row noisy = measured(row(0.6), paired({100, 150}, {90, 135}));
  EXPECT_EQ(noisy.verdict, "inconclusive");
  EXPECT_NE(noisy.reason.find("does not repeat itself"), std::string::npos);
}

TEST(GpuReport, ABoundStaysThoughWhatItIsAboutDidNotComeAbout) {
  for (const double engine : {50.0, 70.0}) {
    Row other = row(0.6);
    other.can_show = false;
    other.reason = "the copy does not fit";
    const Row inconclusive = measured(other, paired({100}, {engine}));
    EXPECT_EQ(inconclusive.verdict, "inconclusive");
    EXPECT_EQ(inconclusive.reason, "the copy does not fit");
    EXPECT_TRUE(summary_of({inconclusive})
                    .starts_with("bounds that must hold: 0 shown, 0 missed, 1 inconclusive;"));
  }
}

TEST(GpuReport, TheTableHasALineForEachRow) {
  Row skipped = row(0);
  skipped.what = "a rather long name of a check";
  skipped.verdict = "skipped";
  skipped.reason = "no CUDA device";
  const std::string table = to_table({measured(row(0.6), paired({2000}, {1500})), skipped});
  EXPECT_NE(table.find("pack "), std::string::npos);
  EXPECT_NE(table.find("1500.00    2000.00  GB/s     0.750 [0.750, 0.750]   0.60  pass\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("skipped: no CUDA device\n"), std::string::npos);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4);
  EXPECT_TRUE(table.ends_with(
      "bounds that must hold: 1 shown, 0 missed, 0 inconclusive; all else: 0 passed, 0 failed, 1 "
      "skipped, which shows nothing\n"))
      << table;
}

TEST(GpuReport, OnlyBoundsThatMustHoldAreCountedAsShown) {
  const Row noisy = measured(row(0.6), paired({100, 150}, {90, 135}));
  const Row aim = measured(row(0.6, false), paired({100}, {70}));
  const std::string summary =
      summary_of({measured(row(0.6), paired({100}, {50})), noisy, aim,
                  measured(row(0), paired({100}, {50})), told("checks", "pass", "")});
  EXPECT_EQ(summary,
            "bounds that must hold: 0 shown, 1 missed, 1 inconclusive; all else: 2 passed, 0 "
            "failed, 0 skipped, which shows nothing");
}

TEST(GpuReport, ARowIsSaidInOneLine) {
  EXPECT_EQ(to_line(measured(row(0.6), paired({2000}, {1500}))),
            "pack: 1500.00 of 2000.00 GB/s, 0.750: pass");
  EXPECT_EQ(to_line(told("checks", "skipped", "no GPU")), "checks: skipped: no GPU");
}

TEST(GpuReport, TheDocumentIsJsonWithEveryFigure) {
  Row skipped = row(0);
  skipped.verdict = "skipped";
  skipped.reason = "a \"quoted\" \\ reason\n";
  Facts facts{{"device", "Some \"GPU\""}, {"commit", "abc"}};
  set_fact(facts, {"pairs", "12", /*is_number=*/true});
  set_fact(facts, {"commit", "def"});
  const std::string text = to_json(facts, {measured(row(0.6), paired({2000}, {1500})), skipped});
  const nlohmann::json document = nlohmann::json::parse(text);
  EXPECT_EQ(document["device"], "Some \"GPU\"");
  EXPECT_EQ(document["pairs"], 12);
  EXPECT_EQ(document["commit"], "def");
  EXPECT_EQ(text.find("abc"), std::string::npos);
  const nlohmann::json& first = document["results"][0];
  EXPECT_EQ(first["verdict"], "pass");
  EXPECT_EQ(first["value"], 1500);
  EXPECT_EQ(first["limit"], 2000);
  EXPECT_EQ(first["ratio_interval"], (nlohmann::json{0.75, 0.75}));
  EXPECT_EQ(first["runs"].size(), 12u);
  const nlohmann::json& second = document["results"][1];
  EXPECT_EQ(second["reason"], "a \"quoted\" \\ reason\n");
  EXPECT_TRUE(second["pass_ratio"].is_null());
  EXPECT_FALSE(second.contains("value"));
}

TEST(GpuReport, ANumberThatJsonDoesNotKnowIsNull) {
  const std::string text = to_json({}, {measured(row(0), paired({0}, {1}))});
  EXPECT_TRUE(nlohmann::json::parse(text)["results"][0]["ratio_to_limit"].is_null());
}

TEST(GpuReport, FilesAreNamedAfterTheDevice) {
  EXPECT_EQ(file_name_for("NVIDIA H200", true), "gpu-nvidia-h200.json");
  EXPECT_EQ(file_name_for("NVIDIA H200", false), "gpu-nvidia-h200-part.json");
  EXPECT_EQ(file_name_for("NVIDIA A100-SXM4 (80GB)/x", true), "gpu-nvidia-a100-sxm4-80gb-x.json");
  EXPECT_EQ(file_name_for("../..", true), "gpu-.json");
}

TEST(GpuReport, AFileIsReplacedAsAWholeOrNotAtAll) {
  ckpt::test::TempFolder folder;
  const std::string path = folder.path("gpu-x.json");
  ASSERT_TRUE(write_file(path, "old and longer").ok());
  ASSERT_TRUE(write_file(path, "new").ok());
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  EXPECT_EQ(content.str(), "new");
  const std::string nowhere = folder.path("no such folder/gpu-x.json");
  const ckpt::Status refused = write_file(nowhere, "new");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(nowhere), std::string::npos);
}

}  // namespace
}  // namespace bench::gpu

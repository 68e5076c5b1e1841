// The rows of gpu_bench: for people, for the shell, and as JSON.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/service/gpu/report.h"

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

TEST(GpuReport, VerdictNeedsBoundAndSteadyLimit) {
  EXPECT_EQ(measured(row(0.6), paired({100}, {70})).verdict, "pass");
  EXPECT_EQ(measured(row(0.6), paired({100}, {50})).verdict, "fail");
  EXPECT_EQ(measured(row(0.6, false), paired({100}, {50})).verdict, "below aim");
  EXPECT_EQ(measured(row(0.6, false), paired({100}, {70})).verdict, "pass");
  EXPECT_EQ(measured(row(0), paired({100}, {50})).verdict, "measured");
  const Row noisy = measured(row(0.6), paired({100, 150}, {90, 135}));
  EXPECT_EQ(noisy.verdict, "inconclusive");
  EXPECT_NE(noisy.reason.find("does not repeat itself"), std::string::npos);
}

TEST(GpuReport, BoundedRowStaysBoundedWhenInconclusive) {
  for (const double engine : {50.0, 70.0}) {
    Row other = row(0.6);
    other.can_show = false;
    other.reason = "the copy does not fit";
    const Row inconclusive = measured(other, paired({100}, {engine}));
    EXPECT_EQ(inconclusive.verdict, "inconclusive");
    EXPECT_EQ(inconclusive.reason, "the copy does not fit");
    EXPECT_TRUE(to_record(inconclusive).starts_with("row\tbound\tinconclusive\t"));
  }
}

TEST(GpuReport, TheTableHasALineForEachRow) {
  const std::string line = to_table_line(measured(row(0.6), paired({2000}, {1500})));
  EXPECT_TRUE(line.starts_with("pack "));
  EXPECT_TRUE(line.ends_with("1500.00    2000.00  GB/s     0.750 [0.750, 0.750]    0.60  pass"))
      << line;
  const Row skipped = text_row("a rather long name of a check that is longer than its column",
                               "skipped", "no CUDA device");
  const std::string long_line = to_table_line(skipped);
  EXPECT_TRUE(long_line.starts_with(skipped.what + " "));
  EXPECT_TRUE(long_line.ends_with("skipped: no CUDA device"));
  EXPECT_EQ(table_head().find("verdict"), line.find("pass"));
}

TEST(GpuReport, RecordHasKindVerdictAndTexts) {
  const auto fields_of = [](const Row& row) {
    std::vector<std::string> fields(1);
    for (const char c : to_record(row)) {
      if (c == '\t') {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    return fields;
  };
  const Row bounded = measured(row(0.6), paired({100}, {50}));
  EXPECT_EQ(fields_of(bounded),
            (std::vector<std::string>{"row", "bound", "fail", "pack", to_table_line(bounded),
                                      to_json(bounded)}));
  EXPECT_EQ(fields_of(measured(row(0.6, false), paired({100}, {70})))[1], "other");
  EXPECT_EQ(fields_of(measured(row(0), paired({100}, {50})))[1], "other");
  const auto odd = fields_of(text_row("checks", "fail", "two\tfields\non two lines"));
  ASSERT_EQ(odd.size(), 6u);
  EXPECT_TRUE(odd[4].ends_with("fail: two fields on two lines")) << odd[4];
}

TEST(GpuReport, RowFitsOneLine) {
  EXPECT_EQ(to_line(measured(row(0.6), paired({2000}, {1500}))),
            "pack: 1500.00 of 2000.00 GB/s, 0.750: pass");
  EXPECT_EQ(to_line(text_row("checks", "skipped", "no GPU")), "checks: skipped: no GPU");
}

TEST(GpuReport, TheJsonOfARowHasEveryFigure) {
  const std::string text = to_json(measured(row(0.6), paired({2000}, {1500})));
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const nlohmann::json first = nlohmann::json::parse(text);
  EXPECT_EQ(first["verdict"], "pass");
  EXPECT_EQ(first["must"], true);
  EXPECT_EQ(first["value"], 1500);
  EXPECT_EQ(first["limit"], 2000);
  EXPECT_EQ(first["ratio_interval"], (nlohmann::json{0.75, 0.75}));
  EXPECT_EQ(first["runs"].size(), 12u);
  const nlohmann::json second =
      nlohmann::json::parse(to_json(text_row("", "skipped", "a \"quoted\" \\ reason\n")));
  EXPECT_EQ(second["reason"], "a \"quoted\" \\ reason\n");
  EXPECT_TRUE(second["pass_ratio"].is_null());
  EXPECT_FALSE(second.contains("value"));
}

TEST(GpuReport, NonFiniteNumberBecomesNull) {
  const std::string text = to_json(measured(row(0), paired({0}, {1})));
  EXPECT_TRUE(nlohmann::json::parse(text)["ratio_to_limit"].is_null());
}

TEST(GpuReport, MembersOfADocumentAreQuoted) {
  EXPECT_EQ(text_member("device", "Some \"GPU\""), R"("device": "Some \"GPU\"")");
  EXPECT_EQ(number_member("multiprocessors", 132), R"("multiprocessors": 132)");
}

}  // namespace
}  // namespace bench::gpu

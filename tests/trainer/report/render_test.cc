#include "trainer/report/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "tests/trainer/report/sample.h"
#include "trainer/report/canvas.h"
#include "trainer/report/curve.h"
#include "trainer/report/text.h"
#include "trainer/report/ticks.h"

namespace moetrain::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

size_t count_of(const std::string& text, const std::string& needle) {
  size_t count = 0;
  for (size_t at = text.find(needle); at != std::string::npos; at = text.find(needle, at + 1)) {
    ++count;
  }
  return count;
}

TEST(Human, FormatsDurations) {
  EXPECT_EQ(human_ms(0), "0.0 ms");
  EXPECT_EQ(human_ms(9.99), "10.0 ms");
  EXPECT_EQ(human_ms(999.4), "999 ms");
  EXPECT_EQ(human_ms(2130), "2.1 s");
  EXPECT_EQ(human_ms(59'960), "1 min 0 s");
  EXPECT_EQ(human_ms(3'725'000), "1 h 2 min");
}

TEST(ReplanTable, HasRowForEachReplan) {
  const auto lines = lines_of(replan_table_text(sample_report()));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], HasSubstr("after step"));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("20"), HasSubstr("1.750    1.125"), HasSubstr("6.0 MiB"),
                              HasSubstr("28 ms")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("40"), HasSubstr("stayed")));
  EXPECT_EQ(replan_table_text(Report{}), "");
}

TEST(RankTable, ShowsWaitsAndSlowestRank) {
  const auto lines = lines_of(rank_table_text(sample_report()));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[2], AllOf(HasSubstr("150 ms"), HasSubstr("90 %"), HasSubstr("50 ms")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("0 %"), HasSubstr("-")));
  EXPECT_EQ(rank_table_text(Report{}), "");
}

TEST(ExchangeTable, ShowsExchangeOfShardedExpertsOnly) {
  Report report = sample_report();
  const auto lines = lines_of(exchange_table_text(report));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[1], AllOf(HasSubstr("3.0 MiB"), HasSubstr("5.0 MiB"), HasSubstr("4.0 MiB"),
                              HasSubstr("38 ms"), HasSubstr("9.0 MiB"), HasSubstr("1.375")));
  report.exchange->memory_bound = 0;
  EXPECT_EQ(exchange_table_text(report), "");
  EXPECT_EQ(exchange_table_text(Report{}), "");
}

TEST(TicksTest, AreRoundInRangeAndDistinct) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0, 1}, {1.87, 5.62}, {-3, 3}, {0.0011, 0.0012}, {1, 60}, {0, 1e9}, {5, 5}, {0, 0}}) {
    for (int wanted = 2; wanted < 12; ++wanted) {
      const Ticks ticks = make_ticks(low, high, wanted);
      ASSERT_LE(ticks.values.size(), static_cast<size_t>(2 * wanted + 1));
      ASSERT_GE(ticks.values.size(), 1U) << low << " " << high << " " << wanted;
      for (size_t i = 0; i < ticks.values.size(); ++i) {
        if (high > low) {
          ASSERT_GE(ticks.values[i], low - 1e-9 * ticks.step);
          ASSERT_LE(ticks.values[i], high + ticks.step * 1e-6);
        }
        if (i == 0) continue;
        ASSERT_NEAR(ticks.values[i] - ticks.values[i - 1], ticks.step, ticks.step * 1e-6);
        ASSERT_NE(tick_label(ticks, ticks.values[i]), tick_label(ticks, ticks.values[i - 1]));
      }
    }
  }
  EXPECT_EQ(tick_label(make_ticks(0, 1, 6), 0.4), "0.4");
  EXPECT_EQ(tick_label(make_ticks(-1, 1, 3), make_ticks(-1, 1, 3).values[1]), "0");
}

TEST(CurveTest, OmitsNonFiniteLosses) {
  Report report = sample_report(10);
  report.losses[4].loss = std::numeric_limits<float>::quiet_NaN();
  report.losses[5].loss = std::numeric_limits<float>::infinity();
  const Curve curve = make_curve(report);
  EXPECT_EQ(curve.points.size(), 8U);
  EXPECT_LT(curve.y_high, 10);
  report.losses.clear();
  EXPECT_TRUE(make_curve(report).points.empty());
}

TEST(CurveTest, RunningMeanIsNotShifted) {
  std::vector<Point> line;
  for (int i = 0; i < 20; ++i) line.push_back({static_cast<double>(i), 3.0 * i});
  const auto means = running_mean(line, 5);
  ASSERT_EQ(means.size(), 16U);
  for (size_t i = 0; i < means.size(); ++i) {
    EXPECT_EQ(means[i].x, line[i + 2].x);
    EXPECT_NEAR(means[i].y, line[i + 2].y, 1e-9);
  }
  const auto spike = running_mean({{0, 0}, {1, 3}, {2, 0}}, 3);
  ASSERT_EQ(spike.size(), 1U);
  EXPECT_DOUBLE_EQ(spike[0].y, 1);
  EXPECT_TRUE(running_mean(line, 21).empty());
}

TEST(CurveTest, ThinningKeepsExtremesAndEnds) {
  Report report = sample_report(100'000);
  report.losses[70'000].loss = 9;
  const Curve curve = make_curve(report);
  const auto kept = thin_out(curve, curve.points, 500);
  EXPECT_LE(kept.size(), 1002U);
  EXPECT_EQ(kept.back().x, curve.points.back().x);
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const Point& p) { return p.y == 9; }));
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(),
                             [](const Point& a, const Point& b) { return a.x < b.x; }));
}

TEST(CanvasTest, DrawsDotsAndClips) {
  Canvas canvas(2, 1, /*unicode=*/true);
  canvas.dot(0, 0);
  canvas.dot(3, 3);
  canvas.dot(-1, 0);
  canvas.dot(4, 0);
  canvas.dot(0, 4);
  EXPECT_EQ(canvas.row_text(0), "\u2801\u2880");
  canvas.text(1, 0, "\u250axyz");
  EXPECT_EQ(canvas.row_text(0), "\u2801\u250a");
  Canvas ascii(3, 3, /*unicode=*/false);
  ascii.line(0, 0, 2, 2);
  EXPECT_EQ(ascii.row_text(1), " * ");
  EXPECT_FALSE(ascii.empty(1, 1));
  EXPECT_TRUE(ascii.empty(0, 1));
}

TEST(TextChart, FitsEveryWidthAndNamesEachFailure) {
  const Report report = sample_report();
  for (const bool unicode : {true, false}) {
    for (int columns = 30; columns < 160; columns += 7) {
      const std::string chart =
          loss_chart_text(report, {.columns = columns, .rows = 10, .unicode = unicode});
      for (const std::string& line : lines_of(chart)) ASSERT_LE(display_width(line), columns);
      ASSERT_THAT(chart, AllOf(HasSubstr("rank 2"), HasSubstr("ckptd")));
    }
  }
}

TEST(TextChart, FallsFromTopLeftToBottomRight) {
  Report report = sample_report();
  report.failures.clear();
  report.daemon_failures.clear();
  const auto lines =
      lines_of(loss_chart_text(report, {.columns = 80, .rows = 12, .unicode = false}));
  size_t column = 0;
  for (int row = 0; row < 12; ++row) {
    const size_t here = lines[static_cast<size_t>(row)].find('*');
    if (here == std::string::npos) continue;
    EXPECT_GE(here, column);
    column = here;
  }
  EXPECT_GT(column, 40U);
}

TEST(TextChart, ColoursOnlyOnRequest) {
  const Report report = sample_report();
  EXPECT_THAT(loss_chart_text(report, {.color = false}), Not(HasSubstr("\x1b")));
  const std::string colored = loss_chart_text(report, {.color = true});
  EXPECT_GT(count_of(colored, "\x1b[0m"), 10U);
  for (const std::string& line : lines_of(colored)) {
    if (line.find("\x1b[3") != std::string::npos) {
      EXPECT_THAT(line, testing::EndsWith("\x1b[0m"));
    }
  }
}

TEST(TextChart, HandlesDegenerateReports) {
  Report report;
  EXPECT_EQ(loss_chart_text(report, {}), "no finite loss to draw\n");
  report.losses.push_back({.step = 1, .loss = 2});
  EXPECT_THAT(loss_chart_text(report, {}), HasSubstr("2.0"));
  report.losses[0].loss = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(loss_chart_text(report, {}), "no finite loss to draw\n");
  Report far = sample_report(3);
  far.failures[0].step = 1'000'000;  // beyond the curve: at its edge, not outside
  for (const auto& line : lines_of(loss_chart_text(far, {}))) EXPECT_LE(display_width(line), 80);
}

TEST(Svg, HasCurveMarkersAndText) {
  const std::string svg = loss_chart_svg(sample_report(), {.title = "a < b & \"c\""});
  EXPECT_THAT(svg, testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("<title>a &lt; b &amp; &quot;c&quot;</title>"));
  EXPECT_EQ(count_of(svg, "<polyline"), 2U);
  EXPECT_EQ(count_of(svg, "class=\"failure\""), 2U);
  EXPECT_EQ(count_of(svg, "class=\"redone\""), 1U);
  EXPECT_THAT(svg, HasSubstr("rank 2 lost, back in 2.1 s, 3 steps redone"));
  EXPECT_THAT(svg, HasSubstr("ckptd lost, back in 1.2 s"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Svg, StaysSmallForLongRuns) {
  EXPECT_LT(loss_chart_svg(sample_report(200'000), {}).size(), 100'000U);
}

TEST(Svg, HandlesDegenerateReports) {
  EXPECT_THAT(loss_chart_svg({}, {}), HasSubstr("no finite loss to draw"));
  Report report = sample_report(1);
  report.failures[0].steps_lost = 100;
  const std::string svg = loss_chart_svg(report, {.width = 1, .height = 1});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("\"-")));  // nothing left of or above the picture
}

TEST(Tables, NameEachFailureInOrder) {
  const auto lines = lines_of(failure_table_text(sample_report()));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[0], AllOf(testing::StartsWith("at step"), HasSubstr("steps redone")));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("21  checkpoints"),
                              HasSubstr("ckptd at /s does not answer; no checkpoint until step 30 "
                                        "(34.5 s)")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("30  rank 2"), HasSubstr("5.0 MiB from memory"),
                              HasSubstr("3.0 MiB from disk"), HasSubstr("  1500  "),
                              HasSubstr(", 2 experts from the seed")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("40  ckptd"), HasSubstr("1.2 s")));
  EXPECT_EQ(failure_table_text({}), "no failures\n");
  Report outside = sample_report();
  outside.failures[0].detected_ms.reset();
  EXPECT_THAT(failure_table_text(outside), HasSubstr("rank 2        not known  "));
}

TEST(Tables, FailureShowsStepOfLostRank) {
  Report report = sample_report();
  report.failures[0].at_step = 31;  // no rank completed this step
  EXPECT_THAT(failure_table_text(report), HasSubstr("31  rank 2"));
  report.failures[0].at_step = 0;  // as reports were before
  EXPECT_THAT(failure_table_text(report), HasSubstr("30  rank 2"));
}

TEST(Tables, NameProcessesThatNeverReturned) {
  Report report = sample_report();
  report.failures[0].resumed_ms.reset();
  report.daemon_failures[0].down_ms.reset();
  const auto lines = lines_of(failure_table_text(report));
  EXPECT_THAT(lines.at(2), AllOf(HasSubstr("rank 2"), HasSubstr("  not back  ")));
  EXPECT_THAT(lines.at(3), AllOf(HasSubstr("ckptd"), HasSubstr("  not back  ")));
  const std::string svg = loss_chart_svg(report, {});
  EXPECT_THAT(svg, AllOf(HasSubstr("rank 2 lost, not back"), HasSubstr("ckptd lost, not back")));
}

TEST(Tables, ReportUnsavedSteps) {
  Report report;
  report.saved_step = 20;
  report.unsaved = {{.since = 20, .until = 60, .ms = 500, .cause = "the disk is full (buy one)"}};
  EXPECT_THAT(failure_table_text(report),
              AllOf(HasSubstr("21  checkpoints"), Not(HasSubstr("no failures")),
                    HasSubstr("the disk is full; steps 21 to 60 are in no checkpoint (500 ms)\n")));
  EXPECT_THAT(summary_text(report), HasSubstr("\nthe newest durable checkpoint is of step 20\n"));
  EXPECT_THAT(summary_text(report),
              AllOf(HasSubstr("\nno recovery lost a token's update; the updates of 40 steps were "
                              "not saved\n"),
                    Not(HasSubstr("no token's update is lost"))));
  report.plt = 0.25;
  EXPECT_THAT(summary_text(report),
              HasSubstr("that came back alone); the updates of 40 steps were not saved\n"));
  report.saved_step = 0;
  EXPECT_THAT(summary_text(report), HasSubstr("\nno step is in a durable checkpoint\n"));
  report.losses = {{1, 2.5F}, {2, 2.0F}};
  EXPECT_THAT(loss_chart_svg(report, {}),
              AllOf(HasSubstr(", 1 period without a checkpoint"), Not(HasSubstr("no failures"))));
}

TEST(Tables, SummaryHasRunFigures) {
  const std::string text = summary_text(sample_report());
  EXPECT_THAT(text, HasSubstr("60 steps of 2048 tokens on 4 ranks, loss 5."));
  EXPECT_THAT(text, HasSubstr("12 checkpoints, 115.7 MiB written, 2.0 MiB in memory only"));
  EXPECT_THAT(text,
              HasSubstr("no checkpoint after step 20 until step 30 (34.5 s): ckptd at /s does "
                        "not answer\n"));
  Report unsaved = sample_report();
  unsaved.unsaved[0].saved = false;
  EXPECT_THAT(summary_text(unsaved), HasSubstr("\nsteps 21 to 30 are in no checkpoint (34.5 s): "));
  EXPECT_THAT(summary_text(unsaved, Printed::kBefore),
              AllOf(Not(HasSubstr("are in no checkpoint")),
                    HasSubstr("\nthe newest durable checkpoint is of step ")));
  EXPECT_THAT(text,
              HasSubstr("after step 15: ranks 4, 5 joined, rank 1 left, 5 ranks, each expert "
                        "on 2 or more; 7.0 MiB moved in 15 ms, with 6.0 MiB of expert memory, of "
                        "at most 70.0 MiB"));
  EXPECT_THAT(text, HasSubstr("final settings: checkpoint every 5 steps, 2 experts per layer, 1 "
                              "more stay in memory (storage sustains 5 steps"));
  EXPECT_THAT(text, HasSubstr(checkpoint_table_text(sample_report())));
  EXPECT_THAT(
      text,
      HasSubstr(
          "lost tokens: 25.000 % of all by the end of the run (18.750 % in "
          "restarts, 6.250 % of experts that came back alone): 1500 tokens; expert 1 of the 4 of"
          " all layers lost most, 1000\n"));
  EXPECT_THAT(summary_text({}), HasSubstr("no token's update is lost"));
  EXPECT_THAT(summary_text({}), HasSubstr("no checkpoints"));
}

TEST(Tables, SummaryHasPartsOfCheckpoint) {
  Report report = sample_report();
  report.checkpoints.each.resize(1);
  EXPECT_THAT(summary_text(report),
              HasSubstr("\nparts of a checkpoint (median): plan 0.2 ms, begin 0.5 ms, "
                        "slab_wait 1.0 ms, copy 4.0 ms, seal 0.4 ms, write 70 ms, sync 10 ms, "
                        "journal 2.5 ms\n"));
  report.checkpoints.each[0].timings = {};
  EXPECT_THAT(summary_text(report), Not(HasSubstr("parts of"))) << "unknown";
}

TEST(Tables, SummaryHasStallOfFailedCheckpoints) {
  Report report;
  report.checkpoints.stall_ms_total = 3'000;
  report.checkpoints.stall_ms_max = 2'000;
  EXPECT_THAT(summary_text(report),
              HasSubstr("no checkpoints; training blocked 3.0 s in all, 2.0 s at most\n"));
}

TEST(Tables, CheckpointTableShowsSmallestMedianLargest) {
  const auto lines = lines_of(checkpoint_table_text(sample_report()));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[1], AllOf(HasSubstr("smallest    4.0 MiB"), HasSubstr("1.0 MiB"),
                              HasSubstr("1.000"), HasSubstr("40 ms")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("median"), HasSubstr("4.0 MiB")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("largest"), HasSubstr("8.0 MiB"), HasSubstr("3.0 MiB"),
                              HasSubstr("1.500"), HasSubstr("6.1 ms")));
  EXPECT_EQ(checkpoint_table_text({}), "no checkpoints\n");
  Report one = sample_report();
  one.checkpoints.each.resize(1);
  const auto single = lines_of(checkpoint_table_text(one));
  ASSERT_EQ(single.size(), 2U) << "its smallest is its largest";
  EXPECT_THAT(single[1], HasSubstr("the only one"));
}

}  // namespace
}  // namespace moetrain::report

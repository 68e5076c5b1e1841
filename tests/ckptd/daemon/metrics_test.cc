// Every metric in docs/reference/metrics.md is served, and every metric served is in the page.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "ckptd/limits.h"
#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;

struct Metric {
  std::string type;
  std::set<std::string> labels;
  bool operator==(const Metric&) const = default;
};
void PrintTo(const Metric& metric, std::ostream* out) {
  *out << metric.type;
  for (const std::string& label : metric.labels) *out << " " << label;
}
using Metrics = std::map<std::string, Metric>;

// "# TYPE name type", then samples "name{label="value",...} number". Samples of a histogram have a
// suffix, and the label "le" besides those of the metric.
Metrics served(const std::string& text) {
  Metrics metrics;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    std::string name;
    words >> first >> second >> name;
    if (first == "#" && second == "TYPE") words >> metrics[name].type;
    if (first == "#") continue;
    const size_t brace = first.find('{');
    const std::string sampled = first.substr(0, brace);
    const auto base = metrics.find(sampled.substr(0, sampled.rfind('_')));
    const bool of_histogram = base != metrics.end() && base->second.type == "histogram";
    Metric& metric = of_histogram ? base->second : metrics[sampled];
    for (size_t at = brace; at != std::string::npos; at = first.find(',', at)) {
      ++at;
      const std::string label = first.substr(at, first.find('=', at) - at);
      if (!of_histogram || label != "le") metric.labels.insert(label);
    }
  }
  return metrics;
}

// Items "- `name`: meaning" or "- `name{label,...}`: meaning". The name says the type, as the page
// does.
Metrics documented() {
  Metrics metrics;
  std::ifstream file(CKPTD_METRICS_PAGE);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("- `ckptd_")) continue;
    const std::string name = line.substr(3, line.find('`', 3) - 3);
    const size_t brace = name.find('{');
    const std::string bare = name.substr(0, brace);
    Metric& metric = metrics[bare];
    EXPECT_EQ(metric.type, "") << name << " has two items";
    metric.type = bare.ends_with("_total") ? "counter" : "gauge";
    if (bare == "ckptd_snapshot_seconds") metric.type = "histogram";
    if (brace != std::string::npos) {
      std::istringstream labels(name.substr(brace + 1, name.size() - brace - 2));
      for (std::string label; std::getline(labels, label, ',');) metric.labels.insert(label);
    }
  }
  return metrics;
}

TEST(MetricsTable, MatchesServedMetrics) {
  World world({});
  ASSERT_TRUE(world.start().ok());
  Job job(world, 1);
  job.start();
  job.ranks[0]->expert_tokens.emplace_back(0, 0, 10);  // what only some trainers tell
  job.ranks[0]->expert_lost.emplace_back(0, 0, 4);
  job.ranks[0]->plt = 0.25;
  job.commit(5);
  Metrics table = documented();
  EXPECT_THAT(table, ::testing::Not(::testing::IsEmpty()));
  table.erase("ckptd_quarantined_descriptors");  // the server's own: see descriptors_test.cc
  EXPECT_EQ(table, served(world.daemon().metrics_text()));
}

TEST(MetricsTable, EveryMetricHasAHelpSentence) {
  World world({});
  ASSERT_TRUE(world.start().ok());
  Job job(world, 1);
  job.start();
  job.commit(5);
  std::istringstream lines(world.daemon().metrics_text());
  std::set<std::string> helped;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# HELP ")) continue;
    const size_t name_end = line.find(' ', 7);
    ASSERT_NE(name_end, std::string::npos) << line;
    const std::string help = line.substr(name_end + 1);
    EXPECT_THAT(help, ::testing::MatchesRegex("[A-Z01].+\\.")) << line;
    EXPECT_TRUE(helped.insert(line.substr(7, name_end - 7)).second) << "twice: " << line;
  }
  EXPECT_EQ(helped.size(), served(world.daemon().metrics_text()).size());
}

TEST(MetricsTable, LevelLagFollowsClock) {
  World world({});
  ASSERT_TRUE(world.start().ok());
  Job job(world, 1);
  job.start();
  job.begin(5);
  job.fill(5);
  world.tick(std::chrono::milliseconds(1'500));  // staged, and then nothing is written for so long
  world.run();
  job.listen();
  ASSERT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Durable);
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_level_lag_seconds_total 1.5\n"));
}

TEST(MetricsTable, LateRankSecondsFollowItsLastSeal) {
  World world({});
  ASSERT_TRUE(world.start().ok());
  Job job(world, 2);
  job.start();
  job.begin(5);
  ASSERT_TRUE(job.ranks[1]->fill(5));
  world.run();
  world.tick(std::chrono::milliseconds(2'500));
  ASSERT_TRUE(job.ranks[0]->fill(5));
  world.run();
  job.listen();
  ASSERT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Durable);
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_late_rank_seconds_total 2.5\n"));
}

TEST(MetricsTable, BeginsWaitAtTheLimitOfOpenSnapshots) {
  World world({});
  ASSERT_TRUE(world.start().ok());
  Job job(world, 1);
  job.start();
  const ckpt::Plan plan = job.plan({0});
  for (ckpt::Step step = 1; step <= limits::kSnapshotsOpenPerRunMax; ++step) job.begin(step, plan);
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_begins_waiting 0\n"));
  job.begin(11, plan);
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_begins_waiting 1\n"));
  for (ckpt::Step step = 1; step <= limits::kSnapshotsOpenPerRunMax; ++step) job.fill(step);
  world.run();
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_begins_waiting 0\n"));
}

// An alert on PLT must stay active while nothing is committed: it matters most for a job that does
// not return after a restart of its daemon.
TEST(Metrics, RunMetricsSurviveRestart) {
  World world({});
  ASSERT_TRUE(world.start().ok());
  Job job(world, 1);
  job.start();
  job.ranks[0]->expert_tokens.emplace_back(0, 0, 10);
  job.ranks[0]->expert_lost.emplace_back(0, 0, 4);
  job.ranks[0]->plt = 0.25;
  job.commit(5);
  job.commit(10);
  const auto run_metrics = [&] {
    std::string text;
    std::istringstream lines(world.daemon().metrics_text());
    for (std::string line; std::getline(lines, line);) {
      const bool kept = !line.starts_with("ckptd_run_trained{");
      if (line.starts_with("ckptd_run_") && kept) text += line + "\n";
    }
    return text;
  };
  const std::string before = run_metrics();
  EXPECT_THAT(before, HasSubstr("ckptd_run_step{run=\"tiny\"} 10\n"));
  EXPECT_THAT(before, HasSubstr("ckptd_run_lost_tokens{run=\"tiny\"} 4\n"));
  EXPECT_THAT(before, HasSubstr("ckptd_run_plt{run=\"tiny\"} 0.25\n"));
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("ckptd_run_trained{run=\"tiny\"} 1\n"));
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(run_metrics(), before);
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(run_metrics(), before);
}

}  // namespace
}  // namespace ckptd::testing

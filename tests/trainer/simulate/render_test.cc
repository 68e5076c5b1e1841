#include "trainer/simulate/render.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/trainer/simulate/cluster.h"

namespace simtest {
namespace {

using testing::HasSubstr;

class Render : public testing::Test {
 protected:
  Render() : load_(LoadModel::zipf(model_)), planner_(model_, load_) {
    auto results = compare({model_, trace_, load_, planner_}, *parse_systems("all"), true);
    EXPECT_TRUE(results.ok());
    results_ = std::move(*results);
  }
  Comparison comparison() const { return {"tiny <&>", "t.csv", trace_, results_, true, varied_}; }

  CostModel model_ = plain_model();
  NodeTrace trace_ = trace_of(4, {{50.5, false, 0}, {70.25, true, 0}}, 200);
  LoadModel load_;
  Planner planner_;
  std::vector<PolicyResult> results_;
  std::vector<Varied> varied_{{nullptr, 0, std::vector<double>(6, 1.5)},
                              {&parameters().back() - 1, 3, std::vector<double>(6, 2.5)}};
};

TEST_F(Render, JsonHasAllFieldsAndTimesAddUp) {
  const auto json = nlohmann::json::parse(comparison_json(comparison()));
  EXPECT_EQ(json["trace"]["seconds"], 200.0);
  ASSERT_EQ(json["policies"].size(), 6U);
  for (const auto& [name, policy] : json["policies"].items()) {
    double sum = 0;
    ASSERT_EQ(policy["time"].size(), 5U) << name;
    for (const char* kind : {"train", "checkpoint", "recover", "redo", "idle"}) {
      sum += policy["time"][kind].get<double>();
    }
    EXPECT_NEAR(sum, 200, 1e-9) << name;
    EXPECT_DOUBLE_EQ(policy["goodput"].get<double>(), policy["samples"].get<double>() / 200)
        << name;
    EXPECT_DOUBLE_EQ(policy["ettr"].get<double>(), policy["time"]["train"].get<double>() / 200);
    EXPECT_TRUE(policy.contains("plt") && policy.contains("checkpoint_steps"));
    EXPECT_GE(policy["best"]["samples"].get<double>(), policy["samples"].get<double>());
  }
  EXPECT_TRUE(json["sensitivity"][0]["parameter"].is_null());
  EXPECT_EQ(json["sensitivity"][1]["goodput"]["ours"], 2.5);
}

TEST_F(Render, TableHasARowForEveryPolicy) {
  const std::string text = comparison_text(comparison());
  for (const System& system : systems())
    EXPECT_THAT(text, HasSubstr(fmt::format("\n{} ", system.name)));
  EXPECT_THAT(text, HasSubstr("as given"));
}

TEST_F(Render, SvgIsWellFormedAndHasEveryCurve) {
  const std::string svg = comparison_svg(comparison(), {});
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 40);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("tiny &lt;&amp;&gt;"));
  size_t curves = 0;
  for (size_t at = svg.find("<polyline"); at != std::string::npos;
       at = svg.find("<polyline", at + 1)) {
    ++curves;
  }
  EXPECT_EQ(curves, 6U);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST_F(Render, CurvesHaveAllSamples) {
  for (const PolicyResult& one : results_) {
    const std::vector<double> curve = goodput_curve(one.given.outcome, trace_.end, 40);
    EXPECT_NEAR(std::accumulate(curve.begin(), curve.end(), 0.0) * 200 / 40,
                one.given.outcome.samples, 1e-6);
    for (const double value : curve) EXPECT_GE(value, -1e-9);
  }
}

}  // namespace
}  // namespace simtest

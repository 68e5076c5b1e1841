// Routing that is forced on the router: by Zipf's law, and by a recorded trace.
#include "trainer/model/forced_routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "tests/trainer/model/ranks.h"
#include "trainer/model/model.h"
#include "trainer/parallel/make_expert_store.h"
#include "trainer/train_config.h"

namespace moetrain {
namespace {

using testing::HasSubstr;

ModelConfig shape(uint32_t layers, uint32_t experts) {
  ModelConfig config;
  config.layers = layers;
  config.experts = experts;
  return config;
}

std::vector<float> skew_logits(const ModelConfig& config, uint32_t layer,
                               std::span<const int32_t> tokens) {
  return ForcedRouting::make(config, nullptr)->logits(layer, 0, tokens);
}

// The same sequence of 64 tokens for each of 256 values.
std::vector<int32_t> many_tokens() {
  std::vector<int32_t> tokens;
  tokens.reserve(64 * 256);
  for (int i = 0; i < 64 * 256; ++i) tokens.push_back(i / 64);
  return tokens;
}

// [expert]: the part of the tokens whose largest logit is the expert's.
std::vector<double> first_choices(std::span<const float> logits, uint32_t experts) {
  std::vector<double> share(experts);
  const size_t tokens = logits.size() / experts;
  for (size_t i = 0; i < tokens; ++i) {
    const auto row = logits.subspan(i * experts, experts);
    share[static_cast<size_t>(std::ranges::max_element(row) - row.begin())] +=
        1.0 / static_cast<double>(tokens);
  }
  return share;
}

TEST(RouterSkewTest, FirstChoicesFollowZipfsLaw) {
  ModelConfig config = shape(4, 8);
  config.router_skew = 1.2;
  config.seq_len = 64;
  const std::vector<int32_t> tokens = many_tokens();
  double harmonic = 0;
  for (int i = 1; i <= 8; ++i) harmonic += std::pow(i, -1.2);
  std::set<size_t> most;
  for (uint32_t layer = 0; layer < 4; ++layer) {
    std::vector<double> share = first_choices(skew_logits(config, layer, tokens), 8);
    most.insert(static_cast<size_t>(std::ranges::max_element(share) - share.begin()));
    std::ranges::sort(share, std::greater());
    for (int i = 0; i < 8; ++i) {
      EXPECT_NEAR(share[static_cast<size_t>(i)], std::pow(i + 1, -1.2) / harmonic, 0.02) << i;
    }
  }
  EXPECT_GT(most.size(), 1u) << "layers have favourites of their own";
}

TEST(RouterSkewTest, DependsOnlyOnText) {
  ModelConfig config = shape(1, 4);
  config.router_skew = 0.5;
  config.seq_len = 4;
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto both = skew_logits(config, 0, tokens);
  const auto second = skew_logits(config, 0, std::span(tokens).subspan(4));
  EXPECT_EQ(std::vector<float>(both.begin() + 16, both.end()), second);
}

TEST(RouterSkewTest, SkewOrderChangesFavourites) {
  ModelConfig config = shape(1, 16);
  config.router_skew = 100;  // all tokens to the most popular one
  config.seq_len = 1;
  std::set<ptrdiff_t> favourites;
  for (config.router_skew_order = 0; config.router_skew_order < 12; ++config.router_skew_order) {
    const auto logits = skew_logits(config, 0, std::vector<int32_t>{7});
    favourites.insert(std::ranges::max_element(logits) - logits.begin());
  }
  EXPECT_GT(favourites.size(), 4u);
}

TEST(RouterSkewTest, IsPartOfRunConfiguration) {
  TrainConfig config;
  const std::string plain = to_json(config);
  EXPECT_EQ(plain.find("router_skew"), std::string::npos) << "as before there was any";
  config.model.router_skew = 1.2;
  const auto back = parse_train_config(to_json(config), "test");
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->model.router_skew, 1.2);
  EXPECT_THAT(difference(TrainConfig{}, config), HasSubstr("router_skew"));
  EXPECT_THAT(difference(config, TrainConfig{}), HasSubstr("router_skew"));
  config.model.router_skew_order = 3;
  const auto ordered = parse_train_config(to_json(config), "test");
  ASSERT_TRUE(ordered.ok());
  EXPECT_EQ(ordered->model.router_skew_order, 3u);
  EXPECT_THAT(difference(*back, *ordered), HasSubstr("router_skew_order"));
}

// Two layers of four experts; three samples. Expert 3 of layer 0 has no tokens, and no expert of
// layer 1 has any in the last sample.
constexpr std::string_view kTrace =
    "iteration,layer,e0,e1,e2,e3\n"
    "5,0,600,300,100,0\n"
    "5,1,10,20,30,40\n"
    "6,0,100,300,600,0\n"
    "6,1,40,30,20,10\n"
    "9,0,0,500,500,0\n"
    "9,1,0,0,0,0\n";

std::shared_ptr<const RouterTrace> trace_of(std::string_view text) {
  auto trace = RouterTrace::parse(text, "t.csv");
  CKPT_ASSERT_MSG(trace.ok(), trace.error().message);
  return std::make_shared<const RouterTrace>(*std::move(trace));
}

ModelConfig following(const RouterTrace& trace, uint64_t hold, uint32_t layers = 2) {
  ModelConfig config = shape(layers, trace.experts());
  config.router_trace_crc32c = trace.crc32c();
  config.router_trace_hold = hold;
  return config;
}

TEST(RouterTraceTest, FirstChoicesFollowTheSampleOfTheStep) {
  const auto trace = trace_of(kTrace);
  EXPECT_EQ(trace->samples(), 3u);
  EXPECT_EQ(trace->layers(), 2u);
  const auto routing = ForcedRouting::make(following(*trace, 4), trace);
  ASSERT_TRUE(routing.ok()) << routing.error().message;
  const std::vector<int32_t> tokens = many_tokens();
  struct Case {
    uint32_t layer;
    uint64_t step;
    std::vector<double> shares;
  };
  const Case cases[] = {{0, 0, {0.6, 0.3, 0.1, 0}},        {0, 3, {0.6, 0.3, 0.1, 0}},
                        {0, 4, {0.1, 0.3, 0.6, 0}},        {1, 3, {0.1, 0.2, 0.3, 0.4}},
                        {1, 4, {0.4, 0.3, 0.2, 0.1}},      {0, 8, {0, 0.5, 0.5, 0}},
                        {0, 11, {0, 0.5, 0.5, 0}},         {0, 12, {0, 0.5, 0.5, 0}},
                        {0, UINT64_MAX, {0, 0.5, 0.5, 0}}, {1, 8, {0.25, 0.25, 0.25, 0.25}}};
  for (const Case& c : cases) {
    EXPECT_THAT(first_choices(routing->logits(c.layer, c.step, tokens), 4),
                testing::Pointwise(testing::DoubleNear(0.02), c.shares))
        << "layer " << c.layer << ", step " << c.step;
  }
}

TEST(RouterTraceTest, LogitsAreFiniteForAnyCounts) {
  const auto trace =
      trace_of("iteration,layer,e0,e1\n1,0,0,0\n1,1,281474976710656,0\n1,2,281474976710656,1\n");
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (const float logit : trace->logits(0, layer)) EXPECT_TRUE(std::isfinite(logit));
  }
  EXPECT_EQ(trace->logits(0, 0)[0], trace->logits(0, 0)[1]);
}

std::string refusal(const ModelConfig& config, std::shared_ptr<const RouterTrace> trace) {
  const auto routing = ForcedRouting::make(config, std::move(trace));
  return routing.ok() ? "accepted" : routing.error().message;
}

TEST(RouterTraceTest, RefusesTraceOfOtherRun) {
  const auto trace = trace_of(kTrace);
  const ModelConfig config = following(*trace, 1);
  EXPECT_EQ(refusal(config, trace), "accepted");
  EXPECT_EQ(refusal(following(*trace, 1, /*layers=*/1), trace), "accepted");
  EXPECT_THAT(refusal(config, nullptr), HasSubstr("name its file by --router-trace"));
  EXPECT_EQ(refusal(shape(2, 4), trace), "t.csv: the run follows no routing trace");
  const auto other = trace_of(std::string(kTrace) + "10,0,1,1,1,1\n10,1,1,1,1,1\n");
  EXPECT_THAT(refusal(config, other), HasSubstr("the run follows a routing trace with"));
  EXPECT_EQ(refusal(following(*trace, 1, /*layers=*/3), trace),
            "t.csv: has 2 layers, the model has 3 (--layers)");
  ModelConfig more = config;
  more.experts = 5;
  EXPECT_EQ(refusal(more, trace), "t.csv: has 4 experts in a layer, the model has 5 (--experts)");
}

TEST(RouterTraceTest, NamesCompressedAndMalformedText) {
  const auto refused = [](std::string_view text) {
    const auto trace = RouterTrace::parse(text, "t.csv");
    return trace.ok() ? "accepted" : trace.error().message;
  };
  EXPECT_EQ(refused("\x1f\x8b\x08"),
            "t.csv: is compressed by gzip; unpack it first, as by gunzip --keep");
  EXPECT_EQ(refused(""), "t.csv line 0: is empty");
  EXPECT_THAT(refused("iteration,layer,e0\n"), HasSubstr("no samples follow"));
  EXPECT_THAT(refused(kTrace.substr(0, kTrace.size() - 12)), HasSubstr("t.csv line"));
}

// Random bytes give finite logits of one shape or an error message (asan and ubsan watch).
TEST(RouterTraceTest, ParsesHostileTextSafely) {
  std::mt19937 random(7);
  constexpr std::string_view kLetters = "0123456789,\n\r-e \x1f\x8b";
  for (int round = 0; round < 5'000; ++round) {
    std::string text(kTrace);
    for (uint32_t i = random() % 4; i < 4; ++i) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) text.erase(at, 1 + random() % 9);
      text[at % text.size()] = kLetters[random() % kLetters.size()];
    }
    const auto trace = RouterTrace::parse(text, "t.csv");
    if (!trace.ok()) {
      EXPECT_THAT(trace.error().message, testing::StartsWith("t.csv"));
      continue;
    }
    ASSERT_GT(trace->samples(), 0u);
    for (uint64_t sample = 0; sample < trace->samples(); ++sample) {
      for (uint32_t layer = 0; layer < trace->layers(); ++layer) {
        ASSERT_EQ(trace->logits(sample, layer).size(), trace->experts());
        for (const float logit : trace->logits(sample, layer)) ASSERT_TRUE(std::isfinite(logit));
      }
    }
  }
}

TEST(RouterTraceTest, IsPartOfRunConfiguration) {
  const auto trace = trace_of(kTrace);
  TrainConfig config;
  EXPECT_EQ(to_json(config).find("router_trace"), std::string::npos);
  config.model = following(*trace, 20);
  const auto back = parse_train_config(to_json(config), "test");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->model, config.model);
  EXPECT_THAT(difference(TrainConfig{}, config), HasSubstr("router_trace"));
  TrainConfig longer = config;
  longer.model.router_trace_hold = 21;
  EXPECT_EQ(difference(config, longer), "router_trace_hold 20, not 21");
  config.model.router_skew = 1;
  EXPECT_EQ(validate(config.model).error().message,
            "model config: router_skew is 1, must be 0 with a routing trace");
}

TEST(RouterTraceTest, RefusesNonNumbersInConfiguration) {
  TrainConfig config;
  config.model = following(*trace_of(kTrace), 20);
  for (const std::string name : {"router_trace_crc32c", "router_trace_hold"}) {
    for (const std::string value : {"-1", "\"x\"", "null", "99999999999999999999"}) {
      std::string json = to_json(config);
      const size_t begin = json.find(name) + name.size() + 2;
      json.replace(begin, json.find_first_of(",}", begin) - begin, value);
      const auto parsed = parse_train_config(json, "test");
      ASSERT_FALSE(parsed.ok()) << json;
      EXPECT_EQ(parsed.error().message, "test: training." + name + " is not a number");
    }
  }
}

// Expert e of layer l has nearly all tokens of step e: the routing counts say which step it was.
TEST(RouterTraceTest, ModelRoutesBySampleOfStep) {
  const auto trace = trace_of(
      "iteration,layer,e0,e1,e2,e3\n0,0,1000000,0,0,0\n1,0,0,1000000,0,0\n2,0,0,0,1000000,0\n");
  ModelConfig config = following(*trace, 2, /*layers=*/1);
  config.top_k = 1;
  config.seq_len = 16;
  run_ranks(2, [&](Comm& comm) {
    const ComputePlacement placement = *static_placement(1, 4, 2);
    auto store = make_expert_store(cpu_device(), config, placement,
                                   Ownership::replicated(placement), comm.rank());
    ASSERT_TRUE(store.ok());
    const auto model = Model::create(cpu_device(), config, std::move(*store), {}, trace);
    ASSERT_TRUE(model.ok()) << model.error().message;
    (*model)->initialise(1);
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 64; ++i) tokens.push_back(i);
    for (const uint64_t step : {0u, 1u, 2u, 5u, 9u}) {
      (*model)->begin_step();
      ASSERT_TRUE((*model)->forward_backward(comm, {tokens, tokens, step}, {1, 0}).ok());
      const size_t expert = std::min<uint64_t>(step / 2, 2);
      EXPECT_GT((*model)->routing_counts()[expert], 60) << "step " << step;
    }
  });
}

}  // namespace
}  // namespace moetrain

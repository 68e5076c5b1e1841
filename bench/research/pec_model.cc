#include "bench/research/pec_model.h"

#include <fmt/format.h>

#include <array>

namespace bench {
namespace {

constexpr uint64_t kVocabulary = 50'257;
constexpr uint64_t kPositions = 1'024;
constexpr uint64_t kWeightBytes = 4;
constexpr uint64_t kMomentBytes = 8;

class UnitList {
 public:
  explicit UnitList(uint64_t hidden) : hidden_(hidden) {}

  void add(const std::string& name, Component component, uint64_t parameters,
           std::optional<uint32_t> layer = std::nullopt,
           std::optional<uint32_t> expert = std::nullopt) {
    for (const bool optimizer : {false, true}) {
      units_.push_back({.name = name + (optimizer ? ".optimizer" : ".weights"),
                        .layer = layer,
                        .expert = expert,
                        .optimizer = optimizer,
                        .component = component,
                        .bytes = parameters * (optimizer ? kMomentBytes : kWeightBytes)});
    }
  }
  // Two products with their biases: h x 4h and 4h x h.
  uint64_t feed_forward() const { return 8 * hidden_ * hidden_ + 5 * hidden_; }
  uint64_t attention() const { return 4 * hidden_ * hidden_ + 4 * hidden_; }
  std::vector<PecUnit> take() { return std::move(units_); }

 private:
  const uint64_t hidden_;
  std::vector<PecUnit> units_;
};

}  // namespace

const std::vector<PecModel>& pec_models() {
  static const std::vector<PecModel> models = {
      {.name = "gpt-125m-8e", .layers = 12, .hidden = 768, .experts = 8},
      {.name = "gpt-350m-16e", .layers = 24, .hidden = 1024, .experts = 16}};
  return models;
}

std::string_view component_name(Component component) {
  static constexpr std::array<std::string_view, kComponents> kNames = {
      "embedding", "attention", "feed_forward", "router_and_norms", "experts"};
  return kNames[static_cast<size_t>(component)];
}

std::vector<PecUnit> units_of(const PecModel& model) {
  const uint64_t hidden = model.hidden;
  UnitList list(hidden);
  list.add("embedding.tokens", Component::kEmbedding, kVocabulary * hidden);
  list.add("embedding.positions", Component::kEmbedding, kPositions * hidden);
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = fmt::format("layers.{}", layer);
    list.add(prefix + ".attention", Component::kAttention, list.attention());
    list.add(prefix + ".norms", Component::kRouterAndNorms, 4 * hidden);
    if (layer % 2 == 0) {
      list.add(prefix + ".feed_forward", Component::kFeedForward, list.feed_forward());
      continue;
    }
    list.add(prefix + ".router", Component::kRouterAndNorms, hidden * model.experts);
    for (uint32_t expert = 0; expert < model.experts; ++expert) {
      list.add(fmt::format("{}.experts.{}", prefix, expert), Component::kExperts,
               list.feed_forward(), layer / 2, expert);
    }
  }
  list.add("final.norm", Component::kRouterAndNorms, 2 * hidden);
  return list.take();
}

}  // namespace bench

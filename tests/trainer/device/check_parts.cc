#include "tests/trainer/device/check_parts.h"

#include <algorithm>
#include <cmath>

namespace moetrain {

std::span<const uint8_t> check_text() {
  static const std::vector<uint8_t> text = sample_text(100'000);
  return text;
}

MakeDevice on_gpu(Precision precision) {
  return
      [precision] { return make_cuda_device({.precision = precision, .timeout_ms = kTimeoutMs}); };
}

TrainConfig with(TrainConfig config, Precision precision) {
  config.precision = precision;
  return config;
}

TrainConfig drawn(Checker& c, const TrainConfig& config, Precision precision) {
  TrainConfig drawn = with(config, precision);
  drawn.seed = c.random();
  return drawn;
}

std::optional<TrainedRank> first_of(Checker& c, const Training& training) {
  Result<std::vector<TrainedRank>> trained = train(training);
  if (!trained.ok()) {
    c.expect(false, trained.error().message);
    return std::nullopt;
  }
  for (const TrainedRank& rank : *trained) {
    c.expect_equal(rank.losses, trained->front().losses, "losses of the ranks");
    c.expect(rank.progress.skipped == 0, "a step was not finite");
  }
  // Every rank has some of the experts, or a part of each.
  for (size_t rank = 1; rank < trained->size(); ++rank) {
    merge(trained->front().state, (*trained)[rank].state);
    merge(trained->front().gradients, (*trained)[rank].gradients);
  }
  return std::move(trained->front());
}

void expect_close(Checker& c, const State& values, const State& expected, double tolerance) {
  c.expect(values.size() == expected.size(), "other tensors");
  for (const auto& [name, wanted] : expected) {
    const auto found = values.find(name);
    if (found == values.end() || found->second.size() != wanted.size()) {
      c.expect(false, name + " is missing, or of another size");
      continue;
    }
    double error = 0;
    double size = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      error += std::pow(static_cast<double>(found->second[i]) - wanted[i], 2);
      size += std::pow(static_cast<double>(wanted[i]), 2);
    }
    c.expect(std::sqrt(error) <= tolerance * std::sqrt(size),
             fmt::format("{}: off by {:.3g} of its norm", name, std::sqrt(error / size)));
  }
}

void expect_close(Checker& c, const std::vector<float>& losses, const std::vector<float>& expected,
                  double tolerance) {
  c.expect(losses.size() == expected.size(), "another number of steps");
  for (size_t i = 0; i < std::min(losses.size(), expected.size()); ++i) {
    const auto wanted = static_cast<double>(expected[i]);
    c.expect_near(losses[i], wanted, tolerance * std::abs(wanted),
                  fmt::format("loss of step {}", i + 1));
  }
}

}  // namespace moetrain

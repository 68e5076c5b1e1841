#include "tests/trainer/device/check_parts.h"

#include <algorithm>
#include <cmath>

namespace moetrain {

std::span<const uint8_t> check_text() {
  static const std::vector<uint8_t> text = sample_text(100'000);
  return text;
}

MakeDevice on_gpu(Precision precision) {
  return [precision] { return make_cuda_device({.precision = precision}); };
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

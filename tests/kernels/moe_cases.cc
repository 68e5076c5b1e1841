#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/expert_gemm.h"
#include "kernels/gate_topk.h"
#include "kernels/permute.h"
#include "tests/kernels/kernel_case.h"
#include "tests/kernels/moe_variants.h"

namespace ckpt::kernels {
namespace {

using std::to_string;

// The output is every weight, then for each expert the sum of its probabilities over tokens: the
// two ways in which a loss depends on the gate.
KernelCase gate_case(int64_t tokens, int64_t experts, int64_t top_k) {
  const GateShape shape{tokens, experts, top_k};
  const size_t weights = static_cast<size_t>(tokens * top_k);
  KernelCase c;
  c.name = "gate_" + to_string(tokens) + "x" + to_string(experts) + "_top" + to_string(top_k);
  c.inputs = {static_cast<size_t>(tokens * experts)};
  c.adds = {false};
  c.outputs = weights + static_cast<size_t>(experts);
  c.kept_bytes = c.inputs[0] * sizeof(float) + weights * sizeof(int32_t);  // probabilities, choice
  c.backward_reads_inputs = false;
  c.reference = [=](const Doubles& x) {
    std::vector<double> out(weights + static_cast<size_t>(experts), 0.0);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<double> p(x[0].begin() + t * experts, x[0].begin() + (t + 1) * experts);
      double total = 0;
      for (double& value : p) total += value = std::exp(value);
      for (double& value : p) value /= total;
      for (int64_t e = 0; e < experts; ++e) out[weights + e] += p[e];
      std::sort(p.begin(), p.end(), std::greater<>());
      const double chosen = std::accumulate(p.begin(), p.begin() + top_k, 0.0);
      for (int64_t k = 0; k < top_k; ++k) out[t * top_k + k] = p[k] / chosen;
    }
    return out;
  };
  const auto run = [=](const float* logits, std::vector<float>& p, std::vector<int32_t>& choice,
                       std::vector<float>& weight) {
    p.resize(static_cast<size_t>(tokens * experts));
    choice.resize(weights);
    weight.resize(weights);
    gate_topk_forward(shape, logits, p.data(), choice.data(), weight.data());
  };
  c.forward = [=](const Floats& x, float* y) {
    std::vector<float> p, weight;
    std::vector<int32_t> choice;
    run(x[0], p, choice, weight);
    std::copy(weight.begin(), weight.end(), y);
    std::fill_n(y + weights, experts, 0.0f);
    for (size_t i = 0; i < p.size(); ++i) y[weights + i % static_cast<size_t>(experts)] += p[i];
  };
  c.backward = [=](const Floats& x, const float* dy, const Gradients& d) {
    std::vector<float> p, weight;
    std::vector<int32_t> choice;
    run(x[0], p, choice, weight);
    gate_topk_backward(shape, dy, dy + weights, p.data(), choice.data(), weight.data(), d[0]);
  };
  c.cuda = gate_variants(shape);
  return c;
}

// Assignment i goes to row i * stride mod count, with stride and count coprime: a permutation.
std::vector<int64_t> scatter_positions(int64_t count) {
  std::vector<int64_t> positions;
  int64_t stride = 5;
  while (std::gcd(stride, count) != 1) ++stride;
  for (int64_t i = 0; i < count; ++i) positions.push_back(i * stride % count);
  return positions;
}

KernelCase permute_case(int64_t tokens, int64_t top_k, int64_t width) {
  const PermuteShape shape{tokens, top_k, width};
  const std::vector<int64_t> position = scatter_positions(tokens * top_k);
  KernelCase c;
  c.name = "permute_" + to_string(tokens) + "x" + to_string(top_k) + "x" + to_string(width);
  c.inputs = {static_cast<size_t>(tokens * width)};
  c.adds = {true};
  c.outputs = static_cast<size_t>(tokens * top_k * width);
  c.backward_reads_inputs = false;
  c.reference = [=](const Doubles& x) {
    std::vector<double> rows(static_cast<size_t>(tokens * top_k * width));
    for (int64_t a = 0; a < tokens * top_k; ++a) {
      for (int64_t i = 0; i < width; ++i) {
        rows[position[a] * width + i] = x[0][a / top_k * width + i];
      }
    }
    return rows;
  };
  c.forward = [=](const Floats& x, float* y) { permute_forward(shape, x[0], position.data(), y); };
  c.backward = [=](const Floats&, const float* dy, const Gradients& d) {
    permute_backward(shape, dy, position.data(), d[0]);
  };
  c.cuda = permute_variants(shape, position);
  return c;
}

KernelCase unpermute_case(int64_t tokens, int64_t top_k, int64_t width) {
  const PermuteShape shape{tokens, top_k, width};
  const std::vector<int64_t> position = scatter_positions(tokens * top_k);
  KernelCase c;
  c.name = "unpermute_" + to_string(tokens) + "x" + to_string(top_k) + "x" + to_string(width);
  c.inputs = {static_cast<size_t>(tokens * top_k * width), static_cast<size_t>(tokens * top_k)};
  c.adds = {false, false};
  c.outputs = static_cast<size_t>(tokens * width);
  c.forward_adds = true;
  c.reference = [=](const Doubles& x) {
    std::vector<double> out(static_cast<size_t>(tokens * width), 0.0);
    for (int64_t a = 0; a < tokens * top_k; ++a) {
      for (int64_t i = 0; i < width; ++i) {
        out[a / top_k * width + i] += x[1][a] * x[0][position[a] * width + i];
      }
    }
    return out;
  };
  c.forward = [=](const Floats& x, float* y) {
    unpermute_forward(shape, x[0], position.data(), x[1], y);
  };
  c.backward = [=](const Floats& x, const float* dy, const Gradients& d) {
    unpermute_backward(shape, dy, x[0], position.data(), x[1], d[0], d[1]);
  };
  c.cuda = unpermute_variants(shape, position);
  return c;
}

struct ExpertCase {
  std::vector<int64_t> rows;  // per expert
  ExpertShape shape;
  int64_t total() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }
  size_t matrix() const { return static_cast<size_t>(shape.hidden * shape.intermediate); }
};

// Gradients of weights as they are added up.
using Sums = std::vector<std::vector<double>>;

// Inputs: x, then the w1 of all experts, all w2, all w3; sums: of all w1, w2, w3.
std::vector<ExpertGroup> groups_of(const ExpertCase& e, const Floats& x, Sums* sums) {
  std::vector<ExpertGroup> groups;
  for (size_t i = 0; i < e.rows.size(); ++i) {
    const size_t at = i * e.matrix();
    ExpertGroup group{e.rows[i], x[1] + at, x[2] + at, x[3] + at, nullptr, nullptr, nullptr};
    if (sums != nullptr) {
      group.dw1 = (*sums)[0].data() + at;
      group.dw2 = (*sums)[1].data() + at;
      group.dw3 = (*sums)[2].data() + at;
    }
    groups.push_back(group);
  }
  return groups;
}

std::vector<double> expert_reference(const ExpertCase& e, const Doubles& x) {
  const int64_t hidden = e.shape.hidden;
  const int64_t inner = e.shape.intermediate;
  std::vector<double> y(static_cast<size_t>(e.total() * hidden), 0.0);
  int64_t row = 0;
  for (size_t expert = 0; expert < e.rows.size(); ++expert) {
    const size_t at = expert * e.matrix();
    for (const int64_t end = row + e.rows[expert]; row < end; ++row) {
      for (int64_t j = 0; j < inner; ++j) {
        double gate = 0, up = 0;
        for (int64_t i = 0; i < hidden; ++i) {
          gate += x[0][row * hidden + i] * x[1][at + j * hidden + i];
          up += x[0][row * hidden + i] * x[3][at + j * hidden + i];
        }
        const double value = gate / (1 + std::exp(-gate)) * up;
        for (int64_t i = 0; i < hidden; ++i)
          y[row * hidden + i] += value * x[2][at + i * inner + j];
      }
    }
  }
  return y;
}

KernelCase expert_case(std::vector<int64_t> rows, int64_t hidden, int64_t intermediate) {
  const ExpertCase e{std::move(rows), {hidden, intermediate}};
  KernelCase c;
  c.name = "experts_" + to_string(e.rows.size()) + "_rows_" + to_string(e.total()) + "_" +
           to_string(hidden) + "x" + to_string(intermediate);
  const size_t weights = e.rows.size() * e.matrix();
  c.inputs = {static_cast<size_t>(e.total() * hidden), weights, weights, weights};
  c.adds = {false, true, true, true};
  c.outputs = c.inputs[0];
  // Three products of rows x hidden x intermediate.
  c.forward_flops = 6.0 * static_cast<double>(e.total()) * static_cast<double>(e.matrix());
  c.reference = [=](const Doubles& x) { return expert_reference(e, x); };
  const size_t activations = static_cast<size_t>(e.total() * intermediate);
  c.forward = [=](const Floats& x, float* y) {
    std::vector<float> gate(activations), up(activations), inner(activations);
    expert_gemm_forward(e.shape, groups_of(e, x, nullptr), x[0],
                        {gate.data(), up.data(), inner.data()}, y);
  };
  c.backward = [=](const Floats& x, const float* dy, const Gradients& d) {
    std::vector<float> gate(activations), up(activations), inner(activations);
    std::vector<float> y(static_cast<size_t>(e.total() * hidden));
    const ExpertActivations kept{gate.data(), up.data(), inner.data()};
    Sums sums;
    for (size_t i = 1; i <= 3; ++i) sums.emplace_back(d[i], d[i] + weights);
    const std::vector<ExpertGroup> groups = groups_of(e, x, &sums);
    expert_gemm_forward(e.shape, groups, x[0], kept, y.data());
    expert_gemm_backward(e.shape, groups, dy, x[0], kept, d[0]);
    for (size_t i = 1; i <= 3; ++i) {
      for (size_t j = 0; j < weights; ++j) d[i][j] = static_cast<float>(sums[i - 1][j]);
    }
  };
  c.cuda = expert_variants(e.shape, e.rows);
  return c;
}

}  // namespace

std::vector<KernelCase> moe_cases() {
  return {
      gate_case(5, 4, 1),
      gate_case(6, 9, 2),
      gate_case(3, 3, 3),
      gate_case(4, 1, 1),
      gate_case(11, 33, 5),  // more experts than a warp has threads, more tokens than a block
      gate_case(2, 300, 16),
      gate_case(5, 8, 8),  // every way of dealing experts to lanes, all experts chosen
      gate_case(9, 16, 16),
      gate_case(3, 32, 32),
      gate_case(9, 64, 8),
      gate_case(3, 67, 4),
      gate_case(3, 256, 8),
      gate_case(2, 512, 6),
      gate_case(1, 515, 3),
      permute_case(7, 2, 5),
      permute_case(1, 1, 9),
      permute_case(6, 3, 16),
      permute_case(3, 2, 520),
      unpermute_case(7, 2, 5),
      unpermute_case(5, 1, 11),
      unpermute_case(6, 3, 16),
      unpermute_case(5, 2, 264),
      expert_case({4}, 5, 7),
      expert_case({3, 0, 6}, 8, 12),  // an expert without tokens
      expert_case({1, 9, 2, 5}, 16, 24),
      expert_case({0, 3, 1}, 6, 10),  // bf16 rows that are not aligned
  };
}

std::vector<KernelCase> moe_wide_cases(bool tiny) {
  const int64_t tokens = tiny ? 13 : 2500;  // a grid has at most 2,048 blocks
  const int64_t width = tiny ? 24 : 264;
  std::vector<int64_t> rows{3, 0, 9, 2};
  if (!tiny) rows = {700, 0, 1, 900, 129, 515, 64, 260};
  return {
      gate_case(tokens, tiny ? 9 : 64, tiny ? 2 : 8),
      permute_case(tokens, 2, width),
      unpermute_case(tokens, 2, width),
      expert_case(rows, width, tiny ? 40 : 520),
  };
}

std::vector<KernelCase> moe_bench_cases(bool tiny) {
  const int64_t tokens = tiny ? 32 : 8192;
  const int64_t width = tiny ? 64 : 4096;
  // Unequal, as routing makes them.
  std::vector<int64_t> rows;
  for (int64_t expert = 0; expert < 8; ++expert) {
    rows.push_back(tiny ? expert % 3 : 1024 + expert * 5 % 8 * 256);
  }
  return {
      gate_case(8 * tokens, 64, 8),
      permute_case(tokens, 2, width),
      unpermute_case(tokens, 2, width),
      expert_case(rows, tiny ? 16 : 2048, tiny ? 24 : 5632),
  };
}

}  // namespace ckpt::kernels

#include <cmath>
#include <limits>
#include <set>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "tests/kernels/attention_variant.h"
#include "tests/kernels/dense_variants.h"
#include "tests/kernels/kernel_case.h"

namespace ckpt::kernels {
namespace {

using std::to_string;

// For gradients that are added up in double: `work` adds to a copy, which is put back rounded.
template <typename Work>
void in_double(float* gradient, size_t count, Work work) {
  constexpr double kSentinel = -4321.5;
  std::vector<double> sum(gradient, gradient + count);
  sum.push_back(kSentinel);
  work(sum.data());
  std::copy_n(sum.begin(), count, gradient);
  if (sum.back() != kSentinel) gradient[0] = std::numeric_limits<float>::quiet_NaN();
}

KernelCase linear_case(int64_t rows, int64_t in, int64_t out, Write write, int64_t block = 0) {
  const LinearShape shape{rows, in, out, block};
  KernelCase c;
  c.name = "linear_" + to_string(rows) + "x" + to_string(in) + "x" + to_string(out) +
           (write == Write::kAdd ? "_add" : "") +
           (block == 0 ? "" : "_blocks_of_" + to_string(block));
  c.inputs = {static_cast<size_t>(rows * in), static_cast<size_t>(out * in)};
  c.adds = {write == Write::kAdd, true};
  c.forward_adds = write == Write::kAdd;
  c.outputs = static_cast<size_t>(rows * out);
  c.forward_flops = 2.0 * static_cast<double>(rows * in * out);
  c.reference = [=](const Doubles& x) {
    std::vector<double> y(static_cast<size_t>(rows * out), 0.0);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t i = 0; i < in; ++i) y[r * out + o] += x[0][r * in + i] * x[1][o * in + i];
      }
    }
    return y;
  };
  c.forward = [=](const Floats& x, float* y) { linear_forward(shape, x[0], x[1], y, write); };
  c.backward = [=](const Floats& x, const float* dy, const Gradients& d) {
    linear_backward_input(shape, dy, x[1], d[0], write);
    std::vector<float> scratch(static_cast<size_t>(out * in),
                               std::numeric_limits<float>::quiet_NaN());
    in_double(d[1], scratch.size(),
              [&](double* dw) { linear_backward_weight(shape, dy, x[0], scratch.data(), dw); });
  };
  c.cuda = linear_on_gpu(shape, write);
  return c;
}

template <typename Real>
CudaVariant rmsnorm_on_gpu(const RmsNormShape& shape) {
  CudaVariant variant = cuda_variant<Real>();
  variant.inputs = variant.gradients = {Type::kFloat, Type::kFloat};
  variant.output = type_of<Real>();
  variant.forward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped y) -> Prepared {
    auto* const kept = work.array<float>(shape.rows);
    return {[=, &queue] { rmsnorm_forward<Real>(queue, shape, x[0], x[1], y, kept); }, {}};
  };
  variant.backward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped dy,
                         const Arrays& d) -> Prepared {
    auto* const kept = work.array<float>(shape.rows);
    rmsnorm_forward<Real>(queue, shape, x[0], x[1], work.array<Real>(shape.rows * shape.width),
                          kept);
    return {[=, &queue] { rmsnorm_backward<Real>(queue, shape, dy, x[0], x[1], kept, d[0], d[1]); },
            {}};
  };
  return variant;
}

KernelCase rmsnorm_case(int64_t rows, int64_t width) {
  const RmsNormShape shape{rows, width, 1e-5f};
  KernelCase c;
  // A single number is normalised to its sign. Its gradient is the rounding error of two cancelling
  // terms, each as large as the inverse of the number.
  if (width == 1) c.gradient_floor = 1e-4;
  c.name = "rmsnorm_" + to_string(rows) + "x" + to_string(width);
  c.inputs = {static_cast<size_t>(rows * width), static_cast<size_t>(width)};
  c.adds = {true, true};
  c.outputs = c.inputs[0];
  c.reference = [=](const Doubles& x) {
    std::vector<double> y(x[0].size());
    for (int64_t r = 0; r < rows; ++r) {
      double square = 0;
      for (int64_t i = 0; i < width; ++i) square += x[0][r * width + i] * x[0][r * width + i];
      const double rms = std::sqrt(square / static_cast<double>(width) + 1e-5);
      for (int64_t i = 0; i < width; ++i) y[r * width + i] = x[1][i] * x[0][r * width + i] / rms;
    }
    return y;
  };
  c.forward = [=](const Floats& x, float* y) {
    std::vector<float> inverse_rms(static_cast<size_t>(rows));
    rmsnorm_forward(shape, x[0], x[1], y, inverse_rms.data());
  };
  c.backward = [=](const Floats& x, const float* dy, const Gradients& d) {
    std::vector<float> y(static_cast<size_t>(rows * width));
    std::vector<float> inverse_rms(static_cast<size_t>(rows));
    rmsnorm_forward(shape, x[0], x[1], y.data(), inverse_rms.data());
    in_double(d[1], static_cast<size_t>(width), [&](double* dscale) {
      rmsnorm_backward(shape, dy, x[0], x[1], inverse_rms.data(), d[0], dscale);
    });
  };
  c.cuda = {rmsnorm_on_gpu<float>(shape), rmsnorm_on_gpu<Bf16>(shape)};
  // With packs and without them a row is read in different ways.
  if (width % 4 == 0) c.cuda.push_back(unaligned(rmsnorm_on_gpu<float>(shape)));
  return c;
}

KernelCase rope_case(int64_t sequences, int64_t seq_len, int64_t heads, int64_t head_dim) {
  const RopeShape shape{sequences * seq_len, seq_len, heads, head_dim};
  const int64_t half = head_dim / 2;
  std::vector<float> cosine(static_cast<size_t>(seq_len * half));
  std::vector<float> sine(cosine.size());
  rope_table(seq_len, head_dim, 1e4, cosine.data(), sine.data());
  KernelCase c;
  c.name = "rope_" + to_string(shape.tokens) + "x" + to_string(heads) + "x" + to_string(head_dim);
  c.inputs = {static_cast<size_t>(shape.tokens * heads * head_dim)};
  c.adds = {false};
  c.outputs = c.inputs[0];
  c.backward_reads_inputs = false;
  c.tolerance = 1e-5;  // the table's angles are rounded to fp32
  c.gradient_tolerance = 1e-4;
  c.reference = [=](const Doubles& x) {
    std::vector<double> y(x[0].size());
    for (int64_t row = 0; row < shape.tokens * heads; ++row) {
      const int64_t position = row / heads % seq_len;
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) *
            std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
        const double low = x[0][row * head_dim + i];
        const double high = x[0][row * head_dim + half + i];
        y[row * head_dim + i] = low * std::cos(angle) - high * std::sin(angle);
        y[row * head_dim + half + i] = high * std::cos(angle) + low * std::sin(angle);
      }
    }
    return y;
  };
  const size_t count = c.inputs[0];
  c.forward = [=](const Floats& x, float* y) {
    std::copy_n(x[0], count, y);
    rope_forward(shape, cosine.data(), sine.data(), y);
  };
  c.backward = [=](const Floats&, const float* dy, const Gradients& d) {
    std::copy_n(dy, count, d[0]);
    rope_backward(shape, cosine.data(), sine.data(), d[0]);
  };
  c.cuda = rope_on_gpu(shape, cosine, sine);
  return c;
}

// One query position of one head, in double.
void attend(const AttentionShape& s, const Doubles& x, int64_t sequence, int64_t head,
            int64_t position, std::vector<double>& out) {
  const int64_t kv_head = head / (s.heads / s.kv_heads);
  const auto query = [&](int64_t t) {
    return static_cast<size_t>(((sequence * s.seq_len + t) * s.heads + head) * s.head_dim);
  };
  const auto key = [&](int64_t t) {
    return static_cast<size_t>(((sequence * s.seq_len + t) * s.kv_heads + kv_head) * s.head_dim);
  };
  std::vector<double> weight;
  double total = 0;
  for (int64_t t = 0; t <= position; ++t) {
    double score = 0;
    for (int64_t i = 0; i < s.head_dim; ++i) score += x[0][query(position) + i] * x[1][key(t) + i];
    weight.push_back(std::exp(score / std::sqrt(static_cast<double>(s.head_dim))));
    total += weight.back();
  }
  for (int64_t t = 0; t <= position; ++t) {
    for (int64_t i = 0; i < s.head_dim; ++i) {
      out[query(position) + i] += weight[t] / total * x[2][key(t) + i];
    }
  }
}

KernelCase attention_case(const AttentionShape& s) {
  KernelCase c;
  c.name = "attention_" + to_string(s.sequences) + "x" + to_string(s.seq_len) + "_heads_" +
           to_string(s.heads) + "_" + to_string(s.kv_heads) + "x" + to_string(s.head_dim);
  const size_t query = static_cast<size_t>(s.tokens() * s.heads * s.head_dim);
  const size_t key = static_cast<size_t>(s.tokens() * s.kv_heads * s.head_dim);
  c.inputs = {query, key, key};
  c.adds = {false, false, false};
  c.outputs = query;
  // Two products with seq_len x seq_len per head, of which the causal mask leaves half.
  c.forward_flops = 2.0 * static_cast<double>(query) * static_cast<double>(s.seq_len);
  c.reference = [=](const Doubles& x) {
    std::vector<double> out(query, 0.0);
    for (int64_t sequence = 0; sequence < s.sequences; ++sequence) {
      for (int64_t head = 0; head < s.heads; ++head) {
        for (int64_t t = 0; t < s.seq_len; ++t) attend(s, x, sequence, head, t, out);
      }
    }
    return out;
  };
  c.forward = [=](const Floats& x, float* y) {
    std::vector<float> p(static_cast<size_t>(s.probability_count()));
    attention_forward(s, x[0], x[1], x[2], p.data(), y);
  };
  c.backward = [=](const Floats& x, const float* dy, const Gradients& d) {
    std::vector<float> p(static_cast<size_t>(s.probability_count()));
    std::vector<float> out(query);
    std::vector<float> scratch(static_cast<size_t>(s.seq_len * s.seq_len));
    attention_forward(s, x[0], x[1], x[2], p.data(), out.data());
    attention_backward(s, dy, x[0], x[1], x[2], p.data(), {d[0], d[1], d[2], scratch.data()});
  };
  c.cuda = attention_variants(s);
  return c;
}

KernelCase embedding_case(int64_t count, int64_t width, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * i % vocab));
  KernelCase c;
  c.name = "embedding_" + to_string(count) + "x" + to_string(width);
  c.inputs = {static_cast<size_t>(vocab * width)};
  c.adds = {true};
  c.outputs = static_cast<size_t>(count * width);
  const std::set<int32_t> rows(tokens.begin(), tokens.end());
  c.touched = {rows.size() * static_cast<size_t>(width)};
  c.backward_reads_inputs = false;
  c.reference = [=](const Doubles& x) {
    std::vector<double> y;
    for (const int32_t token : tokens) {
      y.insert(y.end(), x[0].begin() + token * width, x[0].begin() + (token + 1) * width);
    }
    return y;
  };
  c.forward = [=](const Floats& x, float* y) {
    embedding_forward(count, width, tokens.data(), x[0], y);
  };
  c.backward = [=](const Floats&, const float* dy, const Gradients& d) {
    in_double(d[0], static_cast<size_t>(vocab * width),
              [&](double* dtable) { embedding_backward(count, width, tokens.data(), dy, dtable); });
  };
  c.cuda = embedding_on_gpu(width, vocab, tokens);
  return c;
}

// Every third target is ignored. The output is the sum, so its gradient is the scale.
KernelCase cross_entropy_case(int64_t rows, int64_t vocab) {
  const CrossEntropyShape shape{rows, vocab, -100};
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < rows; ++i) {
    targets.push_back(i % 3 == 2 ? -100 : static_cast<int32_t>(7 * i % vocab));
  }
  KernelCase c;
  c.name = "cross_entropy_" + to_string(rows) + "x" + to_string(vocab);
  c.inputs = {static_cast<size_t>(rows * vocab)};
  c.adds = {false};
  c.outputs = 1;
  c.reference = [=](const Doubles& x) {
    double loss = 0;
    for (int64_t row = 0; row < rows; ++row) {
      if (targets[row] < 0) continue;
      double total = 0;
      for (int64_t i = 0; i < vocab; ++i) total += std::exp(x[0][row * vocab + i]);
      loss += std::log(total) - x[0][row * vocab + targets[row]];
    }
    return std::vector<double>{loss};
  };
  c.forward = [=](const Floats& x, float* y) {
    std::vector<float> log_sum_exp(static_cast<size_t>(rows));
    *y = static_cast<float>(
        cross_entropy_forward(shape, x[0], targets.data(), log_sum_exp.data()).loss);
  };
  c.backward = [=](const Floats& x, const float* dy, const Gradients& d) {
    std::vector<float> log_sum_exp(static_cast<size_t>(rows));
    cross_entropy_forward(shape, x[0], targets.data(), log_sum_exp.data());
    cross_entropy_backward(shape, *dy, x[0], targets.data(), log_sum_exp.data(), d[0]);
  };
  c.cuda = cross_entropy_on_gpu(shape, targets);
  return c;
}

}  // namespace

// Sizes around the eight lanes of the sums: below, at, above, and one far above. Those that a GPU
// moves in packs, and those that take several warps.
std::vector<KernelCase> dense_cases() {
  return {
      linear_case(1, 1, 1, Write::kReplace),
      linear_case(5, 7, 3, Write::kReplace),
      linear_case(33, 16, 24, Write::kAdd),
      linear_case(33, 16, 24, Write::kReplace, 8),  // the last block is shorter
      rmsnorm_case(1, 1),
      rmsnorm_case(3, 7),
      rmsnorm_case(2, 8),
      rmsnorm_case(5, 67),
      rmsnorm_case(700, 8),  // more rows than parts of the scale's gradient
      rmsnorm_case(3, 516),  // of one pack per thread, of two, of two in a larger block, of more
      rmsnorm_case(3, 1300),
      rmsnorm_case(3, 2052),
      rmsnorm_case(2, 8204),
      rmsnorm_case(3, 2049),
      rope_case(2, 5, 3, 2),
      rope_case(1, 64, 2, 16),
      rope_case(2, 3, 40, 24),
      rope_case(1, 2, 1, 600),
      rope_case(1, 5, 5, 32),
      attention_case({1, 1, 1, 1, 2}),
      attention_case({2, 9, 4, 2, 8}),
      attention_case({1, 17, 3, 3, 6}),
      attention_case({1, 6, 4, 1, 4}),
      attention_case({3, 1, 4, 2, 8}),
      attention_case({2, 16, 4, 2, 8}),
      attention_case({1, 68, 1, 1, 2}),  // rows of more than one warp
      embedding_case(11, 5, 6),
      embedding_case(300, 36, 7),
      embedding_case(3, 4100, 5),  // several loads of a thread in a row
      embedding_case(40, 1, 1),
      embedding_case(40, 260, 50),
      cross_entropy_case(1, 2),
      cross_entropy_case(7, 19),
      cross_entropy_case(5, 64),
      cross_entropy_case(4, 1028),
      cross_entropy_case(4, 1031),
  };
}

std::vector<KernelCase> dense_wide_cases(bool tiny) {
  const int64_t rows = tiny ? 21 : 5000;  // a grid has at most 2,048 blocks
  const int64_t width = tiny ? 36 : 260;
  return {
      linear_case(rows, width + 4, tiny ? 20 : 520, Write::kReplace),  // aligned as bf16 wants it
      linear_case(rows, width, tiny ? 20 : 516, Write::kAdd),
      rmsnorm_case(rows, width),
      rope_case(2, rows / 2, tiny ? 2 : 8, tiny ? 8 : 64),
      embedding_case(rows, width, tiny ? 30 : 1000),
      cross_entropy_case(rows, tiny ? 70 : 2052),
      attention_case({2, tiny ? 12 : 600, tiny ? 2 : 8, tiny ? 1 : 2, tiny ? 8 : 64}),
  };
}

std::vector<KernelCase> dense_bench_cases(bool tiny) {
  const int64_t tokens = tiny ? 32 : 8192;
  const int64_t width = tiny ? 64 : 4096;
  const int64_t vocab = tiny ? 80 : 32000;
  return {
      rmsnorm_case(tokens, width),
      rope_case(8, tokens / 8, tiny ? 2 : 32, 128),
      embedding_case(tokens, width, vocab),
      cross_entropy_case(tokens / 2, vocab),
      attention_case({4, tokens / 8, tiny ? 2 : 32, tiny ? 1 : 8, 128}),
  };
}

}  // namespace ckpt::kernels

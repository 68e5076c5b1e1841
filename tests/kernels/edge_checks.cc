// Edges of the CUDA kernels that the cases do not reach: very long lists of one token, rows wider
// than a grid has columns, sums over many query heads, many pointers.
#include <algorithm>
#include <numeric>

#include "kernels/attention.h"
#include "kernels/cuda/pointers.h"
#include "kernels/embedding.h"
#include "kernels/rmsnorm.h"
#include "tests/kernels/checker.h"
#include "tests/kernels/checks.h"
#include "tests/kernels/cuda_variant.h"

namespace ckpt::kernels {
namespace {

using Tokens = std::vector<int32_t>;

// The sum that embedding_backward adds to one element: up to 32 rows in ascending order; of more,
// eight sums over every eighth row, and then their sum.
float sum_of_list(const std::vector<float>& rows) {
  constexpr size_t kShortMax = 32;
  constexpr size_t kWarps = 8;
  if (rows.size() <= kShortMax) return std::accumulate(rows.begin(), rows.end(), 0.0f);
  float total = 0;
  for (size_t warp = 0; warp < kWarps; ++warp) {
    float part = 0;
    for (size_t i = warp; i < rows.size(); i += kWarps) part += rows[i];
    total += part;
  }
  return total;
}

// Sums agree bit for bit, so their order does not depend on the scheduling of threads.
void embedding_adds_in_order(Checker& c, const Tokens& tokens, int64_t vocab, int64_t width,
                             size_t offset) {
  const auto count = static_cast<int64_t>(tokens.size());
  c.now(std::to_string(count) + " positions of " + std::to_string(vocab) + " tokens, width " +
        std::to_string(width) + ", offset " + std::to_string(offset));
  const std::vector<float> dout =
      random_floats(static_cast<size_t>(count * width) + offset, c.random);
  const auto table_size = static_cast<size_t>(vocab * width);
  std::vector<float> expected(offset + table_size, 0.5f);
  std::vector<std::vector<int64_t>> positions(static_cast<size_t>(vocab));
  for (int64_t i = 0; i < count; ++i) positions[tokens[i]].push_back(i);
  for (int64_t token = 0; token < vocab; ++token) {
    if (positions[token].empty()) continue;
    for (int64_t column = 0; column < width; ++column) {
      std::vector<float> rows;
      for (const int64_t at : positions[token]) rows.push_back(dout[offset + at * width + column]);
      expected[offset + token * width + column] += sum_of_list(rows);
    }
  }
  const auto on_device = device_array(c.queue(), tokens);
  const auto gradient = device_array(c.queue(), dout);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto table = device_array(c.queue(), std::vector<float>(expected.size(), 0.5f));
    embedding_backward(c.queue(), count, width, vocab, on_device.data(), gradient.data() + offset,
                       table.data() + offset);
    c.expect_equal(c.read(table), expected, "the gradient of the table");
  }
}

void embedding_backward_adds_every_list_in_order(Checker& c) {
  const auto draw = [&](int64_t count, int32_t vocab, int frequent_share) {
    Tokens tokens;
    for (int64_t i = 0; i < count; ++i) {
      const auto drawn = static_cast<int32_t>(c.random() % static_cast<uint64_t>(vocab));
      tokens.push_back(static_cast<int>(c.random() % 100) < frequent_share ? vocab - 1 : drawn);
    }
    return tokens;
  };
  embedding_adds_in_order(c, Tokens(10'000, 2), 3, 4, 0);
  embedding_adds_in_order(c, Tokens(70'000, 0), 1, 1, 0);  // more than one window of the sort
  embedding_adds_in_order(c, {5}, 6, 1, 1);
  embedding_adds_in_order(c, draw(900, 40, 10), 40, 7, 0);
  embedding_adds_in_order(c, draw(500, 3000, 30), 3000, 1032, 0);
  embedding_adds_in_order(c, draw(500, 3000, 0), 3000, 8, 1);
  for (const int64_t count : {31, 32, 33, 64, 65}) {  // short and long lists
    embedding_adds_in_order(c, Tokens(static_cast<size_t>(count), 1), 2, 68, 0);
  }
}

// More columns than threads in a grid of one column each.
void rmsnorm_of_a_very_wide_row(Checker& c) {
  const RmsNormShape shape{2, 2048 * 256 + 12, 1e-5f};
  const auto count = static_cast<size_t>(shape.rows * shape.width);
  const std::vector<float> x = random_floats(count, c.random);
  const std::vector<float> dy = random_floats(count, c.random);
  const std::vector<float> scale = random_floats(static_cast<size_t>(shape.width), c.random);
  std::vector<float> inverse_rms(2), y(count), dx(count, 0.5f);
  std::vector<double> dscale(scale.size(), 0.5);
  rmsnorm_forward(shape, x.data(), scale.data(), y.data(), inverse_rms.data());
  rmsnorm_backward(shape, dy.data(), x.data(), scale.data(), inverse_rms.data(), dx.data(),
                   dscale.data());
  const auto on_x = device_array(c.queue(), x);
  const auto on_dy = device_array(c.queue(), dy);
  const auto on_scale = device_array(c.queue(), scale);
  const auto kept = device_array<float>(shape.rows);
  const auto on_y = device_array<float>(shape.rows * shape.width);
  const auto on_dx = device_array(c.queue(), std::vector<float>(count, 0.5f));
  const auto on_dscale = device_array(c.queue(), std::vector<float>(scale.size(), 0.5f));
  rmsnorm_forward<float>(c.queue(), shape, on_x.data(), on_scale.data(), on_y.data(), kept.data());
  rmsnorm_backward<float>(c.queue(), shape, on_dy.data(), on_x.data(), on_scale.data(), kept.data(),
                          on_dx.data(), on_dscale.data());
  const auto expect_near = [&](const auto& values, const auto& expected, const std::string& what) {
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double off = std::abs(static_cast<double>(values[i]) - expected[i]);
      worst = std::max(worst, off / (1 + std::abs(static_cast<double>(expected[i]))));
      if (!(off >= 0)) worst = 1;  // not a number
    }
    c.expect_near(worst, 0, 1e-5, what);
  };
  expect_near(c.read(on_y), y, "the output");
  expect_near(c.read(on_dx), dx, "the gradient of x");
  expect_near(c.read(on_dscale), dscale, "the gradient of the scale");
}

// One token: its only probability is 1, so the value's gradient is the sum over its query heads.
// 256 and fifteen times 1: added one by one in bf16, which has 8 bits, every 1 would be lost.
void query_heads_add_up_before_they_are_rounded(Checker& c) {
  for (const int64_t head_dim : {6, 8}) {  // 6: not aligned, so the products go one by one
    c.now("head_dim " + std::to_string(head_dim));
    const AttentionShape shape{2, 1, 32, 2, head_dim};
    std::vector<Bf16> dout(static_cast<size_t>(shape.tokens() * shape.heads * head_dim));
    for (size_t i = 0; i < dout.size(); ++i) {
      const auto head = static_cast<int64_t>(i) / head_dim;
      dout[i] = to_bf16(head % 16 == 0 ? 256.0f : 1.0f);
    }
    const std::vector<Bf16> keys(static_cast<size_t>(shape.tokens() * shape.kv_heads * head_dim),
                                 to_bf16(0.5f));
    const auto q = device_array(c.queue(), dout);
    const auto k = device_array(c.queue(), keys);
    const auto p = device_array(c.queue(), std::vector<Bf16>(64, to_bf16(1.0f)));
    const auto dq = device_array<Bf16>(static_cast<int64_t>(dout.size()));
    const auto dk = device_array<Bf16>(static_cast<int64_t>(keys.size()));
    const auto dv = device_array<Bf16>(static_cast<int64_t>(keys.size()));
    attention_backward<Bf16>(c.queue(), shape, q.data(), q.data(), k.data(), k.data(), p.data(),
                             {dq.data(), dk.data(), dv.data()});
    for (const Bf16 sum : c.read(dv)) {
      c.expect_near(to_float(sum), to_float(to_bf16(256 + 15)), 0, "the gradient of a value");
    }
  }
}

void pointers_arrive(Checker& c) {
  for (const size_t count :
       {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{257}, size_t{1000}}) {
    c.now(std::to_string(count) + " pointers");
    std::vector<const void*> pointers;
    for (size_t i = 0; i < count; ++i) pointers.push_back(reinterpret_cast<void*>(i * 4096 + 7));
    const auto to = device_array(c.queue(), std::vector<void*>(count + 1, nullptr));
    write_pointers(c.queue(), "pointers", pointers, to.data());
    const std::vector<const void*> before = std::exchange(pointers, {});  // may change at once
    const std::vector<void*> all = c.read(to);
    c.expect(std::equal(before.begin(), before.end(), all.begin()), "other pointers arrived");
    c.expect(all.back() == nullptr, "written behind the last pointer");
  }
}

}  // namespace

std::vector<Check> edge_checks() {
  return {
      {"embedding_backward_adds_every_list_in_order", Backend::kCuda,
       embedding_backward_adds_every_list_in_order},
      {"rmsnorm_of_a_very_wide_row", Backend::kCuda, rmsnorm_of_a_very_wide_row},
      {"query_heads_add_up_before_they_are_rounded", Backend::kCuda,
       query_heads_add_up_before_they_are_rounded},
      {"pointers_arrive", Backend::kCuda, pointers_arrive},
  };
}

}  // namespace ckpt::kernels

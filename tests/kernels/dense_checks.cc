// Properties of the dense kernels on a GPU beyond the kernel cases: AdamW and casts equal the CPU
// bit for bit, the sum of the loss, and empty rows and token lists.
#include <cmath>
#include <limits>

#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/rope.h"
#include "tests/kernels/checker.h"
#include "tests/kernels/checks.h"
#include "tests/kernels/cuda_variant.h"

namespace ckpt::kernels {
namespace {

// More elements than the largest grid has threads, so that each thread loops.
constexpr int64_t kSeveralRounds = 2048 * 256 + 77;
constexpr int64_t kInFlight = 4;  // elements per thread in one round of a cast, at least

template <typename T>
std::vector<uint32_t> bits_of(const std::vector<T>& values) {
  std::vector<uint32_t> bits;
  for (const T value : values) bits.push_back(std::bit_cast<uint32_t>(to_float(value)));
  return bits;
}

// Casts `from` on the device. The arrays start `offset` elements into their memory.
template <typename To, typename From>
std::vector<To> cast_on_gpu(Checker& c, const std::vector<From>& from, size_t offset) {
  std::vector<From> shifted(offset);
  shifted.insert(shifted.end(), from.begin(), from.end());
  const auto in = device_array(c.queue(), shifted);
  const auto out = device_array(c.queue(), std::vector<To>(shifted.size()));
  cast(c.queue(), static_cast<int64_t>(from.size()), in.data() + offset, out.data() + offset);
  const std::vector<To> all = c.read(out);
  return {all.begin() + static_cast<ptrdiff_t>(offset), all.end()};
}

struct Update {
  std::vector<float> grad, value, m, v;
};

Update random_update(Checker& c, size_t count) {
  std::mt19937_64& random = c.random;
  Update update{random_floats(count, random), random_floats(count, random),
                random_floats(count, random), random_floats(count, random)};
  for (float& square : update.v) square *= square;
  return update;
}

constexpr AdamWStep kStep{
    .learning_rate = 1e-3, .weight_decay = 0.1, .gradient_factor = 0.7, .step = 3};

// Updates on the device: `cut` elements in one call and the rest in another.
void adamw_gives_the_bits_of_the_cpu_wherever_it_is_cut(Checker& c) {
  for (const auto& [count, cut] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 0}, {3, 1}, {1030, 0}, {1030, 513}, {kSeveralRounds, 1}}) {
    c.now(std::to_string(count) + " cut at " + std::to_string(cut));
    Update cpu = random_update(c, static_cast<size_t>(count));
    const auto grad = device_array(c.queue(), cpu.grad);
    const auto value = device_array(c.queue(), cpu.value);
    const auto m = device_array(c.queue(), cpu.m);
    const auto v = device_array(c.queue(), cpu.v);
    const auto compute = device_array<Bf16>(count);
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, cut}, {cut, count}}) {
      adamw_update(c.queue(), kStep, to - from, grad.data() + from, value.data() + from,
                   m.data() + from, v.data() + from, compute.data() + from);
    }
    adamw_update(kStep, count, cpu.grad.data(), cpu.value.data(), cpu.m.data(), cpu.v.data());
    c.expect_equal(c.read(grad), cpu.grad, "grad");
    c.expect_equal(c.read(value), cpu.value, "value");
    c.expect_equal(c.read(m), cpu.m, "m");
    c.expect_equal(c.read(v), cpu.v, "v");
    std::vector<Bf16> rounded(cpu.value.size());
    cast(count, cpu.value.data(), rounded.data());
    c.expect_equal(bits_of(c.read(compute)), bits_of(rounded), "the bf16 copy");
  }
}

void adamw_without_a_bf16_copy(Checker& c) {
  Update cpu = random_update(c, 77);
  const auto grad = device_array(c.queue(), cpu.grad);
  const auto value = device_array(c.queue(), cpu.value);
  const auto m = device_array(c.queue(), cpu.m);
  const auto v = device_array(c.queue(), cpu.v);
  adamw_update(c.queue(), kStep, 77, grad.data(), value.data(), m.data(), v.data());
  adamw_update(kStep, 77, cpu.grad.data(), cpu.value.data(), cpu.m.data(), cpu.v.data());
  c.expect_equal(c.read(value), cpu.value, "value");
}

// Every bf16, and floats between it and the next: just above, and just below, at and above the tie.
std::vector<float> floats_around_bf16() {
  std::vector<float> all;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      all.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return all;
}

void casts_give_the_bits_of_the_cpu(Checker& c) {
  std::vector<float> wide = floats_around_bf16();
  wide.resize(kInFlight * kSeveralRounds, 1.0f);
  std::vector<Bf16> narrow(wide.size());
  cast(static_cast<int64_t>(wide.size()), wide.data(), narrow.data());
  std::vector<float> widened(wide.size());
  cast(static_cast<int64_t>(wide.size()), narrow.data(), widened.data());
  for (const size_t offset : {0, 1}) {  // 1: not aligned for packs
    c.expect_equal(bits_of(cast_on_gpu<Bf16>(c, wide, offset)), bits_of(narrow), "to bf16");
    c.expect_equal(bits_of(cast_on_gpu<float>(c, narrow, offset)), bits_of(widened), "to fp32");
  }
  for (const size_t count : {0, 1, 7, 8, 9}) {
    const std::vector<float> few(wide.begin() + 99, wide.begin() + 99 + static_cast<int>(count));
    const std::vector<Bf16> expected(narrow.begin() + 99,
                                     narrow.begin() + 99 + static_cast<int>(count));
    c.expect_equal(bits_of(cast_on_gpu<Bf16>(c, few, 0)), bits_of(expected), "a few");
  }
}

void cross_entropy_agrees_with_the_cpu(Checker& c) {
  for (const auto& [rows, vocab] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 5}, {1, 1}, {700, 12}, {3, 1500}}) {
    c.now(std::to_string(rows) + "x" + std::to_string(vocab));
    const CrossEntropyShape shape{rows, vocab, -7};
    std::vector<float> logits = random_floats(static_cast<size_t>(rows * vocab), c.random);
    std::vector<int32_t> targets;
    for (int64_t row = 0; row < rows; ++row) {
      targets.push_back(row % 5 == 1 ? -7 : static_cast<int32_t>(row * 3 % vocab));
      if (row % 5 == 1) logits[row * vocab] = std::numeric_limits<float>::quiet_NaN();
      if (row % 5 == 2) logits[row * vocab + (row * 3 + 1) % vocab] = -INFINITY;
      if (row % 5 == 3) logits[row * vocab] += 200;
    }
    std::vector<float> expected(targets.size());
    const CrossEntropySum on_cpu =
        cross_entropy_forward(shape, logits.data(), targets.data(), expected.data());
    const auto x = device_array(c.queue(), logits);
    const auto t = device_array(c.queue(), targets);
    const auto log_sum_exp = device_array<float>(rows);
    const auto sum = device_array<CrossEntropySum>(1);
    cross_entropy_forward(c.queue(), shape, x.data(), t.data(), log_sum_exp.data(), sum.data());
    const CrossEntropySum on_gpu = c.read(sum)[0];
    c.expect(on_gpu.targets == on_cpu.targets, "the number of targets");
    c.expect_near(on_gpu.loss, on_cpu.loss, 1e-6 * std::abs(on_cpu.loss), "the loss");
    const std::vector<float> got = c.read(log_sum_exp);
    for (size_t row = 0; row < expected.size(); ++row) {
      c.expect_near(got[row], expected[row], 1e-6 * (1 + std::abs(expected[row])), "log of a sum");
    }
    const auto dlogits = device_array<float>(rows * vocab);
    cross_entropy_backward(c.queue(), shape, 0.5f, x.data(), t.data(), log_sum_exp.data(),
                           dlogits.data());
    std::vector<float> dexpected(logits.size());
    cross_entropy_backward(shape, 0.5f, logits.data(), targets.data(), expected.data(),
                           dexpected.data());
    const std::vector<float> dgot = c.read(dlogits);
    for (size_t i = 0; i < dgot.size(); ++i)
      c.expect_near(dgot[i], dexpected[i], 1e-6, "a gradient");
  }
}

void nothing_is_written_where_there_is_nothing(Checker& c) {
  const auto untouched = device_array(c.queue(), std::vector<float>(8, 0.25f));
  float* const some = untouched.data();
  const auto tokens = device_array(c.queue(), std::vector<int32_t>{0});
  linear_forward(c.queue(), {0, 2, 2}, some, some, some);
  linear_backward_weight(c.queue(), {0, 2, 2}, some, some, some);
  rope_forward(c.queue(), {0, 4, 2, 4}, some, some, some);
  rope_forward(c.queue(), {4, 4, 0, 4}, some, some, some);
  embedding_forward(c.queue(), 0, 4, tokens.data(), some, some);
  embedding_backward(c.queue(), 0, 4, 2, tokens.data(), some, some);
  adamw_update(c.queue(), kStep, 0, some, some, some, some);
  cross_entropy_backward(c.queue(), {0, 4}, 1.0f, some, tokens.data(), some, some);
  c.expect_equal(c.read(untouched), std::vector<float>(8, 0.25f), "what nobody writes");
}

void a_product_over_nothing_is_zero(Checker& c) {
  const auto y = device_array(c.queue(), std::vector<float>(6, 0.25f));
  linear_forward(c.queue(), {2, 0, 3}, y.data(), y.data(), y.data(), Write::kAdd);
  c.expect_equal(c.read(y), std::vector<float>(6, 0.25f), "what is added to");
  linear_forward(c.queue(), {2, 0, 3}, y.data(), y.data(), y.data());
  c.expect_equal(c.read(y), std::vector<float>(6, 0.0f), "what is replaced");
}

}  // namespace

std::vector<Check> dense_checks() {
  return {
      {"adamw_gives_the_bits_of_the_cpu_wherever_it_is_cut", Backend::kCuda,
       adamw_gives_the_bits_of_the_cpu_wherever_it_is_cut},
      {"adamw_without_a_bf16_copy", Backend::kCuda, adamw_without_a_bf16_copy},
      {"casts_give_the_bits_of_the_cpu", Backend::kCuda, casts_give_the_bits_of_the_cpu},
      {"cross_entropy_agrees_with_the_cpu", Backend::kCuda, cross_entropy_agrees_with_the_cpu},
      {"nothing_is_written_where_there_is_nothing", Backend::kCuda,
       nothing_is_written_where_there_is_nothing},
      {"a_product_over_nothing_is_zero", Backend::kCuda, a_product_over_nothing_is_zero},
  };
}

}  // namespace ckpt::kernels

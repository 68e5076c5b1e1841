// What the kernel cases do not show of the dense kernels on a GPU: AdamW and casts, whose bits are
// those of the CPU, the sum of the loss, and rows and tokens that there are none of.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/rope.h"
#include "tests/kernels/checks.h"
#include "tests/kernels/cuda_fixture.h"
#include "tests/kernels/cuda_variant.h"

namespace ckpt::kernels {
namespace {

constexpr uint64_t kSeed = 20241122;
// More than all threads of a largest grid, one element each: kernels that walk come around again.
constexpr int64_t kSeveralRounds = 2048 * 256 + 77;

template <typename T>
std::vector<uint32_t> bits_of(const std::vector<T>& values) {
  std::vector<uint32_t> bits;
  for (const T value : values) bits.push_back(std::bit_cast<uint32_t>(to_float(value)));
  return bits;
}

class CudaDenseTest : public CudaTest {
 protected:
  // `from` on the device, cast there. The arrays start `offset` elements into their memory.
  template <typename To, typename From>
  std::vector<To> cast_on_gpu(const std::vector<From>& from, size_t offset) {
    std::vector<From> shifted(offset);
    shifted.insert(shifted.end(), from.begin(), from.end());
    const auto in = device_array(*queue_, shifted);
    const auto out = device_array(*queue_, std::vector<To>(shifted.size()));
    cast(*queue_, static_cast<int64_t>(from.size()), in.data() + offset, out.data() + offset);
    const std::vector<To> all = read(out);
    return {all.begin() + static_cast<ptrdiff_t>(offset), all.end()};
  }
};

struct Update {
  std::vector<float> grad, value, m, v;
};

Update random_update(size_t count) {
  std::mt19937_64 random(kSeed);
  Update update{random_floats(count, random), random_floats(count, random),
                random_floats(count, random), random_floats(count, random)};
  for (float& square : update.v) square *= square;
  return update;
}

constexpr AdamWStep kStep{
    .learning_rate = 1e-3, .weight_decay = 0.1, .gradient_factor = 0.7, .step = 3};

// On the device, `cut` elements in one call and the rest in another.
TEST_F(CudaDenseTest, AdamWGivesTheBitsOfTheCpuWhereverItIsCut) {
  for (const auto& [count, cut] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 0}, {3, 1}, {1030, 0}, {1030, 513}, {kSeveralRounds, 1}}) {
    SCOPED_TRACE(std::to_string(count) + " cut at " + std::to_string(cut));
    Update cpu = random_update(static_cast<size_t>(count));
    const auto grad = device_array(*queue_, cpu.grad);
    const auto value = device_array(*queue_, cpu.value);
    const auto m = device_array(*queue_, cpu.m);
    const auto v = device_array(*queue_, cpu.v);
    const auto compute = device_array<Bf16>(count);
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, cut}, {cut, count}}) {
      adamw_update(*queue_, kStep, to - from, grad.data() + from, value.data() + from,
                   m.data() + from, v.data() + from, compute.data() + from);
    }
    adamw_update(kStep, count, cpu.grad.data(), cpu.value.data(), cpu.m.data(), cpu.v.data());
    EXPECT_EQ(read(grad), cpu.grad);
    EXPECT_EQ(read(value), cpu.value);
    EXPECT_EQ(read(m), cpu.m);
    EXPECT_EQ(read(v), cpu.v);
    std::vector<Bf16> rounded(cpu.value.size());
    cast(count, cpu.value.data(), rounded.data());
    EXPECT_EQ(bits_of(read(compute)), bits_of(rounded));
  }
}

TEST_F(CudaDenseTest, AdamWWithoutABf16Copy) {
  Update cpu = random_update(77);
  const auto grad = device_array(*queue_, cpu.grad);
  const auto value = device_array(*queue_, cpu.value);
  const auto m = device_array(*queue_, cpu.m);
  const auto v = device_array(*queue_, cpu.v);
  adamw_update(*queue_, kStep, 77, grad.data(), value.data(), m.data(), v.data());
  adamw_update(kStep, 77, cpu.grad.data(), cpu.value.data(), cpu.m.data(), cpu.v.data());
  EXPECT_EQ(read(value), cpu.value);
}

// Every bf16, and between two neighbours: just above, just below the tie, the tie, just above it.
std::vector<float> floats_around_bf16() {
  std::vector<float> all;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      all.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return all;
}

TEST_F(CudaDenseTest, CastsGiveTheBitsOfTheCpu) {
  std::vector<float> wide = floats_around_bf16();
  wide.resize(kSeveralRounds, 1.0f);
  std::vector<Bf16> narrow(wide.size());
  cast(static_cast<int64_t>(wide.size()), wide.data(), narrow.data());
  std::vector<float> widened(wide.size());
  cast(static_cast<int64_t>(wide.size()), narrow.data(), widened.data());
  for (const size_t offset : {0, 1}) {  // 1: not aligned for packs
    EXPECT_EQ(bits_of(cast_on_gpu<Bf16>(wide, offset)), bits_of(narrow));
    EXPECT_EQ(bits_of(cast_on_gpu<float>(narrow, offset)), bits_of(widened));
  }
  for (const size_t count : {0, 1, 7, 8, 9}) {
    const std::vector<float> few(wide.begin() + 99, wide.begin() + 99 + static_cast<int>(count));
    const std::vector<Bf16> expected(narrow.begin() + 99,
                                     narrow.begin() + 99 + static_cast<int>(count));
    EXPECT_EQ(bits_of(cast_on_gpu<Bf16>(few, 0)), bits_of(expected));
  }
}

TEST_F(CudaDenseTest, CrossEntropyAgreesWithTheCpu) {
  for (const auto& [rows, vocab] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 5}, {1, 1}, {700, 12}, {3, 1500}}) {
    SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(vocab));
    const CrossEntropyShape shape{rows, vocab, -7};
    std::mt19937_64 random(kSeed);
    std::vector<float> logits = random_floats(static_cast<size_t>(rows * vocab), random);
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
    const auto x = device_array(*queue_, logits);
    const auto t = device_array(*queue_, targets);
    const auto log_sum_exp = device_array<float>(rows);
    const auto sum = device_array<CrossEntropySum>(1);
    cross_entropy_forward(*queue_, shape, x.data(), t.data(), log_sum_exp.data(), sum.data());
    const CrossEntropySum on_gpu = read(sum)[0];
    EXPECT_EQ(on_gpu.targets, on_cpu.targets);
    EXPECT_NEAR(on_gpu.loss, on_cpu.loss, 1e-6 * std::abs(on_cpu.loss));
    const std::vector<float> got = read(log_sum_exp);
    for (size_t row = 0; row < expected.size(); ++row) {
      EXPECT_NEAR(got[row], expected[row], 1e-6 * (1 + std::abs(expected[row])));
    }
    const auto dlogits = device_array<float>(rows * vocab);
    cross_entropy_backward(*queue_, shape, 0.5f, x.data(), t.data(), log_sum_exp.data(),
                           dlogits.data());
    std::vector<float> dexpected(logits.size());
    cross_entropy_backward(shape, 0.5f, logits.data(), targets.data(), expected.data(),
                           dexpected.data());
    const std::vector<float> dgot = read(dlogits);
    for (size_t i = 0; i < dgot.size(); ++i) EXPECT_NEAR(dgot[i], dexpected[i], 1e-6);
  }
}

TEST_F(CudaDenseTest, NothingIsWrittenWhereThereIsNothing) {
  const auto untouched = device_array(*queue_, std::vector<float>(8, 0.25f));
  float* const some = untouched.data();
  const auto tokens = device_array(*queue_, std::vector<int32_t>{0});
  linear_forward(*queue_, {0, 2, 2}, some, some, some);
  linear_backward_weight(*queue_, {0, 2, 2}, some, some, some);
  rope_forward(*queue_, {0, 4, 2, 4}, some, some, some);
  rope_forward(*queue_, {4, 4, 0, 4}, some, some, some);
  embedding_forward(*queue_, 0, 4, tokens.data(), some, some);
  embedding_backward(*queue_, 0, 4, 2, tokens.data(), some, some);
  adamw_update(*queue_, kStep, 0, some, some, some, some);
  cross_entropy_backward(*queue_, {0, 4}, 1.0f, some, tokens.data(), some, some);
  EXPECT_EQ(read(untouched), std::vector<float>(8, 0.25f));
}

TEST_F(CudaDenseTest, AProductOverNothingIsZero) {
  const auto y = device_array(*queue_, std::vector<float>(6, 0.25f));
  linear_forward(*queue_, {2, 0, 3}, y.data(), y.data(), y.data(), Write::kAdd);
  EXPECT_EQ(read(y), std::vector<float>(6, 0.25f));
  linear_forward(*queue_, {2, 0, 3}, y.data(), y.data(), y.data());
  EXPECT_EQ(read(y), std::vector<float>(6, 0.0f));
}

}  // namespace
}  // namespace ckpt::kernels

// Each row of a product has the same bits, whatever other rows are multiplied with it.
#include "kernels/row_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ckpt::kernels {
namespace {

std::vector<float> random_floats(std::mt19937_64& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

struct Shape {
  int64_t columns;
  int64_t inner;
};
constexpr Shape kShapes[] = {{1, 1}, {24, 16}, {16, 24}, {128, 64}, {33, 47}, {15, 300}, {17, 0}};

TEST(RowGemmTest, MatchesReferenceProduct) {
  std::mt19937_64 random(1);
  std::vector<float> room;
  for (const auto& [columns, inner] : kShapes) {
    for (const bool transposed : {false, true}) {
      for (const Write write : {Write::kReplace, Write::kAdd}) {
        const int64_t rows = 13;
        const int64_t stride = columns + 3;
        const auto a = random_floats(random, rows * (inner + 2));
        const auto b = random_floats(random, columns * inner);
        const auto before = random_floats(random, rows * stride);
        std::vector<float> c = before;
        const MatrixView right = transposed ? MatrixView{b.data(), inner, Transpose::kYes}
                                            : MatrixView{b.data(), columns};
        row_gemm({rows, columns, inner}, {a.data(), inner + 2}, right, write, c.data(), stride,
                 room);
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t column = 0; column < stride; ++column) {
            const auto at = static_cast<size_t>(row * stride + column);
            if (column >= columns) {
              EXPECT_EQ(c[at], before[at]) << "beyond the row";
              continue;
            }
            double sum = write == Write::kAdd ? static_cast<double>(before[at]) : 0;
            double size = std::abs(sum);
            for (int64_t k = 0; k < inner; ++k) {
              const auto left = static_cast<double>(a[row * (inner + 2) + k]);
              const double factor = transposed ? b[column * inner + k] : b[k * columns + column];
              sum += left * factor;
              size += std::abs(left * factor);
            }
            EXPECT_NEAR(c[at], sum, 1e-6 * size) << row << ", " << column;
          }
        }
      }
    }
  }
}

// OpenBLAS does not have this property: see the header.
TEST(RowGemmTest, RowBitsDoNotDependOnOtherRows) {
  std::mt19937_64 random(2);
  std::vector<float> room;
  const int64_t rows = 40;
  for (const auto& [columns, inner] : kShapes) {
    for (const bool transposed : {false, true}) {
      const auto a = random_floats(random, rows * inner);
      const auto b = random_floats(random, columns * inner);
      const MatrixView right =
          transposed ? MatrixView{b.data(), inner, Transpose::kYes} : MatrixView{b.data(), columns};
      std::vector<float> whole(static_cast<size_t>(rows * columns));
      row_gemm({rows, columns, inner}, {a.data(), inner}, right, Write::kReplace, whole.data(),
               columns, room);
      for (int64_t count = 1; count <= 14; ++count) {
        for (const int64_t first : {0, 1, 5, 11, 26}) {
          std::vector<float> part(static_cast<size_t>(count * columns));
          row_gemm({count, columns, inner}, {a.data() + first * inner, inner}, right,
                   Write::kReplace, part.data(), columns, room);
          const std::vector<float> expected(whole.begin() + first * columns,
                                            whole.begin() + (first + count) * columns);
          ASSERT_EQ(part, expected) << count << " rows from " << first;
        }
      }
    }
  }
}

TEST(RowGemmTest, WeightGradientsDoNotDependOnRowSplit) {
  std::mt19937_64 random(3);
  const int64_t rows = 60, out = 24, in = 16;
  const auto dy = random_floats(random, rows * out);
  const auto x = random_floats(random, rows * in);
  const std::vector<double> wide(dy.begin(), dy.end());
  const std::vector<double> thin(x.begin(), x.end());
  const auto rounded = [&](std::initializer_list<int64_t> cuts) {
    std::vector<double> dw(static_cast<size_t>(out * in), 0.0);
    int64_t begin = 0;
    for (const int64_t end : cuts) {
      add_weight_gradient(end - begin, out, in, wide.data() + begin * out, thin.data() + begin * in,
                          dw.data());
      begin = end;
    }
    return std::vector<float>(dw.begin(), dw.end());
  };
  const auto whole = rounded({60});
  EXPECT_EQ(rounded({1, 2, 60}), whole);
  EXPECT_EQ(rounded({31, 60}), whole);
  EXPECT_EQ(rounded({7, 7, 20, 59, 60}), whole);
}

}  // namespace
}  // namespace ckpt::kernels

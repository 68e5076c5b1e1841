#include <algorithm>
#include <cstring>

#include "formats/base/assert.h"
#include "kernels/row_gemm.h"

namespace ckpt::kernels {
namespace {

// Eight floats: a register with AVX, two without; the sums are the same lane by lane.
using Lanes [[gnu::vector_size(32)]] = float;
constexpr int64_t kRegisterLanes = 8;
constexpr int64_t kPanel = 2 * kRegisterLanes;  // columns of b that are read together
constexpr int64_t kTileRows = 6;                // 12 sums, 2 of b, 1 of a: 15 of 16 registers

// b in panels of kPanel columns, [panel][inner][kPanel], the last one filled up with zeros.
void pack(const GemmShape& shape, const MatrixView& b, std::vector<float>& room) {
  const int64_t panels = (shape.columns + kPanel - 1) / kPanel;
  room.assign(static_cast<size_t>(panels * shape.inner * kPanel), 0.0f);
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t first = panel * kPanel;
    const int64_t width = std::min(kPanel, shape.columns - first);
    float* const to = room.data() + panel * shape.inner * kPanel;
    if (b.transpose == Transpose::kNo) {
      for (int64_t k = 0; k < shape.inner; ++k) {
        std::copy_n(b.data + k * b.stride + first, width, to + k * kPanel);
      }
    } else {
      for (int64_t j = 0; j < width; ++j) {
        const float* from = b.data + (first + j) * b.stride;
        for (int64_t k = 0; k < shape.inner; ++k) to[k * kPanel + j] = from[k];
      }
    }
  }
}

// out[kRows][kPanel] = kRows rows of a, times one panel.
template <int kRows>
[[gnu::always_inline]] inline void multiply_tile(int64_t inner, const float* a, int64_t a_stride,
                                                 const float* panel, float* out) {
  Lanes low[kRows] = {};
  Lanes high[kRows] = {};
  for (int64_t k = 0; k < inner; ++k) {
    Lanes left;
    Lanes right;
    std::memcpy(&left, panel + k * kPanel, sizeof(left));
    std::memcpy(&right, panel + k * kPanel + kRegisterLanes, sizeof(right));
    for (int row = 0; row < kRows; ++row) {
      const float value = a[row * a_stride + k];
      low[row] += value * left;
      high[row] += value * right;
    }
  }
  for (int row = 0; row < kRows; ++row) {
    std::memcpy(out + row * kPanel, &low[row], sizeof(Lanes));
    std::memcpy(out + row * kPanel + kRegisterLanes, &high[row], sizeof(Lanes));
  }
}

[[gnu::always_inline]] inline void multiply_rows(int64_t rows, int64_t inner, const float* a,
                                                 int64_t a_stride, const float* panel, float* out) {
  switch (rows) {
    case 1:
      return multiply_tile<1>(inner, a, a_stride, panel, out);
    case 2:
      return multiply_tile<2>(inner, a, a_stride, panel, out);
    case 3:
      return multiply_tile<3>(inner, a, a_stride, panel, out);
    case 4:
      return multiply_tile<4>(inner, a, a_stride, panel, out);
    case 5:
      return multiply_tile<5>(inner, a, a_stride, panel, out);
    default:
      return multiply_tile<kTileRows>(inner, a, a_stride, panel, out);
  }
}

using MultiplyRows = void(int64_t rows, int64_t inner, const float* a, int64_t a_stride,
                          const float* panel, float* out);

[[gnu::target("avx2,fma")]] void multiply_rows_fused(int64_t rows, int64_t inner, const float* a,
                                                     int64_t a_stride, const float* panel,
                                                     float* out) {
  multiply_rows(rows, inner, a, a_stride, panel, out);
}

void multiply_rows_anywhere(int64_t rows, int64_t inner, const float* a, int64_t a_stride,
                            const float* panel, float* out) {
  multiply_rows(rows, inner, a, a_stride, panel, out);
}

MultiplyRows& best_multiply() {
  const bool fused = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return fused ? multiply_rows_fused : multiply_rows_anywhere;
}

}  // namespace

void row_gemm(const GemmShape& shape, const MatrixView& a, const MatrixView& b, Write write,
              float* c, int64_t c_stride, std::vector<float>& room) {
  CKPT_ASSERT(a.transpose == Transpose::kNo);
  if (shape.rows == 0 || shape.columns == 0) return;
  static MultiplyRows& multiply = best_multiply();
  pack(shape, b, room);
  float tile[kTileRows * kPanel];
  for (int64_t first = 0; first < shape.columns; first += kPanel) {
    const float* panel = room.data() + first * shape.inner;
    const int64_t width = std::min(kPanel, shape.columns - first);
    for (int64_t row = 0; row < shape.rows; row += kTileRows) {
      const int64_t rows = std::min(kTileRows, shape.rows - row);
      multiply(rows, shape.inner, a.data + row * a.stride, a.stride, panel, tile);
      for (int64_t i = 0; i < rows; ++i) {
        float* to = c + (row + i) * c_stride + first;
        const float* from = tile + i * kPanel;
        if (write == Write::kReplace) {
          std::copy_n(from, width, to);
        } else {
          for (int64_t j = 0; j < width; ++j) to[j] += from[j];
        }
      }
    }
  }
}

void add_weight_gradient(int64_t rows, int64_t out, int64_t in, const double* dy, const double* x,
                         double* dw) {
  add_product_of_columns({out, in, rows}, dy, x, dw);
}

}  // namespace ckpt::kernels

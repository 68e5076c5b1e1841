// Sums over tensors and columns: near the exact ones, the same bits every time, and not finite
// exactly where an input is not.
#include <cmath>
#include <limits>

#include "kernels/sums.h"
#include "tests/kernels/backend_memory.h"

namespace ckpt::kernels {
namespace {

using std::to_string;

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<double> doubles(const BackendMemory& memory) {
  const Bytes bytes = memory.read();
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<float> random_floats(Checker& c, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(c.random);
  return values;
}

double sum_of_squares(Checker& c, const std::vector<float>& values, double before) {
  const BackendMemory x(c, bytes_of(values), 0);
  const BackendMemory sum(c, bytes_of(std::vector<double>{before}), 0);
  const auto* const from = reinterpret_cast<const float*>(x.data());
  auto* const to = reinterpret_cast<double*>(sum.data());
  const auto count = static_cast<int64_t>(values.size());
  c.run([&](auto&... queue) { add_sum_of_squares(queue..., count, from, to); });
  return doubles(sum)[0];
}

std::vector<double> column_sums(Checker& c, int64_t rows, int64_t columns,
                                const std::vector<float>& values,
                                const std::vector<double>& before) {
  const BackendMemory x(c, bytes_of(values), 0);
  const BackendMemory sums(c, bytes_of(before), 0);
  const auto* const from = reinterpret_cast<const float*>(x.data());
  auto* const to = reinterpret_cast<double*>(sums.data());
  c.run([&](auto&... queue) { add_column_sums(queue..., rows, columns, from, to); });
  return doubles(sums);
}

void squares_are_added_to_what_is_there(Checker& c) {
  for (const int64_t count : {0, 1, 7, 8, 255, 256, 257, 5000, 140'000}) {
    c.now(to_string(count) + " values");
    const std::vector<float> values = random_floats(c, count);
    double expected = 3;
    for (const float value : values) expected += static_cast<double>(value) * value;
    const double sum = sum_of_squares(c, values, 3);
    c.expect_near(sum, expected, 1e-12 * expected, "the sum");
    c.expect(sum == sum_of_squares(c, values, 3), "the same bits again");
  }
}

void squares_are_finite_exactly_if_all_values_are(Checker& c) {
  std::vector<float> values(1000, std::numeric_limits<float>::max());
  c.expect(std::isfinite(sum_of_squares(c, values, 0)), "of the largest floats");
  values[999] = -std::numeric_limits<float>::infinity();
  c.expect(!std::isfinite(sum_of_squares(c, values, 0)), "of an infinity");
  values[999] = std::numeric_limits<float>::quiet_NaN();
  c.expect(!std::isfinite(sum_of_squares(c, values, 0)), "of a NaN");
}

void columns_are_added_to_what_is_there(Checker& c) {
  const int64_t shapes[][2] = {{0, 4}, {1, 1}, {3, 300}, {64, 8}, {65, 8}, {1000, 5}};
  for (const auto& [rows, columns] : shapes) {
    c.now(to_string(rows) + " x " + to_string(columns));
    const std::vector<float> values = random_floats(c, rows * columns);
    std::vector<double> before(static_cast<size_t>(columns));
    for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<double>(i);
    const std::vector<double> sums = column_sums(c, rows, columns, values, before);
    for (size_t column = 0; column < before.size(); ++column) {
      double expected = before[column];
      for (int64_t row = 0; row < rows; ++row) {
        expected += static_cast<double>(values[static_cast<size_t>(row * columns) + column]);
      }
      c.expect_near(sums[column], expected, 1e-11, "column " + to_string(column));
    }
    c.expect_equal(column_sums(c, rows, columns, values, before), sums, "the same bits again");
  }
}

void elements_are_added_to_what_is_there(Checker& c) {
  for (const int64_t count : {0, 1, 255, 256, 257, 140'000}) {
    c.now(to_string(count) + " values");
    const std::vector<float> values = random_floats(c, count);
    std::vector<float> expected = random_floats(c, count);
    const BackendMemory x(c, bytes_of(values), 0);
    const BackendMemory to(c, bytes_of(expected), 0);
    const auto* const from = reinterpret_cast<const float*>(x.data());
    auto* const sum = reinterpret_cast<float*>(to.data());
    c.run([&](auto&... queue) { add(queue..., count, from, sum); });
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += values[i];
    c.expect(to.read() == bytes_of(expected), "the sums");
  }
}

}  // namespace

std::vector<Check> sums_checks() {
  std::vector<Check> all;
  add_on_both(all, "squares_are_added_to_what_is_there", squares_are_added_to_what_is_there);
  add_on_both(all, "squares_are_finite_exactly_if_all_values_are",
              squares_are_finite_exactly_if_all_values_are);
  add_on_both(all, "columns_are_added_to_what_is_there", columns_are_added_to_what_is_there);
  add_on_both(all, "elements_are_added_to_what_is_there", elements_are_added_to_what_is_there);
  return all;
}

}  // namespace ckpt::kernels

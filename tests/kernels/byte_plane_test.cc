// Byte planes and XOR deltas on every backend, against their definitions.
#include "kernels/byte_plane.h"

#include <gtest/gtest.h>

#include "kernels/delta.h"
#include "tests/kernels/memory_backends.h"

namespace ckpt::kernels {
namespace {

using BytePlaneTest = MemoryTest;

TEST_P(BytePlaneTest, SplitsAndJoins) {
  for (const int64_t element_bytes : {2, 4, 8}) {
    for (const int64_t count : {0, 1, 2, 3, 4, 5, 64, 1023, 1024, 4100, 9001}) {
      for (const uint64_t shift : {0, 1, 4, 16}) {
        SCOPED_TRACE(testing::Message() << count << " of " << element_bytes << ", shift " << shift);
        const Bytes elements = random_bytes(static_cast<uint64_t>(count * element_bytes));
        Bytes planes(elements.size());
        for (int64_t i = 0; i < count; ++i) {
          for (int64_t plane = 0; plane < element_bytes; ++plane) {
            planes[static_cast<size_t>(plane * count + i)] =
                elements[static_cast<size_t>(i * element_bytes + plane)];
          }
        }
        const auto from = memory(elements, shift);
        const auto between = memory(random_bytes(elements.size()), 0);
        const auto to = memory(random_bytes(elements.size()), shift);
        run([&](auto&... queue) {
          const int bytes = static_cast<int>(element_bytes);
          split_byte_planes(queue..., count, bytes, from->data(), between->data());
          join_byte_planes(queue..., count, bytes, between->data(), to->data());
        });
        EXPECT_TRUE(between->read() == planes);
        EXPECT_TRUE(to->read() == elements);
        EXPECT_TRUE(from->read() == elements);
      }
    }
  }
}

CKPT_ON_EVERY_BACKEND(BytePlaneTest);

class DeltaTest : public MemoryTest {
 protected:
  void expect_delta(uint64_t bytes, uint64_t shift_a, uint64_t shift_b, uint64_t shift_to) {
    SCOPED_TRACE(testing::Message()
                 << bytes << " bytes, shifts " << shift_a << ", " << shift_b << ", " << shift_to);
    const Bytes a = random_bytes(bytes);
    const Bytes b = random_bytes(bytes);
    Bytes expected(bytes);
    for (size_t i = 0; i < bytes; ++i) expected[i] = a[i] ^ b[i];
    const auto on_a = memory(a, shift_a);
    const auto on_b = memory(b, shift_b);
    const auto to = memory(random_bytes(bytes), shift_to);
    const auto size = static_cast<int64_t>(bytes);
    run([&](auto&... queue) { delta(queue..., size, on_a->data(), on_b->data(), to->data()); });
    EXPECT_TRUE(to->read() == expected);
    EXPECT_TRUE(on_a->read() == a);
    // Into one of its arguments, and back.
    run([&](auto&... queue) { delta(queue..., size, on_a->data(), on_b->data(), on_a->data()); });
    EXPECT_TRUE(on_a->read() == expected);
    run([&](auto&... queue) { delta(queue..., size, on_b->data(), on_a->data(), on_a->data()); });
    EXPECT_TRUE(on_a->read() == a);
    EXPECT_TRUE(on_b->read() == b);
  }
};

TEST_P(DeltaTest, OfAnySizeAndAlignment) {
  for (const uint64_t bytes : {0, 1, 15, 16, 17, 4096, 16384, 20003}) {
    for (const uint64_t shift : {0, 1, 8, 15}) {
      expect_delta(bytes, shift, shift, shift);
      expect_delta(bytes, shift, 0, 0);
      expect_delta(bytes, 0, shift, 3);
    }
  }
}

CKPT_ON_EVERY_BACKEND(DeltaTest);

}  // namespace
}  // namespace ckpt::kernels

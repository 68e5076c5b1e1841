// Byte planes and XOR deltas on every backend, against their definitions; bytes that a kernel
// brings to the host.
#include "kernels/byte_plane.h"
#include "kernels/cuda/land.h"
#include "kernels/delta.h"
#include "tests/kernels/backend_memory.h"

namespace ckpt::kernels {
namespace {

using std::to_string;

void planes_of(Checker& c, int64_t count, int element_bytes, uint64_t shift) {
  c.now(to_string(count) + " of " + to_string(element_bytes) + ", shift " + to_string(shift));
  const Bytes elements = random_bytes(c, static_cast<uint64_t>(count * element_bytes));
  Bytes planes(elements.size());
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t plane = 0; plane < element_bytes; ++plane) {
      planes[static_cast<size_t>(plane * count + i)] =
          elements[static_cast<size_t>(i * element_bytes + plane)];
    }
  }
  const BackendMemory from(c, elements, shift);
  const BackendMemory between(c, random_bytes(c, elements.size()), 0);
  const BackendMemory to(c, random_bytes(c, elements.size()), shift);
  c.run([&](auto&... queue) {
    split_byte_planes(queue..., count, element_bytes, from.data(), between.data());
    join_byte_planes(queue..., count, element_bytes, between.data(), to.data());
  });
  c.expect_equal(between.read(), planes, "the planes");
  c.expect_equal(to.read(), elements, "the elements, joined again");
  c.expect_equal(from.read(), elements, "the elements that were split");
}

void byte_planes_split_and_join(Checker& c) {
  for (const int element_bytes : {2, 4, 8}) {
    for (const int64_t count : {0, 1, 2, 3, 4, 5, 64, 1023, 1024, 4100, 9001, 16392}) {
      for (const uint64_t shift : {0, 1, 4, 16}) planes_of(c, count, element_bytes, shift);
    }
  }
}

void delta_of(Checker& c, uint64_t bytes, uint64_t shift_a, uint64_t shift_b, uint64_t shift_to) {
  c.now(to_string(bytes) + " bytes, shifts " + to_string(shift_a) + ", " + to_string(shift_b) +
        ", " + to_string(shift_to));
  const Bytes a = random_bytes(c, bytes);
  const Bytes b = random_bytes(c, bytes);
  Bytes expected(bytes);
  for (size_t i = 0; i < bytes; ++i) expected[i] = a[i] ^ b[i];
  const BackendMemory on_a(c, a, shift_a);
  const BackendMemory on_b(c, b, shift_b);
  const BackendMemory to(c, random_bytes(c, bytes), shift_to);
  const auto size = static_cast<int64_t>(bytes);
  c.run([&](auto&... queue) { delta(queue..., size, on_a.data(), on_b.data(), to.data()); });
  c.expect_equal(to.read(), expected, "a ^ b");
  c.expect_equal(on_a.read(), a, "a afterwards");
  // Into one of its arguments, and back.
  c.run([&](auto&... queue) { delta(queue..., size, on_a.data(), on_b.data(), on_a.data()); });
  c.expect_equal(on_a.read(), expected, "a ^= b");
  c.run([&](auto&... queue) { delta(queue..., size, on_b.data(), on_a.data(), on_a.data()); });
  c.expect_equal(on_a.read(), a, "a ^= b, twice");
  c.expect_equal(on_b.read(), b, "b afterwards");
}

void delta_of_any_size_and_alignment(Checker& c) {
  for (const uint64_t bytes : {0, 1, 15, 16, 17, 4096, 16384, 20003}) {
    for (const uint64_t shift : {0, 1, 8, 15}) {
      delta_of(c, bytes, shift, shift, shift);
      delta_of(c, bytes, shift, 0, 0);
      delta_of(c, bytes, 0, shift, 3);
    }
  }
}

void bytes_land_in_pinned_memory(Checker& c) {
  constexpr size_t kGuard = 64;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{15}, uint64_t{16}, uint64_t{4097},
                               uint64_t{65'535}, uint64_t{kLandBytesMax}}) {
    c.now(to_string(bytes) + " bytes");
    const Bytes content = random_bytes(c, bytes);
    const BackendMemory from(c, content, 0);
    auto pinned = PinnedArray<std::byte>::make(kGuard + bytes + kGuard);
    if (!pinned.ok()) return c.expect(false, pinned.error().message);
    const std::span<std::byte> all(pinned->data(), pinned->size());
    const Bytes before = random_bytes(c, all.size());
    std::ranges::copy(before, all.begin());
    land(c.queue(), all.data() + kGuard, from.data(), bytes);
    c.expect_done();
    Bytes expected = before;
    std::ranges::copy(content, expected.begin() + kGuard);
    c.expect_equal(Bytes(all.begin(), all.end()), expected, "host memory");
    c.expect_equal(from.read(), content, "device memory");
  }
}

}  // namespace

std::vector<Check> byte_checks() {
  std::vector<Check> all;
  all.push_back({"bytes_land_in_pinned_memory", Backend::kCuda, bytes_land_in_pinned_memory});
  add_on_both(all, "byte_planes_split_and_join", byte_planes_split_and_join);
  add_on_both(all, "delta_of_any_size_and_alignment", delta_of_any_size_and_alignment);
  return all;
}

}  // namespace ckpt::kernels

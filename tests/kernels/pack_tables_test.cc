// Tables that break pack's rules. The checks are the same on every backend; a process with a CUDA
// context cannot fork, as a death test does.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/pack.h"

namespace ckpt::kernels {
namespace {

TEST(PackTablesTest, InvalidTablesAbort) {
  const std::vector<std::byte> outside(100);
  std::vector<std::byte> buffer(100);
  std::vector<uint32_t> crc(10);
  const auto refused = [&](std::vector<PackPiece> pieces, std::vector<PackRange> ranges) {
    for (PackPiece& piece : pieces) piece.from = outside.data();
    EXPECT_DEATH(pack(pieces, ranges, buffer.data(), crc.data()), "in_order|covered");
  };
  refused({{nullptr, 10, 10}, {nullptr, 5, 5}}, {{0, 100}});
  refused({{nullptr, 10, 10}, {nullptr, 15, 5}}, {{0, 100}});
  refused({}, {{0, 10}, {9, 10}});
  refused({{nullptr, 10, 10}}, {});
  refused({{nullptr, 10, 10}}, {{0, 19}});
  refused({{nullptr, 10, 10}}, {{0, 12}, {13, 20}});
}

}  // namespace
}  // namespace ckpt::kernels

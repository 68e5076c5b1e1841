// Long runs that are drained directly from the tensors: the bytes in the slabs. Runs on a GPU, or
// on the emulated device.
#include "tests/client/cuda_direct_fixture.h"

namespace ckpt::test {
namespace {

// Unit, ranges and CRC of each fragment in its slab.
std::vector<std::array<uint64_t, 5>> fragments_of(const std::vector<fb::SealSlabT>& seals) {
  std::vector<std::array<uint64_t, 5>> fragments;
  for (const fb::SealSlabT& seal : seals) {
    for (const fb::SealedFragment& one : seal.fragments) {
      fragments.push_back(
          {one.unit(), one.offset(), one.length(), one.payload_offset(), one.crc32c()});
    }
  }
  return fragments;
}

TEST_F(CudaDirectTest, FragmentsAndCrcsEqualGatheredOnes) {
  connect(mixed_, kDirect);
  uint64_t arena_bytes = 0;
  std::memset(ckpt_arena(session_->handle(), &arena_bytes), 0xee, arena_bytes);
  const auto pieces = upload_mixed();
  Snapshot direct = begin();
  ASSERT_EQ(stage(direct.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  const auto found = seals_of(0);
  expect_payload(found);

  ASSERT_EQ(ckpt_cuda_close(std::exchange(cuda_, nullptr)), CKPT_OK);
  ckpt_cuda_options options = kDirect;
  options.struct_size = sizeof options;
  options.direct_bytes = UINT64_MAX;
  ASSERT_EQ(ckpt_cuda_open(session_->handle(), &options, &cuda_, nullptr, 0), CKPT_OK);
  ++plan_.attempt;
  Snapshot gathered = begin();
  ASSERT_EQ(stage(gathered.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  EXPECT_EQ(fragments_of(found), fragments_of(seals_of(1)));
}

TEST_F(CudaDirectTest, UnitMayBeOverwrittenAfterWait) {
  connect(mixed_, kDirect);
  const auto pieces = upload_mixed();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  for (uint32_t unit = 0; unit < data_.size(); ++unit) {
    ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, unit, trainer_->stream()), CKPT_OK);
    overwrite_unit(pieces, unit);
  }
  ASSERT_FALSE(trainer_->wait());
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_payload(seals_of(0));
}

TEST_F(CudaDirectTest, SnapshotsFollowOneAnotherThroughTheSameSlots) {
  connect(mixed_, kDirect);
  const auto pieces = upload_mixed();
  Snapshot first = begin();
  ASSERT_EQ(stage(first.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ++plan_.attempt;
  Snapshot second = begin();
  ASSERT_EQ(stage(second.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, CKPT_CUDA_ALL_UNITS, trainer_->stream()), CKPT_OK);
  overwrite();
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_payload(seals_of(0));
  expect_payload(seals_of(1));
}

}  // namespace
}  // namespace ckpt::test

// Growth of a run in records: the version that it needs, and how two units differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/commit.h"
#include "formats/journal.h"
#include "formats/unit.h"
#include "formats/wire/convert.h"

namespace ckpt {
namespace {

UnitSpec adapter() {
  UnitSpec unit;
  unit.name = "layers.0.adapter";
  unit.layer = 0;
  unit.part = UnitPart::kWeights;
  unit.bytes = 96;
  unit.tensors = {{"a", DType::kF32, {4, 2}, 0}, {"b", DType::kBF16, {8}, 64}};
  return unit;
}

TEST(Growth, CommitThatGrowsNeedsStoreVersionEleven) {
  fb::RecordT record;
  record.body.Set(fb::CommittedT());
  record.body.AsCommitted()->blobs.push_back(std::make_unique<fb::BlobT>());
  EXPECT_EQ(store_version_of(record), 10u);
  record.body.AsCommitted()->grown.push_back(
      std::make_unique<fb::UnitT>(wire::to_fb(adapter(), 4)));
  EXPECT_EQ(store_version_of(record), 11u);
}

TEST(Growth, RegistrationOfGrownUnitsNeedsStoreVersionEleven) {
  fb::RecordT record;
  record.body.Set(fb::UnitsRegisteredT());
  EXPECT_EQ(store_version_of(record), 1u);
  record.body.AsUnitsRegistered()->grown = true;
  EXPECT_EQ(store_version_of(record), 11u);
}

TEST(Growth, DifferenceOfUnitsHasBothValues) {
  const UnitSpec known = adapter();
  const auto with = [&known](const std::function<void(UnitSpec&)>& change) {
    UnitSpec given = known;
    change(given);
    return difference(known, given);
  };
  EXPECT_EQ(difference(known, known), "");
  EXPECT_EQ(with([](UnitSpec& u) {
              u.tensors[0].shape = {2, 4};
            }),
            "tensor a: F32 [2, 4] instead of F32 [4, 2]");
  EXPECT_EQ(with([](UnitSpec& u) { u.tensors[1].dtype = DType::kF16; }),
            "tensor b: F16 [8] instead of BF16 [8]");
  EXPECT_EQ(with([](UnitSpec& u) { u.bytes = 100; }), "100 bytes instead of 96");
  EXPECT_EQ(with([](UnitSpec& u) { u.layer = 1; }), "layer 1 instead of 0");
  EXPECT_EQ(with([](UnitSpec& u) { u.expert = 7; }), "expert 7 instead of none");
  EXPECT_EQ(with([](UnitSpec& u) { u.part = UnitPart::kNone; }), "part '' instead of 'weights'");
  EXPECT_EQ(with([](UnitSpec& u) { u.tensors[1].name = "c"; }), "tensor c instead of b");
  EXPECT_EQ(with([](UnitSpec& u) { u.tensors[1].offset = 80; }),
            "tensor b: at byte 80 instead of 64");
  EXPECT_EQ(with([](UnitSpec& u) { u.tensors.pop_back(); }), "1 tensors instead of 2");
}

TEST(Growth, GrownBytesIsAnUpperBound) {
  fb::CommittedT commit;
  const size_t none = encode_commit(commit).size();
  UnitSpec large = adapter();
  large.tensors.push_back({std::string(300, 'n'), DType::kF32, std::vector<uint64_t>(9, 1), 80});
  UnitSpec bare;
  bare.name = "x";
  bare.bytes = 1;
  uint64_t bound = 0;
  for (UnitId id = 0; id < 300; ++id) {
    const UnitSpec& unit = id % 3 == 0 ? large : id % 3 == 1 ? bare : adapter();
    commit.grown.push_back(std::make_unique<fb::UnitT>(wire::to_fb(unit, 5 + id)));
    bound += grown_bytes(unit);
  }
  EXPECT_LE(encode_commit(commit).size() - none, encoded_bytes({.grown_bytes = bound}));
}

}  // namespace
}  // namespace ckpt

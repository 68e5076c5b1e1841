#include "client/ctl/logical_tensors.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <random>

namespace ckptctl {
namespace {

using ckpt::DType;
using testing::ElementsAre;
using testing::ElementsAreArray;

struct NamedTensor {
  std::string name;
  std::vector<uint64_t> shape;
  DType dtype = DType::kU8;
  std::optional<uint32_t> layer = {};   // of its unit
  std::optional<uint32_t> expert = {};  // likewise
};

// Each tensor in a unit of its own, whose id is the tensor's index.
struct TensorsOfRun {
  explicit TensorsOfRun(std::vector<NamedTensor> all) {
    units.reserve(all.size());
    for (NamedTensor& tensor : all) {
      const auto id = static_cast<ckpt::UnitId>(units.size());
      units.push_back({.id = id, .name = fmt::format("u{}", id)});
      units.back().layer = tensor.layer;
      units.back().expert = tensor.expert;
      tensors.push_back(
          {&units.back(), {std::move(tensor.name), tensor.dtype, std::move(tensor.shape), 100}});
    }
  }
  std::vector<ViewUnit> units;
  std::vector<UnitTensor> tensors;
};

OriginalFiles files_with(const std::vector<NamedTensor>& tensors) {
  std::vector<ckpt::safetensors::Tensor> wanted;
  for (const auto& tensor : tensors) wanted.push_back({tensor.name, tensor.dtype, tensor.shape});
  const auto bytes = ckpt::safetensors::make_header(wanted, {});
  EXPECT_TRUE(bytes.ok());
  const auto header = ckpt::safetensors::parse_lone_header(*bytes);
  EXPECT_TRUE(header.ok());
  OriginalFiles originals;
  originals.files.push_back({{"model.safetensors", *header}, *bytes});
  return originals;
}

// The joined tensors, as "w [4, 6]".
std::vector<std::string> joined_names(std::vector<NamedTensor> tensors,
                                      const OriginalFiles& originals = {}) {
  const TensorsOfRun run(std::move(tensors));
  const auto found = join_tensors(run.tensors, originals);
  EXPECT_TRUE(found.ok());
  std::vector<std::string> names;
  if (!found.ok()) return names;
  for (const LogicalTensor& tensor : *found) {
    const auto bytes = ckpt::tensor_bytes({tensor.name, tensor.dtype, tensor.shape, 0});
    EXPECT_TRUE(bytes.ok() && *bytes == tensor.bytes) << tensor.name;
    names.push_back(fmt::format("{} [{}]", tensor.name, fmt::join(tensor.shape, ", ")));
  }
  return names;
}

TEST(JoinBlocks, BlocksOfADimensionAreOneTensor) {
  EXPECT_THAT(joined_names({{"a", {1}}, {"w[:,2:6]", {4, 4}}, {"b", {}}, {"w[:,0:2]", {4, 2}}}),
              ElementsAre("a [1]", "w [4, 6]", "b []"));
  EXPECT_THAT(joined_names({{"w[:,:,0:1]", {2, 3, 1}}, {"w[:,:,1:3]", {2, 3, 2}}}),
              ElementsAre("w [2, 3, 3]"));
  EXPECT_THAT(joined_names({{"w[7][:,0:1]", {2, 1}}, {"w[7][:,1:2]", {2, 1}}, {"w[8]", {2, 2}}}),
              ElementsAre("w[7] [2, 2]", "w[8] [2, 2]"));
  EXPECT_THAT(joined_names({{"[:,0:1]", {2, 1}}, {"[:,1:2]", {2, 1}}}), ElementsAre(" [2, 2]"));
}

TEST(JoinBlocks, PiecesAreOnePerBlock) {
  const TensorsOfRun run({{"w[:,1:3]", {1'000'000'000, 2}, DType::kBF16},
                          {"w[:,0:1]", {1'000'000'000, 1}, DType::kBF16}});
  const auto found = join_tensors(run.tensors, {});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 1u);
  const std::vector<WantedBytes>& pieces = (*found)[0].pieces;
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].unit, 1u);
  EXPECT_EQ(pieces[0].offset, 100u);
  EXPECT_EQ(pieces[0].length, 2'000'000'000u);
  EXPECT_EQ(pieces[0].run, 2u);
  EXPECT_EQ(pieces[0].step, 6u);
  EXPECT_EQ(pieces[1].destination, 2u);
  EXPECT_EQ(pieces[1].run, 4u);
}

TEST(JoinBlocks, SingleRowGivesContiguousPieces) {
  const TensorsOfRun run({{"w[:,0:1]", {1, 1, 8}}, {"w[:,1:3]", {1, 2, 8}}});
  const auto found = join_tensors(run.tensors, {});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ((*found)[0].pieces.size(), 2u);
  EXPECT_FALSE((*found)[0].pieces[1].spread());
  EXPECT_EQ((*found)[0].pieces[1].destination, 8u);
}

TEST(JoinBlocks, OddSetsStayApart) {
  constexpr uint64_t kHuge = INT64_MAX;
  constexpr uint64_t kHalf = 1ull << 60;
  const std::vector<std::vector<NamedTensor>> sets = {
      {{"w[:,0:2]", {4, 2}}},                                    // alone
      {{"w[:,1:2]", {4, 1}}, {"w[:,2:3]", {4, 1}}},              // not from 0
      {{"w[:,0:2]", {4, 2}}, {"w[:,3:4]", {4, 1}}},              // a gap
      {{"w[:,0:2]", {4, 2}}, {"w[:,1:4]", {4, 3}}},              // an overlap
      {{"w[:,0:2]", {4, 2}}, {"w[:,0:4]", {4, 4}}},              // the same begin
      {{"w[:,0:2]", {4, 2}}, {"w[:,2:4]", {4, 3}}},              // another extent
      {{"w[:,0:2]", {4, 2}}, {"w[:,2:4]", {5, 2}}},              // other rows
      {{"w[:,0:2]", {4, 2}}, {"w[:,2:4]", {4, 2, 1}}},           // another rank
      {{"w[:,0:2]", {2}}, {"w[:,2:4]", {2}}},                    // no such dimension
      {{"w[:,0:2]", {4, 2}}, {"w[:,2:4]", {4, 2}, DType::kI8}},  // another dtype
      {{"w[:,0:2]", {4, 2}}, {"w[:,2:4]", {4, 2}}, {"w", {1}}},  // the base exists
      {{"w[:,0:2]", {4, 2, 2}}, {"w[:,2:4]", {4, 2, 2}}, {"w[:,:,0:2]", {4, 2, 2}}},
      {{"w[:,0:1]", {2, 1}, DType::kF4}, {"w[:,1:2]", {2, 1}, DType::kF4}},  // a byte of both
      {{"w[:,0:1]", {0, 1}}, {"w[:,1:9223372036854775807]", {0, kHuge}}},    // another extent
      {{"w[:,0:1152921504606846976]", {1, kHalf}, DType::kF64},  // more bytes than 64 bits count
       {"w[:,1152921504606846976:2305843009213693952]", {1, kHalf}, DType::kF64}},
  };
  for (const std::vector<NamedTensor>& set : sets) {
    std::vector<std::string> alone;
    for (const NamedTensor& tensor : set) {
      alone.push_back(fmt::format("{} [{}]", tensor.name, fmt::join(tensor.shape, ", ")));
    }
    EXPECT_THAT(joined_names(set), ElementsAreArray(alone));
  }
}

TEST(JoinBlocks, EmptyBlocksAreJoined) {
  const TensorsOfRun run({{"w[:,0:1]", {0, 1}}, {"w[:,1:3]", {0, 2}}});
  const auto found = join_tensors(run.tensors, {});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ((*found)[0].shape, (std::vector<uint64_t>{0, 3}));
  EXPECT_TRUE((*found)[0].pieces.empty());
}

TEST(JoinBlocks, BlocksOfBlocksAreJoinedOnce) {
  EXPECT_THAT(joined_names({{"w[:,0:2][:,:,0:1]", {1, 2, 1}},
                            {"w[:,0:2][:,:,1:2]", {1, 2, 1}},
                            {"w[:,2:4]", {1, 2, 2}}}),
              ElementsAre("w[:,0:2] [1, 2, 2]", "w[:,2:4] [1, 2, 2]"));
}

TEST(JoinBlocks, NamesOfImportedFilesStay) {
  const std::vector<NamedTensor> both = {{"w[:,0:1]", {2, 1}}, {"w[:,1:2]", {2, 1}}};
  EXPECT_THAT(joined_names(both, files_with(both)),
              ElementsAre("w[:,0:1] [2, 1]", "w[:,1:2] [2, 1]"));
  EXPECT_THAT(joined_names(both, files_with({{"w", {2, 2}}})), ElementsAre("w [2, 2]"));
}

TEST(JoinSlices, SlicesInBlocksAreStacked) {
  const TensorsOfRun run({{"w[1][:,2:3]", {2, 1}}, {"w[0]", {2, 3}}, {"w[1][:,0:2]", {2, 2}}});
  const auto found = join_tensors(run.tensors, files_with({{"w", {2, 2, 3}}}));
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 1u);
  const LogicalTensor& stacked = (*found)[0];
  EXPECT_EQ(stacked.name, "w");
  EXPECT_EQ(stacked.bytes, 12u);
  ASSERT_EQ(stacked.pieces.size(), 3u);
  EXPECT_EQ(stacked.pieces[0].unit, 1u);
  EXPECT_EQ(stacked.pieces[1].unit, 2u);
  EXPECT_EQ(stacked.pieces[1].destination, 6u);
  EXPECT_EQ(stacked.pieces[1].run, 2u);
  EXPECT_EQ(stacked.pieces[2].destination, 8u);
  EXPECT_EQ(stacked.pieces[2].step, 3u);
}

TEST(JoinSlices, SlicesNeedTheirTensorAndEachOther) {
  const OriginalFiles originals = files_with({{"w", {2, 3}}});
  EXPECT_THAT(joined_names({{"w[0]", {3}}, {"w[1]", {3}}}), ElementsAre("w[0] [3]", "w[1] [3]"));
  EXPECT_THAT(joined_names({{"w[1]", {3}}, {"w[0]", {3}}}, originals), ElementsAre("w [2, 3]"));
  EXPECT_THAT(joined_names({{"w[0]", {3}}}, originals), ElementsAre("w[0] [3]"));
  EXPECT_THAT(joined_names({{"w[0]", {3}}, {"w[1]", {2}}}, originals),
              ElementsAre("w[0] [3]", "w[1] [2]"));
  EXPECT_THAT(
      joined_names({{"w[0]", {3}}, {"w[1]", {3}}, {"w[:,0:3]", {2, 3}}, {"w[:,3:4]", {2, 1}}},
                   originals),
      ElementsAre("w[0] [3]", "w[1] [3]", "w [2, 4]"))
      << "the blocks have the name";
}

NamedTensor slice_of(uint32_t expert, uint32_t layer = 3, std::vector<uint64_t> shape = {2, 3}) {
  return {fmt::format("w[{}]", expert), std::move(shape), DType::kU8, layer, expert};
}

TEST(JoinSlices, SlicesOfExpertsAreStacked) {
  EXPECT_THAT(joined_names({slice_of(1), {"b", {1}}, slice_of(0), slice_of(2)}),
              ElementsAre("w [3, 2, 3]", "b [1]"));
  EXPECT_THAT(joined_names({slice_of(0)}), ElementsAre("w [1, 2, 3]"));
  NamedTensor left = slice_of(1, 3, {2, 1});
  NamedTensor right = slice_of(1, 3, {2, 2});
  left.name = "w[1][:,0:1]";
  right.name = "w[1][:,1:3]";
  EXPECT_THAT(joined_names({right, slice_of(0), left}), ElementsAre("w [2, 2, 3]"));
  right.expert = 0;
  EXPECT_THAT(joined_names({right, slice_of(0), left}),
              ElementsAre("w[1][:,1:3] [2, 2]", "w [1, 2, 3]", "w[1][:,0:1] [2, 1]"))
      << "blocks of two experts stay apart";
}

TEST(JoinSlices, OddSlicesOfExpertsStayApart) {
  NamedTensor other = slice_of(1);
  other.expert = 2;
  NamedTensor typed = slice_of(1);
  typed.dtype = DType::kI8;
  const std::vector<std::vector<NamedTensor>> sets = {
      {slice_of(1), slice_of(2)},                 // not from 0
      {slice_of(0), slice_of(2)},                 // a gap
      {slice_of(0), other},                       // another expert's unit
      {slice_of(0), {"w[1]", {2, 3}}},            // no expert's unit
      {slice_of(0), slice_of(1, 4)},              // another layer
      {slice_of(0), slice_of(1, 3, {3, 2})},      // another shape
      {slice_of(0), typed},                       // another dtype
      {slice_of(0), slice_of(1), {"w", {1}}},     // the name is in use
      {slice_of(0), slice_of(1), {"w[7]", {1}}},  // a slice too many
  };
  for (const std::vector<NamedTensor>& set : sets) {
    EXPECT_EQ(joined_names(set).size(), set.size()) << set.back().name;
  }
  EXPECT_EQ(joined_names({slice_of(0), slice_of(1)}, files_with({{"w[0]", {2, 3}}})).size(), 2u);
}

TEST(JoinSlices, StackedTensorTakesNoNameInUse) {
  EXPECT_THAT(
      joined_names(
          {{"w[:,0:1][0]", {1}}, {"w[:,0:1][1]", {1}}, {"w[:,0:1]", {2, 1}}, {"w[:,1:2]", {2, 1}}},
          files_with({{"w[:,0:1]", {2, 1}}, {"x", {1}}})),
      ElementsAre("w[:,0:1][0] [1]", "w[:,0:1][1] [1]", "w[:,0:1] [2, 1]", "w[:,1:2] [2, 1]"));
}

// A file's header has metadata under that name.
TEST(JoinTensors, ReservedNameIsNotMade) {
  EXPECT_EQ(joined_names({{"__metadata__[:,0:1]", {2, 1}}, {"__metadata__[:,1:2]", {2, 1}}}).size(),
            2u);
  EXPECT_THAT(joined_names({{"__metadata__[0]", {2}, DType::kU8, 0, 0}}),
              ElementsAre("__metadata__[0] [2]"));
}

TEST(JoinTensors, NameOfJoinedBlockIsNotGivenAway) {
  EXPECT_THAT(joined_names({{"w[:,0:1]", {2, 1}},
                            {"w[:,1:2]", {2, 1}},
                            {"w[:,0:1][0]", {1}, DType::kU8, 0, 0},
                            {"w[:,0:1][1]", {1}, DType::kU8, 0, 1}}),
              ElementsAre("w [2, 2]", "w[:,0:1][0] [1]", "w[:,0:1][1] [1]"));
}

TEST(JoinTensors, NameInTwoUnitsIsRefused) {
  const TensorsOfRun run({{"w[:,0:1]", {2, 1}}, {"w[:,0:1]", {2, 1}}});
  const auto found = join_tensors(run.tensors, {});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message,
            "unit u1 tensor w[:,0:1]: another unit has a tensor of that name");
}

// Quadratic work would take hours.
TEST(JoinTensors, ManyTensorsTakeLinearTime) {
  constexpr uint64_t kMany = 100'000;
  std::vector<NamedTensor> blocks;
  std::vector<NamedTensor> slices;
  for (uint64_t i = 0; i < kMany; ++i) {
    blocks.push_back({fmt::format("w[:,{}:{}]", i, i + 1), {2, 1}});
    slices.push_back({fmt::format("w[{}]", i), {1}});
  }
  std::ranges::shuffle(blocks, std::mt19937_64(1));
  EXPECT_THAT(joined_names(blocks), ElementsAre("w [2, 100000]"));
  blocks.pop_back();
  EXPECT_EQ(joined_names(blocks).size(), kMany - 1);
  const OriginalFiles originals = files_with({{"w", {kMany, 1}}});
  EXPECT_THAT(joined_names(slices, originals), ElementsAre("w [100000, 1]"));
  slices.back().name = "v";
  EXPECT_EQ(joined_names(slices, originals).size(), kMany);
}

}  // namespace
}  // namespace ckptctl

#include "client/ctl/export_layout.h"

#include <gtest/gtest.h>

namespace ckptctl {
namespace {

using ckpt::DType;

Schema schema() {
  Schema schema;
  schema.units = {
      {0, "embed", 64, {{"model.embed_tokens.weight", DType::kF32, {4, 4}, 0}}},
      {1,
       "layers.0",
       96,
       {{"model.layers.0.w", DType::kBF16, {16}, 0},
        {"optimizer.model.layers.0.w.m", DType::kF32, {16}, 32}}},
      {2, "trainer", 8, {{"step", DType::kU64, {}, 0}}},
  };
  return schema;
}

TEST(ExportLayout, TakesOnlyModelTensors) {
  const auto layout = make_export_layout(schema(), {});
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_EQ(layout->tensors, 2u);
  EXPECT_EQ(layout->data_bytes, 96u);
  ASSERT_EQ(layout->files.size(), 1u);
  const ExportFile& file = layout->files[0];
  EXPECT_EQ(file.name, "model.safetensors");
  EXPECT_TRUE(layout->index.is_null());
  // The file is one that the reader accepts, and each piece lands where its header says.
  const auto header = ckpt::safetensors::parse_header(file.header, file.bytes);
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_EQ(header->data_offset % 4096, 0u);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  ASSERT_EQ(header->tensors.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(file.pieces[i].destination, header->data_offset + header->tensors[i].begin);
    EXPECT_EQ(file.pieces[i].length, header->tensors[i].end - header->tensors[i].begin);
  }
  EXPECT_EQ(file.pieces[1].unit, 1u);
}

TEST(ExportLayout, LeavesOutOptimizersOfThePythonPackage) {
  Schema package = schema();
  package.units[1].tensors[1].name = "optim.state.model.layers.0.w.exp_avg";
  const auto layout = make_export_layout(package, {});
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_EQ(layout->tensors, 2u);
  const auto all = make_export_layout(package, {.include_optimizer = true});
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->tensors, 3u);
}

TEST(ExportLayout, OptimizerOnRequest) {
  const auto layout = make_export_layout(schema(), {.include_optimizer = true});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->tensors, 3u);
  EXPECT_EQ(layout->files[0].pieces[2].offset, 32u);
}

TEST(ExportLayout, ShardNamesFollowTransformers) {
  const auto layout = make_export_layout(schema(), {.shard_bytes = 64});
  ASSERT_TRUE(layout.ok());
  ASSERT_EQ(layout->files.size(), 2u);
  EXPECT_EQ(layout->files[0].name, "model-00001-of-00002.safetensors");
  EXPECT_EQ(layout->files[1].name, "model-00002-of-00002.safetensors");
  EXPECT_EQ(layout->index["metadata"]["total_size"], 96);
  EXPECT_EQ(layout->index["weight_map"]["model.layers.0.w"], "model-00002-of-00002.safetensors");
}

TEST(ExportLayout, OversizedTensorGetsItsOwnShard) {
  const auto layout = make_export_layout(schema(), {.shard_bytes = 1});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->files.size(), 2u);
}

TEST(ExportLayout, DuplicateTensorNameIsRefused) {
  Schema twice = schema();
  twice.units[1].tensors[0].name = twice.units[0].tensors[0].name;
  const auto layout = make_export_layout(twice, {});
  ASSERT_FALSE(layout.ok());
  EXPECT_NE(layout.error().message.find("unit layers.0"), std::string::npos);
}

TEST(ExportLayout, ExportWithoutTensorsIsRefused) {
  Schema bare;
  bare.units = {{0, "blob", 100, {}}};
  const auto layout = make_export_layout(bare, {});
  ASSERT_FALSE(layout.ok());
  EXPECT_EQ(layout.error().message,
            "its units have no tensors to export; --resumable exports all their bytes");
}

}  // namespace
}  // namespace ckptctl

// Runs with tensors in blocks and slices: layouts of exports and of their re-imports, byte by byte,
// without a daemon.
#include <gmock/gmock.h>

#include <map>

#include "client/ctl/export_layout.h"
#include "client/ctl/import_layout.h"
#include "tests/ctl/block_run.h"

namespace ckptctl {
namespace {

using ckpt::DType;
using testing::HasSubstr;

// The files of an export, and the manifest beside them.
struct Exported {
  std::vector<TensorFile> files;
  std::vector<Bytes> bytes;
  Manifest manifest;
};

Exported exported(const BlockRun& run, const ExportOptions& options,
                  const OriginalFiles& originals = {}) {
  Exported made;
  const auto layout = make_export_layout(run.schema(), options, originals);
  EXPECT_TRUE(layout.ok());
  if (!layout.ok()) return made;
  for (const ExportFile& file : layout->files) {
    Bytes bytes = file.header;
    bytes.resize(file.bytes);
    std::vector<int> written(file.bytes);
    for (const WantedBytes& piece : file.pieces) {
      for (uint64_t i = 0; i < piece.length; ++i) {
        const uint64_t place = place_of(piece, i);
        bytes.at(place) = run.bytes()[piece.unit].at(piece.offset + i);
        ++written.at(place);
      }
    }
    EXPECT_TRUE(std::all_of(written.begin() + static_cast<ptrdiff_t>(file.header.size()),
                            written.end(), [](int times) { return times == 1; }))
        << "a hole, or a byte twice";
    const auto header = ckpt::safetensors::parse_header(bytes, file.bytes);
    EXPECT_TRUE(header.ok());
    made.files.push_back({file.name, *header});
    made.bytes.push_back(std::move(bytes));
  }
  const auto manifest = parse_manifest(
      manifest_json({.step = 1, .resumable = options.resumable, .units = layout->exported}).dump());
  EXPECT_TRUE(manifest.ok());
  made.manifest = *manifest;
  return made;
}

using WholeTensors = std::map<std::string, WholeTensor>;

// True if the files have exactly these tensors, beside "ckptd.rest" ones.
void expect_tensors(const Exported& made, const WholeTensors& expected) {
  size_t found = 0;
  for (size_t i = 0; i < made.files.size(); ++i) {
    const ckpt::safetensors::Header& header = made.files[i].header;
    for (const auto& tensor : header.tensors) {
      if (tensor.name.starts_with("ckptd.rest.")) continue;
      const auto whole = expected.find(tensor.name);
      ASSERT_NE(whole, expected.end()) << tensor.name;
      ++found;
      EXPECT_EQ(tensor.dtype, whole->second.dtype);
      EXPECT_EQ(tensor.shape, whole->second.shape);
      const auto begin = made.bytes[i].begin() + static_cast<ptrdiff_t>(header.data_offset);
      const Bytes bytes(begin + static_cast<ptrdiff_t>(tensor.begin),
                        begin + static_cast<ptrdiff_t>(tensor.end));
      EXPECT_TRUE(bytes == whole->second.bytes) << tensor.name;
    }
  }
  EXPECT_EQ(found, expected.size());
}

// Bytes of the imported units; a byte that no piece gives makes a unit shorter.
std::vector<Bytes> imported(const Exported& made, const ImportLayout& layout) {
  std::vector<Bytes> units(layout.units.size());
  for (const WantedBytes& piece : layout.pieces) {
    EXPECT_EQ(piece.offset, units[piece.unit].size()) << "not in order";
    for (uint64_t i = 0; i < piece.length; ++i) {
      units[piece.unit].push_back(made.bytes[piece.tag].at(place_of(piece, i)));
    }
  }
  return units;
}

void expect_run_again(const BlockRun& run, const Exported& made) {
  const auto layout = make_import_layout(made.files, made.manifest);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  const std::vector<Bytes> units = imported(made, *layout);
  size_t next = 0;
  for (size_t i = 0; i < run.bytes().size(); ++i) {
    if (run.bytes()[i].empty()) continue;  // no unit of a run is empty
    ASSERT_LT(next, units.size());
    EXPECT_EQ(layout->units[next], *to_spec(run.schema().units[i]));
    EXPECT_TRUE(units[next] == run.bytes()[i]) << run.schema().units[i].name;
    ++next;
  }
  EXPECT_EQ(next, units.size());
}

Shape random_shape(BlockRun& run, size_t rank_min) {
  Shape shape(run.number(rank_min, 4));
  for (uint64_t& extent : shape) extent = run.number(2, 5);
  shape[0] = run.number(1, 5);
  return shape;
}

// Header of a file with these tensors, as import keeps it.
OriginalFiles originals_with(const WholeTensors& tensors) {
  std::vector<ckpt::safetensors::Tensor> wanted;
  for (const auto& [name, tensor] : tensors) wanted.push_back({name, tensor.dtype, tensor.shape});
  const auto header = ckpt::safetensors::make_header(wanted, {});
  EXPECT_TRUE(header.ok());
  OriginalFiles originals;
  originals.files.push_back(
      {{"model.safetensors", *ckpt::safetensors::parse_lone_header(*header)}, *header});
  return originals;
}

TEST(BlocksRoundTrip, ExportsAreWholeAndImportsTheSame) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  for (uint64_t round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    BlockRun run(seed * 1000 + round, 1 + round % 4);
    WholeTensors whole;
    for (uint64_t i = run.number(1, 5); i > 0; --i) {
      const std::string name = fmt::format("w{}", i);
      whole[name] = run.make(random_shape(run, 2));
      if (run.number(0, 3) == 0) {
        run.add_whole(name, whole[name]);
      } else {
        run.add_blocks(name, whole[name]);
      }
    }
    const uint64_t shard_bytes = round % 3 == 0 ? 50 : 0;
    const Exported made = exported(run, {.resumable = true, .shard_bytes = shard_bytes});
    expect_tensors(made, whole);
    expect_run_again(run, made);
    expect_tensors(exported(run, {}), whole);
  }
}

TEST(BlocksRoundTrip, ExpertsAreStackedAndImportedAgain) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  for (uint64_t round = 0; round < 100; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    const uint64_t experts = 1 + round % 4;
    BlockRun run(seed * 1000 + round, experts);
    WholeTensors whole;
    for (const char* name : {"a", "empty", "b"}) {
      Shape shape = random_shape(run, 2);
      shape[0] = experts;
      if (name == std::string_view("empty")) shape.back() = 0;
      whole[name] = run.make(std::move(shape));
      run.add_experts(name, whole[name]);
    }
    const Exported made = exported(run, {.resumable = true});
    expect_tensors(made, whole);
    expect_run_again(run, made);
    expect_tensors(exported(run, {}), whole);
  }
}

TEST(BlocksRoundTrip, SlicesInBlocksAreStackedAgain) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  for (uint64_t round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    BlockRun run(seed * 1000 + round, 1 + round % 4);
    WholeTensors whole;
    for (const char* name : {"a", "b"}) {
      whole[name] = run.make(random_shape(run, 3));
      run.add_slices(name, whole[name]);
    }
    const OriginalFiles originals = originals_with(whole);
    expect_tensors(exported(run, {}, originals), whole);
    const Exported made = exported(run, {.resumable = true}, originals);
    expect_tensors(made, whole);
    expect_run_again(run, made);
    // Without the imported files, the slices are tensors of their own, in no blocks.
    WholeTensors slices;
    for (const auto& [name, tensor] : whole) {
      for (uint64_t i = 0; i < tensor.shape[0]; ++i) {
        WholeTensor& slice = slices[slice_name(name, i)];
        slice = part_of_tensor(tensor, 0, i, i + 1);
        slice.shape.erase(slice.shape.begin());
      }
    }
    const Exported apart = exported(run, {.resumable = true});
    expect_tensors(apart, slices);
    expect_run_again(run, apart);
  }
}

TEST(BlocksRoundTrip, PlainExportGivesImportedFilesAgain) {
  BlockRun run(3, 2);
  const WholeTensors whole = {{"w", run.make({3, 4})}, {"x", run.make({2, 3, 2})}};
  for (const auto& [name, tensor] : whole) run.add_blocks(name, tensor);
  const auto layout = make_export_layout(run.schema(), {}, originals_with(whole));
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(layout->as_imported) << layout->differs;
  EXPECT_EQ(layout->tensors, 2u);
  expect_tensors(exported(run, {}, originals_with(whole)), whole);
}

// A file that another program gave such names returns as it was.
TEST(BlocksRoundTrip, BlockNamesOfOtherProgramsStay) {
  BlockRun run(4, 1);
  const WholeTensors parts = {{"w[:,0:2]", run.make({3, 2})}, {"w[:,2:3]", run.make({3, 1})}};
  for (const auto& [name, tensor] : parts) run.add_whole(name, tensor);
  const auto layout = make_export_layout(run.schema(), {}, originals_with(parts));
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(layout->as_imported) << layout->differs;
}

// ---- a ckptd.json that contradicts the files ----------------------------------------------------

struct Listed {
  std::string name;
  Shape shape;
  DType dtype = DType::kU8;
};

// The refusal of an import of these U8 tensors, whose ckptd.json lists a unit for each of `units`;
// empty: none.
std::string refusal_of(const std::vector<Listed>& tensors, const std::vector<Listed>& units) {
  TensorFile file{"model.safetensors", {}};
  for (const Listed& tensor : tensors) {
    const auto bytes = ckpt::tensor_bytes({"", tensor.dtype, tensor.shape, 0});
    const uint64_t begin = file.header.data_bytes;
    file.header.data_bytes += bytes.value();
    file.header.tensors.push_back(
        {tensor.name, tensor.dtype, tensor.shape, begin, file.header.data_bytes});
  }
  Manifest manifest;
  for (const Listed& listed : units) {
    const auto id = static_cast<ckpt::UnitId>(manifest.units.size());
    const auto bytes = ckpt::tensor_bytes({"", listed.dtype, listed.shape, 0});
    manifest.units.push_back({.id = id,
                              .name = fmt::format("u{}", id),
                              .bytes = std::max<uint64_t>(bytes.value(), 1),
                              .tensors = {{listed.name, listed.dtype, listed.shape, 0}}});
  }
  const auto layout = make_import_layout({file}, manifest);
  return layout.ok() ? "" : layout.error().message;
}

TEST(ListedBlocks, EveryByteIsUsedOnce) {
  const std::vector<Listed> w = {{"w", {2, 4}}};
  EXPECT_EQ(refusal_of(w, {{"w[:,0:1]", {2, 1}}, {"w[:,1:4]", {2, 3}}}), "");
  EXPECT_EQ(refusal_of(w, {{"w[:,1:4]", {2, 3}}, {"w[:,0:1]", {2, 1}}}), "");
  EXPECT_EQ(refusal_of(w, {{"w[:,0:4]", {2, 4}}}), "") << "one block is enough";
  const std::string partly =
      "model.safetensors: tensor w: ckptd.json lists blocks of w with only 3 of the 4 indexes of "
      "dimension 1";
  EXPECT_EQ(refusal_of(w, {{"w[:,0:1]", {2, 1}}, {"w[:,2:4]", {2, 2}}}), partly);
  EXPECT_EQ(refusal_of(w, {{"w[:,1:4]", {2, 3}}}), partly);
  const auto twice = [&](const Listed& first, const Listed& second) {
    EXPECT_EQ(refusal_of(w, {first, second}),
              fmt::format("unit u1 tensor {}: two units have it", second.name));
  };
  twice({"w[:,0:2]", {2, 2}}, {"w[:,1:4]", {2, 3}});
  twice({"w[:,1:4]", {2, 3}}, {"w[:,0:2]", {2, 2}});
  twice({"w[:,0:2]", {2, 2}}, {"w[:,0:2]", {2, 2}});
  twice({"w[:,0:4]", {2, 4}}, {"w[:,3:4]", {2, 1}});
  twice({"w[:,1:2]", {2, 1}}, {"w[:,0:4]", {2, 4}});
  twice({"w[:,0:2]", {2, 2}}, {"w", {2, 4}});
  twice({"w", {2, 4}}, {"w[:,0:2]", {2, 2}});
  twice({"w[:,0:2]", {2, 2}}, {"w[0]", {4}});
  twice({"w[0]", {4}}, {"w[:,0:2]", {2, 2}});
}

TEST(ListedBlocks, BlocksOfSlicesAreUsedOnce) {
  const std::vector<Listed> w = {{"w", {2, 2, 4}}};
  const Listed low = {"w[1][:,0:1]", {2, 1}};
  const Listed high = {"w[1][:,1:4]", {2, 3}};
  const Listed slice = {"w[0]", {2, 4}};
  EXPECT_EQ(refusal_of(w, {low, high, slice}), "");
  EXPECT_EQ(refusal_of(w, {slice, high, low}), "");
  EXPECT_THAT(refusal_of(w, {low, high}), HasSubstr("ckptd.json lists only 1 of its 2 slices"));
  EXPECT_THAT(refusal_of(w, {slice, high}),
              HasSubstr("lists blocks of w[1] with only 3 of the 4 indexes of dimension 1"));
  for (const Listed& other :
       std::vector<Listed>{low, {"w[1]", {2, 4}}, {"w", {2, 2, 4}}, {"w[:,0:1]", {2, 1, 4}}}) {
    EXPECT_THAT(refusal_of(w, {low, other}), HasSubstr("two units have it")) << other.name;
    EXPECT_THAT(refusal_of(w, {other, low}), HasSubstr("two units have it")) << other.name;
  }
  EXPECT_THAT(
      refusal_of({{"w", {1, 2, 2, 2}}}, {{"w[0][:,0:1]", {2, 1, 2}}, {"w[0][:,:,1:2]", {2, 2, 1}}}),
      HasSubstr("two units have it"))
      << "of two dimensions";
}

TEST(ListedBlocks, UnknownOrDifferentOnesAreRefused) {
  const std::vector<Listed> w = {{"w", {2, 4}}};
  for (const Listed& unknown : std::vector<Listed>{{"v[:,0:4]", {2, 4}},
                                                   {"w[:,0:5]", {2, 5}},
                                                   {"w[:,:,0:1]", {2, 4}},
                                                   {"w[2][:,0:1]", {2}},
                                                   {"w[0][:,0:1]", {4}},
                                                   {"w[:,4:9223372036854775807]", {1}},
                                                   {"w[0:4]", {2, 4}}}) {
    EXPECT_THAT(refusal_of(w, {unknown}), HasSubstr("lists it, but no file has it"))
        << unknown.name;
  }
  EXPECT_THAT(refusal_of(w, {{"w[:,0:4]", {4, 2}}}), HasSubstr("ckptd.json says"));
  EXPECT_THAT(refusal_of(w, {{"w[:,0:4]", {2, 4}, DType::kI8}}), HasSubstr("ckptd.json says"));
  EXPECT_THAT(refusal_of(w, {{"w[:,0:2]", {2, 3}}}), HasSubstr("ckptd.json says"));
  EXPECT_THAT(refusal_of({{"w", {2, 2}, DType::kF4}}, {{"w[:,0:1]", {2, 1}, DType::kF4}}),
              HasSubstr("lists it, but no file has it"))
      << "half a byte of each row";
}

}  // namespace
}  // namespace ckptctl

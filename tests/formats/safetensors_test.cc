#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/samples.h"

namespace ckpt::safetensors {
namespace {

using ::testing::HasSubstr;

Result<Header> parse(std::string_view json, uint64_t data_bytes) {
  const std::vector<std::byte> file = test::safetensors_file(json, data_bytes);
  return parse_header(file, file.size());
}
std::string error(std::string_view json, uint64_t data_bytes) {
  const Result<Header> header = parse(json, data_bytes);
  return header.ok() ? "none" : header.error().message;
}

TEST(Safetensors, ReadsTheExampleOfTheFormat) {
  const Header header = parse(R"({"__metadata__":{"format":"pt"},)"
                              R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]},)"
                              R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                              R"("s":{"dtype":"U8","shape":[],"data_offsets":[20,21]},)"
                              R"("e":{"data_offsets":[21,21],"shape":[0,7],"dtype":"I64"}}   )",
                              21)
                            .value();
  ASSERT_EQ(header.tensors.size(), 4u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].dtype, DType::kBF16);
  EXPECT_EQ(header.tensors[1].begin, 16u);
  EXPECT_EQ(header.tensors[2].shape, std::vector<uint64_t>());
  EXPECT_EQ(header.tensors[3].shape, (std::vector<uint64_t>{0, 7}));
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.data_bytes, 21u);
}

TEST(Safetensors, AcceptsFileWithoutTensors) { EXPECT_EQ(error("{}", 0), "none"); }

TEST(Safetensors, MetadataMayBeNull) {
  EXPECT_TRUE(parse(R"({"__metadata__":null})", 0)->metadata.empty());
}

TEST(Safetensors, LoneHeaderGivesDataBytes) {
  const std::string json = R"({"w":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})";
  const std::vector<std::byte> file = test::safetensors_file(json, 3);
  const ByteView header = ByteView(file).first(file.size() - 3);
  EXPECT_EQ(parse_lone_header(header)->data_bytes, 3u);
  EXPECT_FALSE(parse_lone_header(file).ok());
  EXPECT_FALSE(parse_lone_header(header.first(header.size() - 1)).ok());
}

TEST(Safetensors, TruncatedFileErrorNamesTensor) {
  EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                    R"("b":{"dtype":"U8","shape":[9],"data_offsets":[2,11]}})",
                    5),
              HasSubstr("tensor b: the tensors take 11 bytes, the file has 5"));
}

struct BadHeader {
  std::string name;
  std::string json;
  std::string says;
  uint64_t data_bytes = 4;
};
class SafetensorsRefuses : public testing::TestWithParam<BadHeader> {};
TEST_P(SafetensorsRefuses, AndSaysWhy) {
  EXPECT_THAT(error(GetParam().json, GetParam().data_bytes), HasSubstr(GetParam().says));
}

// A header with one tensor "w", whose object has this text inside.
std::string w(std::string_view inside) { return fmt::format("{{\"w\":{{{}}}}}", inside); }

INSTANTIATE_TEST_SUITE_P(
    Each, SafetensorsRefuses,
    testing::Values(
        BadHeader{"Empty", "", "does not start with '{'"},
        BadHeader{"SpaceFirst", " {}", "does not start with '{'"},
        BadHeader{"Array", "[]", "does not start with '{'"},
        BadHeader{"Unclosed", "{", "no JSON at byte"},
        BadHeader{"Trailing", "{}x", "no JSON at byte"},
        BadHeader{"ZeroByte", std::string("{}\0\0", 4), "zero byte"},
        BadHeader{"NotUtf8", "{\"\xff\":1}", "no JSON at byte"},
        BadHeader{"Comment", "{/**/}", "no JSON at byte"},
        BadHeader{"Number", R"({"w":1})", "tensor w: a number where none may be"},
        BadHeader{"Null", R"({"w":null})", "tensor w: a null"},
        BadHeader{"Nested", R"({"w":{"dtype":{}}})", "tensor w: an object where none may be"},
        BadHeader{"Deep", "{\"w\":" + std::string(100'000, '['), "an array where none may be"},
        BadHeader{"UnknownKey", w(R"("dtype":"F32","shapes":[1])"), "tensor w: unknown key shapes"},
        BadHeader{"KeyTwice", w(R"("dtype":"F32","dtype":"F32")"), "w: key dtype appears twice"},
        BadHeader{"TensorTwice",
                  R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                  R"("w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                  "key w appears twice"},
        BadHeader{"MetadataTwice", R"({"__metadata__":{"a":"1","a":"2"}})", "key a appears twice"},
        BadHeader{"MetadataNumber", R"({"__metadata__":{"a":1}})", "a number where none may be"},
        BadHeader{"MetadataNoObject", R"({"__metadata__":"x"})", "a string where none may be"},
        BadHeader{"NoShape", w(R"("dtype":"F32","data_offsets":[0,4])"), "is missing"},
        BadHeader{"DType", w(R"("dtype":"F33")"), "tensor w: unknown dtype F33"},
        BadHeader{"Negative", w(R"("shape":[-1])"), "tensor w: a negative number"},
        BadHeader{"Fraction", w(R"("shape":[1.5])"), "tensor w: a fraction"},
        BadHeader{"TooBig", w(R"("shape":[18446744073709551616])"), "tensor w: a fraction, or a"},
        BadHeader{"OneOffset", w(R"("data_offsets":[0])"), "less than two"},
        BadHeader{"ThreeOffsets", w(R"("data_offsets":[0,1,2])"), "more than two"},
        BadHeader{"Reversed", w(R"("dtype":"U8","shape":[4],"data_offsets":[4,0])"), "tensor w"},
        BadHeader{"Hole", w(R"("dtype":"U8","shape":[3],"data_offsets":[1,4])"), "do not follow"},
        BadHeader{"Size", w(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"),
                  "tensor w: its shape takes 8 bytes, its range has 4"},
        BadHeader{"HalfAByte", w(R"("dtype":"F4","shape":[3],"data_offsets":[0,4])"),
                  "tensor w: 3 elements of 4 bits do not fill whole bytes"},
        BadHeader{"Overflow",
                  w(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])"),
                  "tensor w: its shape has more bytes"},
        BadHeader{"Rest", w(R"("dtype":"U8","shape":[3],"data_offsets":[0,3])"),
                  "the tensors take 3 bytes, the file has 4"},
        BadHeader{"Beyond", w(R"("dtype":"U8","shape":[5],"data_offsets":[0,5])"), "take 5 bytes"},
        BadHeader{"Overlap",
                  R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                  R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                  "tensor b: bytes [2, 4) do not follow"}),
    [](const auto& bad) { return bad.param.name; });

TEST(Safetensors, LengthsAreCheckedBeforeTheyAreUsed) {
  std::vector<std::byte> file = test::safetensors_file("{}", 0);
  EXPECT_FALSE(parse_header(ByteView(file).first(7), 7).ok());
  EXPECT_FALSE(parse_header(file, file.size() - 1).ok());
  EXPECT_FALSE(parse_header(file, file.size() + 1).ok());
  EXPECT_EQ(parse_header(ByteView(file).first(9), file.size()).error().code,
            ErrorCode::kInvalidArgument);
  for (const uint64_t length : {kHeaderBytesMax + 1, ~uint64_t{0}, ~uint64_t{7}}) {
    base::store(file.data(), length);
    EXPECT_THAT(parse_header(file, ~0ull).error().message, HasSubstr("allowed are 100000000"));
  }
}

TEST(Safetensors, HeaderRoundTripsAndIsBlockAligned) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 300; ++i) {
    tensors.push_back({.name = fmt::format("model.\"layers\".{}\n\u00e9", i),
                       .dtype = static_cast<DType>(i % kDTypeCount),
                       .shape = std::vector<uint64_t>(i % 4, 1 + i % 7)});
    // Elements that share bytes fill them.
    if (dtype_bits(tensors.back().dtype) < 8) tensors.back().shape.push_back(4);
  }
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"step", "1200"}};
  const std::vector<std::byte> bytes = make_header(tensors, metadata).value();
  EXPECT_EQ(bytes.size() % kBlockBytes, 0u);
  uint64_t data_bytes = 0;
  for (const Tensor& tensor : tensors) {
    data_bytes += tensor_bytes({.dtype = tensor.dtype, .shape = tensor.shape}).value();
  }
  const Header header = parse_header(bytes, bytes.size() + data_bytes).value();
  EXPECT_EQ(header.metadata, metadata);
  EXPECT_EQ(header.data_offset, bytes.size());
  ASSERT_EQ(header.tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(header.tensors[i].name, tensors[i].name);
    EXPECT_EQ(header.tensors[i].dtype, tensors[i].dtype);
    EXPECT_EQ(header.tensors[i].shape, tensors[i].shape);
  }
}

TEST(Safetensors, WriterRefusesUnreadableHeaders) {
  const auto refused = [](std::vector<Tensor> tensors) { return !make_header(tensors, {}).ok(); };
  EXPECT_TRUE(refused({{.name = "__metadata__"}}));
  EXPECT_TRUE(refused({{.name = "a"}, {.name = "a"}}));
  EXPECT_TRUE(refused({{.name = "\xff"}}));
  EXPECT_TRUE(refused({{.name = "a", .shape = {~0ull, 2}}}));
  EXPECT_TRUE(refused({{.name = "a", .dtype = DType::kU8, .shape = {~0ull}},
                       {.name = "b", .dtype = DType::kU8, .shape = {1}}}));
  EXPECT_FALSE(make_header({}, {{"key", "\xc3"}}).ok());
  EXPECT_EQ(make_header({{.name = std::string(kHeaderBytesMax, 'x')}}, {}).error().code,
            ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace ckpt::safetensors

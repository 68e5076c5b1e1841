#include "formats/unit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "formats/wire/convert.h"
#include "tests/formats/samples.h"

namespace ckpt {
namespace {

using ::testing::HasSubstr;

TEST(DType, NamesAndSizesFollowSafetensors) {
  for (uint8_t i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_bytes(DType::kF64), 8u);
  EXPECT_EQ(dtype_bytes(DType::kF32), 4u);
  EXPECT_EQ(dtype_bytes(DType::kBF16), 2u);
  EXPECT_EQ(dtype_bytes(DType::kF8E4M3), 1u);
  EXPECT_EQ(dtype_name(DType::kF8E5M2), "F8_E5M2");
  const std::vector<std::pair<std::string, uint64_t>> bits = {
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"C64", 64},
      {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6}};
  for (const auto& [name, count] : bits) {
    ASSERT_TRUE(dtype_from_name(name)) << name;
    EXPECT_EQ(dtype_bits(*dtype_from_name(name)), count) << name;
  }
  EXPECT_EQ(dtype_from_name("f32"), std::nullopt);
}

TEST(DTypeDeathTest, UncheckedNumberAborts) {
  EXPECT_DEATH(dtype_bytes(static_cast<DType>(kDTypeCount)), "index < kDTypes.size");
}

TEST(TensorBytes, CountsAndSeesOverflow) {
  TensorSpec tensor{.name = "w", .dtype = DType::kBF16};
  EXPECT_EQ(tensor_bytes(tensor).value(), 2u);  // a scalar
  tensor.shape = {3, 0, 5};
  EXPECT_EQ(tensor_bytes(tensor).value(), 0u);
  tensor.shape = {3, 4, 5};
  EXPECT_EQ(tensor_bytes(tensor).value(), 120u);
  tensor.shape = {1ull << 32, 1ull << 31};
  EXPECT_THAT(tensor_bytes(tensor).error().message, HasSubstr("tensor w"));
  tensor.shape.assign(kTensorRankMax + 1, 1);
  EXPECT_FALSE(tensor_bytes(tensor).ok());
}

TEST(TensorBytes, CountsElementsThatShareBytes) {
  EXPECT_EQ(tensor_bytes({.name = "w", .dtype = DType::kF4, .shape = {2, 4}}).value(), 4u);
  EXPECT_EQ(tensor_bytes({.name = "w", .dtype = DType::kF6E2M3, .shape = {2, 4}}).value(), 6u);
  EXPECT_EQ(tensor_bytes({.name = "w", .dtype = DType::kF6E3M2, .shape = {12}}).value(), 9u);
  EXPECT_EQ(tensor_bytes({.name = "w", .dtype = DType::kF4, .shape = {0}}).value(), 0u);
  const uint64_t most = ~uint64_t{0} - 1;
  EXPECT_EQ(tensor_bytes({.name = "w", .dtype = DType::kF4, .shape = {most}}).value(), most / 2);
  EXPECT_FALSE(tensor_bytes({.name = "w", .dtype = DType::kF32, .shape = {most}}).ok());
  for (const DType dtype : {DType::kF4, DType::kF6E2M3}) {
    EXPECT_THAT(tensor_bytes({.name = "w", .dtype = dtype, .shape = {3}}).error().message,
                HasSubstr("do not fill whole bytes"));
  }
}

TEST(ValidateUnit, AcceptsNamesOfAnyModel) {
  UnitSpec unit = test::sample_unit("a%2Fb");
  unit.tensors[0].name = "mod\xc3\xa8le \xe5\xb1\x82/\n\x1b[31m";
  unit.tensors[1].name = "";
  EXPECT_TRUE(validate(unit).ok());
  unit.tensors[1].name.assign(kTensorNameBytesMax, 'n');
  EXPECT_TRUE(validate(unit).ok());
}

TEST(ValidateUnit, DetectsUnitsUnreadableByOlderDaemons) {
  const UnitSpec unit = test::sample_unit("layers.0");
  EXPECT_TRUE(readable_by_version_8(unit));
  const std::vector<std::function<void(UnitSpec&)>> changes = {
      [](UnitSpec& u) { u.name = "a%2F"; }, [](UnitSpec& u) { u.tensors[0].dtype = DType::kC64; },
      [](UnitSpec& u) { u.tensors[0].name = "\xc3\xa9"; },
      [](UnitSpec& u) { u.tensors[0].name.clear(); },
      [](UnitSpec& u) { u.tensors[0].name.assign(1025, 'n'); }};
  for (const auto& change : changes) {
    UnitSpec changed = unit;
    change(changed);
    EXPECT_FALSE(readable_by_version_8(changed));
  }
}

TEST(ValidateUnit, AcceptsValidUnits) {
  EXPECT_TRUE(validate(test::sample_unit("layers.3.experts.17.weights")).ok());
  EXPECT_TRUE(validate(test::sample_unit(std::string(kUnitNameBytesMax, 'x'))).ok());
  UnitSpec opaque{.name = "trainer", .bytes = 1};
  EXPECT_TRUE(validate(opaque).ok());
}

struct BadUnit {
  std::string name;
  std::function<void(UnitSpec&)> spoil;
  std::string says;
};
class ValidateUnitRefuses : public testing::TestWithParam<BadUnit> {};

TEST_P(ValidateUnitRefuses, AndNamesTheUnit) {
  UnitSpec unit = test::sample_unit("layers.0.attention");
  GetParam().spoil(unit);
  const Status status = validate(unit);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Each, ValidateUnitRefuses,
    testing::Values(
        BadUnit{"EmptyName", [](UnitSpec& u) { u.name.clear(); }, "1 to 255 characters"},
        BadUnit{"LongName", [](UnitSpec& u) { u.name.assign(256, 'x'); }, "xxx..."},
        BadUnit{"Slash", [](UnitSpec& u) { u.name = "../etc"; }, "../etc"},
        BadUnit{"Control", [](UnitSpec& u) { u.name = "a\x1b[2Jb"; }, "a\\x1b[2Jb"},
        BadUnit{"NoBytes", [](UnitSpec& u) { u.bytes = 0; }, "layers.0.attention: 0 bytes"},
        BadUnit{"TooManyBytes", [](UnitSpec& u) { u.bytes = ~0ull; }, "allowed are 1 to"},
        BadUnit{"Part", [](UnitSpec& u) { u.part = static_cast<UnitPart>(9); }, "unknown part 9"},
        BadUnit{"Layer", [](UnitSpec& u) { u.layer = 1u << 31; }, "layer or expert above"},
        BadUnit{"Tensors", [](UnitSpec& u) { u.tensors.resize(4097); }, "4097 tensors"},
        BadUnit{"DType", [](UnitSpec& u) { u.tensors[1].dtype = static_cast<DType>(200); },
                "tensor w2: unknown dtype 200"},
        BadUnit{"TensorName", [](UnitSpec& u) { u.tensors[0].name = "a\xff"; },
                "a tensor name is UTF-8 without zero bytes"},
        BadUnit{"ZeroByte", [](UnitSpec& u) { u.tensors[0].name.push_back('\0'); },
                "a tensor name is UTF-8 without zero bytes"},
        BadUnit{"LongTensorName",
                [](UnitSpec& u) { u.tensors[0].name.assign(kTensorNameBytesMax + 1, 'n'); },
                "nnn...: a tensor name has at most"},
        BadUnit{"TwoNames", [](UnitSpec& u) { u.tensors[1].name = "w1"; },
                "layers.0.attention tensor w1: named twice"},
        BadUnit{"Beyond", [](UnitSpec& u) { u.tensors[1].offset = 129; },
                "tensor w2: 16 bytes at offset 129 do not fit into the unit's 144"},
        BadUnit{"FarBeyond", [](UnitSpec& u) { u.tensors[1].offset = ~0ull; }, "do not fit"},
        BadUnit{"Overlap", [](UnitSpec& u) { u.tensors[1].offset = 127; },
                "begins at 127, the tensor before it ends at 128"},
        BadUnit{"Overflow",
                [](UnitSpec& u) {
                  u.tensors[0].shape = {~0ull, ~0ull};
                },
                "tensor w1: its shape has more bytes"}),
    [](const auto& bad) { return bad.param.name; });

// Every field counts, and nothing moves from one field into the next unseen.
TEST(SchemaHash, ChangesWithEveryField) {
  const std::vector<UnitSpec> units = {test::sample_unit("a"), test::sample_unit("b")};
  std::set<base::Hash128> hashes = {schema_hash(units), schema_hash({}), schema_hash({units[0]}),
                                    schema_hash({units[1], units[0]})};
  const std::vector<std::function<void(UnitSpec&)>> changes = {
      [](UnitSpec& u) { u.name = "c"; },
      [](UnitSpec& u) { u.layer = 4; },
      [](UnitSpec& u) { u.layer.reset(); },
      [](UnitSpec& u) { std::swap(u.layer, u.expert); },
      [](UnitSpec& u) { u.part = UnitPart::kOptimizer; },
      [](UnitSpec& u) { u.bytes = 145; },
      [](UnitSpec& u) { u.tensors.pop_back(); },
      [](UnitSpec& u) { u.tensors[0].name = "w3"; },
      [](UnitSpec& u) { u.tensors[0].dtype = DType::kU32; },
      [](UnitSpec& u) {
        u.tensors[0].shape = {8, 4};
      },
      [](UnitSpec& u) { u.tensors[0].offset = 1; },
  };
  for (const auto& change : changes) {
    std::vector<UnitSpec> changed = units;
    change(changed[0]);
    hashes.insert(schema_hash(changed));
  }
  EXPECT_EQ(hashes.size(), 4 + changes.size());
  EXPECT_EQ(schema_hash(units), schema_hash(units));
}

TEST(ValidateName, ForRunsAndTags) {
  EXPECT_TRUE(validate_name("run", "tiny-2.1_b").ok());
  EXPECT_TRUE(validate_name("run", std::string(128, 'x')).ok());
  for (const std::string& bad :
       {std::string(), std::string(129, 'x'), std::string(".."), std::string("-x"),
        std::string("a/b"), std::string("a@5"), std::string("a\0b", 3), std::string("\xc3\xa9")}) {
    EXPECT_FALSE(validate_name("tag", bad).ok()) << bad;
  }
  EXPECT_THAT(validate_name("tag", "a b").error().message, HasSubstr("tag a b:"));
}

TEST(WireUnit, RoundTrips) {
  UnitSpec unit = test::sample_unit("layers.3.experts.17.weights");
  EXPECT_EQ(wire::from_fb(wire::to_fb(unit, 5)).value(), unit);
  unit.layer.reset();
  unit.expert.reset();
  unit.part = UnitPart::kNone;
  EXPECT_EQ(wire::from_fb(wire::to_fb(unit, 5)).value(), unit);
}

TEST(WireUnit, IsCheckedOnDecode) {
  fb::UnitT unit = wire::to_fb(test::sample_unit("u"), 0);
  unit.layer = -2;
  EXPECT_THAT(wire::from_fb(unit).error().message, HasSubstr("unit u: layer -2"));
  unit.layer = 0;
  unit.part = 77;
  EXPECT_FALSE(wire::from_fb(unit).ok());
  unit.part = 0;
  unit.tensors[0]->dtype = 255;
  EXPECT_FALSE(wire::from_fb(unit).ok());
}

}  // namespace
}  // namespace ckpt

#include "formats/json_text.h"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonText, AcceptsOneValueOfBoundedDepth) {
  EXPECT_TRUE(check_json(R"({"hf_config": {"layers": [1, -2, 0.5, true, null, "a\"[[["]}})").ok());
  EXPECT_TRUE(check_json("7").ok());
  EXPECT_TRUE(check_json(nested(kJsonDepthMax)).ok());
  EXPECT_EQ(check_json(nested(kJsonDepthMax + 1)).error().message, "nested more than 64 deep");
  EXPECT_EQ(check_json(R"({"a": {"b": {}}})", 2).error().message, "nested more than 2 deep");
}

TEST(JsonText, DepthIsCountedNotBrackets) {
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "[],";
  EXPECT_TRUE(check_json(wide + "{}]", 2).ok());
}

TEST(JsonText, RefusesInvalidText) {
  for (const char* text : {"", "{", "[1,]", "{} {}", "{ no json", "\"\xff\""}) {
    EXPECT_EQ(check_json(text).error().message, "not JSON") << text;
  }
  // Neither the walk nor the destructor uses recursion.
  EXPECT_FALSE(check_json(std::string(1u << 20, '[')).ok());
  EXPECT_TRUE(check_json(nested(1u << 19), 1u << 20).ok());
}

}  // namespace
}  // namespace ckpt

#include "formats/selector.h"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

using Kind = Selector::Kind;

TEST(SelectorTest, ReadsEveryForm) {
  const auto parse = [](std::string_view text) { return parse_selector(text).value(); };
  EXPECT_EQ(parse("tiny"), (Selector{.run = "tiny"}));
  EXPECT_EQ(parse("tiny@120"), (Selector{.run = "tiny", .kind = Kind::kStep, .step = 120}));
  EXPECT_EQ(parse("tiny@0"), (Selector{.run = "tiny", .kind = Kind::kStep}));
  EXPECT_EQ(parse("tiny@latest"), (Selector{.run = "tiny", .kind = Kind::kLatest}));
  EXPECT_EQ(parse("tiny@best-1"), (Selector{.run = "tiny", .kind = Kind::kTag, .tag = "best-1"}));
  EXPECT_EQ(parse("tiny~2"), (Selector{.run = "tiny", .lineage = 2}));
  EXPECT_EQ(parse("tiny~2@latest"), (Selector{.run = "tiny", .lineage = 2, .kind = Kind::kLatest}));
  EXPECT_EQ(parse("a.b_c-d~4294967295@18446744073709551615"),
            (Selector{.run = "a.b_c-d",
                      .lineage = 4294967295u,
                      .kind = Kind::kStep,
                      .step = 18446744073709551615u}));
}

TEST(SelectorTest, RoundTripsText) {
  for (const char* text : {"tiny", "tiny~3", "tiny@120", "tiny~3@120", "tiny@latest",
                           "tiny~3@latest", "tiny@release"}) {
    EXPECT_EQ(to_string(parse_selector(text).value()), text);
  }
}

TEST(SelectorTest, RefusesOtherTextsAndQuotesThem) {
  for (const char* text : {"",
                           "@",
                           "@5",
                           "~1",
                           "tiny@",
                           "tiny~",
                           "tiny~@5",
                           "tiny~0",
                           "tiny~x",
                           "tiny~-1@5",
                           "tiny~4294967296",
                           "tiny@18446744073709551616",
                           "tiny@a b",
                           "tiny@-5",
                           "tiny@+5",
                           "tiny@5@6",
                           "tiny~1~2",
                           "tiny~1@best",
                           "ti ny",
                           "../tiny",
                           ".tiny",
                           "tiny@5 ",
                           " tiny"}) {
    const auto parsed = parse_selector(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument) << text;
    EXPECT_NE(parsed.error().message.find(text), std::string::npos) << text;
  }
}

TEST(SelectorTest, ReportsMissingRun) {
  for (const char* text : {"", "@60", "~2@60"}) {
    const auto parsed = parse_selector(text);
    ASSERT_FALSE(parsed.ok());
    EXPECT_NE(parsed.error().message.find("the name of the run is missing"), std::string::npos);
  }
  EXPECT_EQ(commit_name("tiny", 2, 120), "tiny~2@120");
}

TEST(SelectorTest, CommitsOfAKnownRunNeedNoRun) {
  const auto named = [](std::string_view text) {
    return to_string(parse_commit_name(text, "tiny").value());
  };
  EXPECT_EQ(named("120"), "tiny@120");
  EXPECT_EQ(named("latest"), "tiny@latest");
  EXPECT_EQ(named("best"), "tiny@best");
  EXPECT_EQ(named("~3@120"), "tiny~3@120");
  EXPECT_EQ(named("~3@latest"), "tiny~3@latest");
  EXPECT_EQ(named("~3"), "tiny~3@latest");
  EXPECT_EQ(named("@120"), "tiny@120");
  EXPECT_EQ(named("tiny@120"), "tiny@120");
  EXPECT_EQ(named("other~2@7"), "other~2@7");
  EXPECT_EQ(named("other~2"), "other~2@latest");
}

TEST(SelectorTest, InvalidCommitsAreRefused) {
  for (const char* text : {"", "@", "~", "~0@5", "~x@5", "-5", "+5", " 5", "5 ", "a b", "~3@best",
                           "18446744073709551616", "@5@6", "../x"}) {
    const auto parsed = parse_commit_name(text, "tiny");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument) << text;
  }
}

TEST(SelectorTest, AmbiguousTagsAreRefused) {
  EXPECT_TRUE(validate_tag("best").ok());
  EXPECT_TRUE(validate_tag("v1").ok());
  for (const char* tag : {"", "latest", "120", "a@b", "a~b", "-x"}) {
    EXPECT_FALSE(validate_tag(tag).ok()) << tag;
  }
}

}  // namespace
}  // namespace ckpt

#include "ckptd/query/rows.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

using Parsed = nlohmann::json;

constexpr size_t kRoom = 1000;

TEST(Rows, RowsAreTheLastMemberOfTheDocument) {
  Rows rows(Json{{"run", "a"}}, "units", kRoom);
  rows.begin();
  rows.add("unit", "head");
  rows.add("step", 7);
  EXPECT_TRUE(rows.end());
  rows.begin();
  rows.add("step", std::nullopt);
  rows.add("largest", ~uint64_t{0});
  EXPECT_TRUE(rows.end());
  const std::string text = std::move(rows).text();
  EXPECT_EQ(text, R"({"run":"a","units":[{"unit":"head","step":7},)"
                  R"({"step":null,"largest":18446744073709551615}]})");
}

TEST(Rows, NoRowsGiveEmptyArray) {
  EXPECT_EQ(Rows(Json{{"run", "a"}}, "units", kRoom).text(), R"({"run":"a","units":[]})");
  EXPECT_EQ(Rows(Json::object(), "units", kRoom).text(), R"({"units":[]})");
}

TEST(Rows, TextIsEscapedAsInAnyOtherDocument) {
  for (const std::string& text :
       {std::string("a\"b"), std::string("a\\b"), std::string("tab\t and \0 nul", 12),
        std::string("\x7f"), std::string("caf\xc3\xa9"), std::string("no UTF-8: \xff\xc3")}) {
    Rows rows(Json::object(), "units", kRoom);
    rows.begin();
    rows.add("unit", text);
    EXPECT_TRUE(rows.end());
    const Parsed document = Parsed::parse(std::move(rows).text());
    const Parsed same = Parsed::parse(dump(Json{{"unit", text}}));
    EXPECT_EQ(document["units"][0], same) << text;
  }
}

TEST(Rows, RowsWithoutNameAreTheDocument) {
  Rows rows(Json(), "", kRoom);
  EXPECT_TRUE(rows.add_row(Json{{"a", 1}}));
  EXPECT_TRUE(rows.add_row(Json(7)));
  EXPECT_EQ(std::move(rows).text(), R"([{"a":1},7])");
}

TEST(Rows, EndsBeforeRowThatDoesNotFit) {
  Rows rows(Json::object(), "units", 8);
  EXPECT_TRUE(rows.add_row("longer than the room"));
  EXPECT_FALSE(rows.add_row(1)) << "the first row always fits, and takes it all";
  EXPECT_EQ(std::move(rows).text(Json{{"left_out", 1}}),
            R"({"units":["longer than the room"],"left_out":1})");
  Rows small(Json::object(), "units", std::string_view(R"({"units":[1,2)").size());
  EXPECT_TRUE(small.add_row(1));
  EXPECT_TRUE(small.add_row(2)) << "exactly";
  small.begin();
  EXPECT_FALSE(small.end());
  EXPECT_EQ(std::move(small).text(), R"({"units":[1,2]})");
}

}  // namespace
}  // namespace ckptd

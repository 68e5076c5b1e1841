#include "ckptd/query/rows.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

using Parsed = nlohmann::json;

TEST(Rows, AreTheLastMemberOfTheDocument) {
  Rows rows(Json{{"run", "a"}}, "units");
  rows.begin();
  rows.add("unit", "head");
  rows.add("step", 7);
  rows.begin();
  rows.add("step", std::nullopt);
  rows.add("largest", ~uint64_t{0});
  const std::string text = std::move(rows).text();
  EXPECT_EQ(text, R"({"run":"a","units":[{"unit":"head","step":7},)"
                  R"({"step":null,"largest":18446744073709551615}]})");
}

TEST(Rows, NoneIsAnEmptyArray) {
  EXPECT_EQ(Rows(Json{{"run", "a"}}, "units").text(), R"({"run":"a","units":[]})");
  EXPECT_EQ(Rows(Json::object(), "units").text(), R"({"units":[]})");
}

TEST(Rows, TextIsEscapedAsInAnyOtherDocument) {
  for (const std::string& text :
       {std::string("a\"b"), std::string("a\\b"), std::string("tab\t and \0 nul", 12),
        std::string("\x7f"), std::string("caf\xc3\xa9"), std::string("no UTF-8: \xff\xc3")}) {
    Rows rows(Json::object(), "units");
    rows.begin();
    rows.add("unit", text);
    const Parsed document = Parsed::parse(std::move(rows).text());
    const Parsed same = Parsed::parse(dump(Json{{"unit", text}}));
    EXPECT_EQ(document["units"][0], same) << text;
  }
}

}  // namespace
}  // namespace ckptd

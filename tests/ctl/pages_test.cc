#include "client/ctl/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckptctl {
namespace {

using testing::HasSubstr;

ckpt::Result<Json> joined(const std::vector<const char*>& answers) {
  PageJoiner whole("log");
  for (const char* answer : answers) {
    CKPT_ASSIGN(AnswerPage page, parse_page("log", Json::parse(answer)));
    CKPT_TRY(whole.add(std::move(page)));
  }
  return std::move(whole).document();
}

TEST(Pages, ListsAreJoined) {
  EXPECT_EQ(joined({R"({"next": "5", "lists": [], "document": [1, 2]})",
                    R"({"next": null, "lists": [], "document": [3]})"})
                .value(),
            Json::parse("[1, 2, 3]"));
  EXPECT_EQ(
      joined(
          {R"({"next": "1", "lists": ["units"], "document": {"run": "a", "units": [1], "x": 1}})",
           R"({"next": null, "lists": ["units"], "document": {"run": "a", "units": [2]}})"})
          .value(),
      Json::parse(R"({"run": "a", "units": [1, 2], "x": 1})"));
}

TEST(Pages, SplitLayerIsJoined) {
  EXPECT_EQ(joined({R"({"next": "1", "lists": ["layers"], "document": {"layers": [
                   {"layer": 0, "experts": [{"expert": 0}]}]}})",
                    R"({"next": null, "lists": ["layers"], "document": {"layers": [
                   {"layer": 0, "experts": [{"expert": 1}]}, {"layer": 1, "experts": []}]}})"})
                .value(),
            Json::parse(R"({"layers": [{"layer": 0, "experts": [{"expert": 0}, {"expert": 1}]},
                                 {"layer": 1, "experts": []}]})"));
}

TEST(Pages, PagesOfDifferentStepsAreRefused) {
  const auto wrong =
      joined({R"({"next": "1", "lists": ["units"], "document": {"step": 5, "units": [1]}})",
              R"({"next": null, "lists": ["units"], "document": {"step": 6, "units": [2]}})"});
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("not of one step: 5, then 6; ask again"));
}

TEST(Pages, MalformedPagesAreRefused) {
  for (const char* answer : {"[]", "7", "{}", R"({"next": null, "lists": [], "document": {}})",
                             R"({"next": "", "lists": [], "document": [1]})",
                             R"({"next": 5, "lists": [], "document": []})",
                             R"({"next": null, "lists": ["a"], "document": []})",
                             R"({"next": null, "lists": ["a"], "document": {"a": 5}})",
                             R"({"next": null, "lists": [7], "document": {"a": []}})",
                             R"({"next": null, "lists": "a", "document": {"a": []}})",
                             R"({"next": "goes on without a row", "lists": [], "document": []})"}) {
    EXPECT_FALSE(parse_page("log", Json::parse(answer)).ok()) << answer;
  }
  EXPECT_FALSE(joined({R"({"next": "1", "lists": [], "document": [1]})",
                       R"({"next": null, "lists": ["a"], "document": {"a": []}})"})
                   .ok());
}

}  // namespace
}  // namespace ckptctl

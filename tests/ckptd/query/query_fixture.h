// A catalog with a small history, to be asked.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ckptd/query/query.h"
#include "tests/ckptd/catalog/records.h"
#include "tests/ckptd/sources/fake_source.h"

namespace ckptd {

class QueryTest : public testing::Test {
 protected:
  void SetUp() override {
    // Memory has unit 0.
    add_fake_sources(sources_, [](const FragmentName& fragment) { return fragment.unit == 0; });
    add(store_opened());
    add(run_created());
    add(units_registered(units_));
    add(lineage_opened(1, 0, 0));
    commit({1, 5}, all_units(units_), true);
    commit({1, 10}, {0, 1, 4}, false);  // expert 0 of layer 0, and trainer
    commit({1, 15}, all_units(units_), true);
    add(lineage_opened(2, 1, 10));
    commit({2, 15}, {4}, false);
    add(tagged({1, 10}, "best"));
  }
  void add(const fb::RecordT& record) {
    const Status applied = catalog_.apply(next_++, record);
    ASSERT_TRUE(applied.ok()) << applied.error().message;
  }
  void commit(ViewPoint point, std::vector<ckpt::UnitId> units, bool full) {
    add(committed({.point = point, .units = std::move(units), .full = full}, units_));
  }
  nlohmann::json ask(std::string_view verb, const nlohmann::json& args, int exit_code = 0) {
    const QueryAnswer answer = answer_query(context_, verb, args.dump());
    EXPECT_EQ(answer.exit_code, exit_code) << answer.json;
    return nlohmann::json::parse(answer.json);
  }
  // The same query in pages of at most `bytes`, joined: the rows of later pages are appended to the
  // lists of the first page.
  nlohmann::json ask_in_pages(std::string_view verb, nlohmann::json args, size_t bytes) {
    args["page_bytes"] = bytes;
    args["page"] = "";
    nlohmann::json whole;
    for (pages_ = 1;; ++pages_) {
      nlohmann::json page = ask(verb, args);
      const nlohmann::json lists = page["lists"];
      if (whole.is_null()) {
        whole = page["document"];
      } else if (lists.empty()) {
        for (auto& row : page["document"]) whole.push_back(row);
      }
      for (const auto& name : lists) {
        auto& list = whole[name.get<std::string>()];
        if (pages_ == 1) continue;
        for (auto& row : page["document"][name.get<std::string>()]) list.push_back(row);
      }
      if (page["next"].is_null()) return whole;
      args["page"] = page["next"];
    }
  }
  void expect_error(std::string_view verb, const nlohmann::json& args, int exit_code,
                    const std::string& part) {
    const nlohmann::json answer = ask(verb, args, exit_code);
    ASSERT_TRUE(answer.contains("error")) << answer;
    EXPECT_THAT(answer["error"].get<std::string>(), testing::HasSubstr(part));
  }

  const std::vector<ckpt::UnitSpec> units_ = test_units(1, 2);  // 4 of experts, then trainer
  Catalog catalog_{make_memory_store()};
  Sources sources_;
  QueryContext context_{.catalog = catalog_, .sources = &sources_};
  uint64_t next_ = 1;
  size_t pages_ = 0;  // that the last answer came in
};

}  // namespace ckptd

// The view that a message of a reader names.
#include "ckptd/readers/wanted_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ckptd/catalog/records.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;

class WantedViewTest : public testing::Test {
 protected:
  void SetUp() override {
    add(store_opened());
    add(run_created());
    add(units_registered(units_));
    add(lineage_opened(1, 0, 0));
    add(committed({.point = {1, 5}, .units = all_units(units_), .full = true}, units_));
    add(committed({.point = {1, 10}, .units = {0}}, units_));
    add(tagged({1, 5}, "best"));
  }
  void add(const fb::RecordT& record) {
    const Status applied = catalog_.apply(next_++, record);
    ASSERT_TRUE(applied.ok()) << applied.error().message;
  }
  Result<ViewPoint> view(const fb::OpenRestoreT& message) const {
    return wanted_view(catalog_, catalog_.run(kTestRun).value(), message);
  }
  void expect_error(const fb::OpenRestoreT& message, ErrorCode code, const std::string& part) {
    const auto found = view(message);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, code);
    EXPECT_THAT(found.error().message, testing::HasSubstr(part));
  }
  const std::vector<ckpt::UnitSpec> units_ = test_units(1, 2);
  Catalog catalog_{make_memory_store()};
  uint64_t next_ = 1;
};

TEST_F(WantedViewTest, AStepNamesItsCommit) {
  fb::OpenRestoreT message;
  message.lineage = 1;
  message.step = 10;
  EXPECT_EQ(view(message).value(), (ViewPoint{1, 10}));
  message.step = 7;
  EXPECT_FALSE(view(message).ok());
}

TEST_F(WantedViewTest, ATagNamesItsCommit) {
  fb::OpenRestoreT message;
  message.tag = "best";
  EXPECT_EQ(view(message).value(), (ViewPoint{1, 5}));
  message.tag = "worst";
  expect_error(message, ErrorCode::kNotFound, "no tag worst");
}

TEST_F(WantedViewTest, LatestIsTheLastCompleteView) {
  fb::OpenRestoreT message;
  message.latest = true;
  EXPECT_EQ(view(message).value(), (ViewPoint{1, 10}));
}

TEST_F(WantedViewTest, NewestNeedsNoCommitAtItsStep) {
  fb::OpenRestoreT message;
  message.newest = true;
  message.step = 7;
  EXPECT_EQ(view(message).value(), (ViewPoint{1, 7}));
  message.lineage = 9;
  expect_error(message, ErrorCode::kNotFound, "no lineage 9");
}

TEST_F(WantedViewTest, NewestExcludesLatestAndTags) {
  fb::OpenRestoreT message;
  message.newest = true;
  message.latest = true;
  expect_error(message, ErrorCode::kInvalidArgument, "`newest` goes with a step");
  message.latest = false;
  message.tag = "best";
  expect_error(message, ErrorCode::kInvalidArgument, "`newest` goes with a step");
}

}  // namespace
}  // namespace ckptd

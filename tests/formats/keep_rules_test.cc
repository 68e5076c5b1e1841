#include "formats/keep_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace ckpt {
namespace {

using testing::HasSubstr;

KeepRules every_rule() {
  KeepRules rules;
  rules.last = 1;
  rules.hourly = 2;
  rules.daily = 3;
  rules.weekly = 4;
  rules.monthly = 5;
  rules.yearly = 6;
  rules.within = std::chrono::hours(7);
  rules.every_steps = 8;
  rules.tags = {"good", "better"};
  rules.best = {{"loss", 9, false}, {"accuracy", 10, true}};
  return rules;
}

TEST(KeepRules, RoundTripThroughRecord) {
  const auto back = from_fb(to_fb(every_rule()));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, every_rule());
  EXPECT_FALSE(back->empty());
  EXPECT_TRUE(from_fb(fb::RulesSetT())->empty());
}

void expect_refused(const KeepRules& rules, const std::string& what) {
  const Status checked = check_keep_rules(rules);
  ASSERT_FALSE(checked.ok()) << what;
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(checked.error().message, HasSubstr(what));
  EXPECT_FALSE(from_fb(to_fb(rules)).ok());
}

TEST(KeepRules, InvalidRulesAreRefused) {
  KeepRules rules;
  rules.tags = {""};
  expect_refused(rules, "tag ''");
  rules.tags = {"two words"};
  expect_refused(rules, "tag 'two words'");
  rules.tags = {std::string(kKeepNameBytesMax + 1, 'a')};
  expect_refused(rules, "1 to 128");
  rules.tags = {"\x1b[31m"};
  expect_refused(rules, "\\x1b[31m");
  rules.tags.assign(kKeepNamesMax + 1, "a");
  expect_refused(rules, "65 tags");
  rules = {};
  rules.best = {{"loss", 0, false}};
  expect_refused(rules, "metric loss");
  rules = {};
  rules.within = std::chrono::nanoseconds(-1);
  expect_refused(rules, "-1 ns");
}

TEST(KeepRules, OverflowingDurationIsRefused) {
  fb::RulesSetT record;
  record.within_ns = 1ull << 63;
  EXPECT_THAT(from_fb(record).error().message, HasSubstr("too long"));
}

}  // namespace
}  // namespace ckpt

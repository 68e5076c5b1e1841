#include "formats/rights.h"

#include <gmock/gmock.h>

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Rights, AnyRightImpliesRead) {
  EXPECT_THAT(right_names(parse_rights({"commit"}).value()), ElementsAre("read", "commit"));
  EXPECT_THAT(right_names(parse_rights({"prune", "prune"}).value()), ElementsAre("read", "prune"));
  EXPECT_THAT(right_names(parse_rights({"read"}).value()), ElementsAre("read"));
  EXPECT_THAT(right_names(parse_rights({}).value()), IsEmpty());
  const Rights read = parse_rights({"read"}).value();
  EXPECT_TRUE(read.has(Right::kRead));
  EXPECT_FALSE(read.has(Right::kCommit) || read.has(Right::kPrune));
  EXPECT_FALSE(Rights().has(Right::kRead));
}

TEST(Rights, UnknownNameIsQuoted) {
  const auto refused = parse_rights({"read", "write\x1b"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("right write\\x1b: read, commit or prune"));
}

TEST(Rights, RoundTripThroughRecord) {
  for (const auto& names : std::vector<std::vector<std::string>>{
           {}, {"read"}, {"commit"}, {"prune"}, {"commit", "prune"}}) {
    const Rights rights = parse_rights(names).value();
    const fb::GrantedT record = to_fb(7, rights);
    EXPECT_EQ(record.uid, 7u);
    EXPECT_EQ(from_fb(record), rights);
  }
  fb::GrantedT odd;  // no ckptd writes such a record
  odd.prune = true;
  EXPECT_TRUE(from_fb(odd).has(Right::kRead));
}

}  // namespace
}  // namespace ckpt

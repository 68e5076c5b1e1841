// An elastic group for the tests of Groups: passes events in, and keeps the epochs that Groups
// opens.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "ckptd/group/group.h"
#include "tests/ckptd/group/actions.h"

namespace ckptd {

inline constexpr std::chrono::milliseconds kGrace{1'000};

// Member m speaks through session 100 + m.
inline JoinRequest request(MemberId member, ResumeMode resume, uint32_t size = 4) {
  return {.session = 100 + member,
          .request = member,
          .rank = static_cast<ckpt::Rank>(member % size),
          .size = size,
          .resume = resume,
          .elastic = true,
          .member = member,
          .grace = kGrace};
}

inline std::vector<MemberId> members_of(const Groups::OpenEpoch& open) {
  std::vector<MemberId> members;
  for (const JoinRequest& member : open.members) members.push_back(member.member);
  return members;
}

class ElasticGroupTest : public testing::Test {
 protected:
  Groups groups;
  std::vector<Groups::OpenEpoch> opens;

  Groups::Actions join_survivor(MemberId member) {
    return note(groups.join(kRun, survivor_request(member)));
  }
  static JoinRequest survivor_request(MemberId member) {
    return request(member, ResumeMode::kKeepState);
  }
  Groups::Actions join(MemberId member, uint32_t size = 4) {
    return note(groups.join(kRun, request(member, ResumeMode::kContinue, size)));
  }
  Groups::Actions lost(MemberId member) { return note(groups.lost(100 + member, "died")); }
  Groups::Actions note(Groups::Actions actions) {
    for (const auto& open : all<Groups::OpenEpoch>(actions)) opens.push_back(open);
    return actions;
  }
  // The record of the epoch that is being opened is durable.
  Groups::Actions opened(const ckpt::Status& status = {}) {
    return note(groups.opened(kRun, opens.back().epoch, 7, status));
  }
  void open_first(uint32_t size = 4) {
    for (MemberId member = 0; member < size; ++member) {
      note(groups.join(kRun, request(member, ResumeMode::kStart, size)));
    }
    ASSERT_EQ(opens.size(), 1u);
    EXPECT_TRUE(opens[0].elastic);
    EXPECT_FALSE(opens[0].survivors_continue);
    EXPECT_TRUE(opened().empty());
  }
};

}  // namespace ckptd

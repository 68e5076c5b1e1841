#include "trainer/placement/domains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<uint32_t> domains_of(const std::vector<uint64_t>& processes,
                                 const NodeOfProcess& nodes) {
  return group_of(processes, nodes).domain_of_rank;
}

TEST(DomainsTest, FollowProcessesNotRanks) {
  const NodeOfProcess nodes = {0, 0, 1, 1, 0};
  EXPECT_THAT(first_group(4, nodes).domain_of_rank, ElementsAre(0, 0, 1, 1));
  // Process 1 is lost, and process 4 joins on the node of process 0.
  EXPECT_THAT(domains_of({0, 2, 3}, nodes), ElementsAre(0, 1, 1));
  EXPECT_THAT(domains_of({0, 2, 3, 4}, nodes), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(domains_of({4, 3, 0, 2}, nodes), ElementsAre(0, 1, 0, 1)) << "every one is used";
}

TEST(DomainsTest, UnnamedProcessIsItsOwnNode) {
  const NodeOfProcess nodes = {7, kOwnNode, 7, kOwnNode};
  EXPECT_THAT(domains_of({0, 1, 2, 3, 9, 4'000'000'000}, nodes), ElementsAre(0, 1, 0, 2, 3, 4));
  EXPECT_EQ(first_group(4, nodes).domains(), 3u);
}

TEST(DomainsTest, SingleRankDomainsAreOmitted) {
  EXPECT_EQ(first_group(3, {}), RankGroup(3));
  EXPECT_EQ(first_group(3, {2, 1, 0}), RankGroup(3));
  EXPECT_THAT(domains_of({0, 2}, {0, 0, 1, 1}), IsEmpty());
  EXPECT_EQ(RankGroup(3).domains(), 3u);
  EXPECT_EQ(RankGroup(3).domain(2), 2u);
  EXPECT_THAT(first_group(2, {5, 5}).domain_of_rank, ElementsAre(0, 0)) << "all on one node";
}

TEST(DomainsTest, RoutingNodesFollowNodesOfProcesses) {
  EXPECT_THAT(routing_nodes(first_group(3, {}), {}), IsEmpty());
  const NodeOfProcess pairs = {4, 4, 2, 2};
  EXPECT_THAT(routing_nodes(first_group(4, pairs), pairs), ElementsAre(0, 0, 1, 1));
  const NodeOfProcess apart = {0, 1, 2};
  EXPECT_THAT(routing_nodes(first_group(3, apart), apart), ElementsAre(0, 1, 2));
  EXPECT_THAT(routing_nodes(group_of(std::vector<uint64_t>{1, 3, 9}, pairs), pairs),
              ElementsAre(0, 1, 2));
}

TEST(DomainsTest, SubgroupKeepsDomainsOfItsRanks) {
  const RankGroup group = first_group(6, {0, 0, 1, 1, 2, 2});
  EXPECT_EQ(group.only({false, false, true, true, true, false}), RankGroup(3, {0, 0, 1}));
  EXPECT_EQ(group.only({true, false, true, false, true, false}), RankGroup(3));
  EXPECT_EQ(group.domains_among(std::vector<uint32_t>{0, 1}), 1u);
  EXPECT_EQ(group.domains_among(std::vector<uint32_t>{1, 2, 3, 5}), 3u);
  EXPECT_EQ(group.domains_among({}), 0u);
}

}  // namespace
}  // namespace moetrain

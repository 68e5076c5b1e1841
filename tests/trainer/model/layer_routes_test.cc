// LayerRoutes: rows of each group under lite routing.
#include "trainer/model/layer_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using testing::ElementsAre;

// Expert 0 on both nodes, twice on rank 1; expert 1 on the second node only.
const LayerSlots kSlots = {{0}, {0, 0}, {0, 1}, {1}};

TEST(LayerRoutesTest, KeepsTokensOnNodesThatHaveReplicas) {
  const LayerRoutes routes(kSlots, 2, {0, 0, 1, 1});
  ASSERT_EQ(routes.groups(), 5u);             // (0, 0) (1, 0) (2, 0) (2, 1) (3, 1)
  const std::vector<int64_t> tokens = {9, 4,  //
                                       3, 0,  //
                                       5, 2,  //
                                       7, 6};
  EXPECT_THAT(routes.share(tokens), ElementsAre(4, 5, 0, 2, 2,  //
                                                0, 3, 0, 0, 0,  //
                                                0, 0, 5, 2, 0,  //
                                                0, 0, 7, 2, 4));
}

TEST(LayerRoutesTest, SharesAllTokensByAllReplicasWithoutNodes) {
  const std::vector<int64_t> tokens = {24, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_THAT(LayerRoutes(kSlots, 2).share(tokens), ElementsAre(6, 12, 6, 0, 0,  //
                                                                0, 0, 0, 0, 0,   //
                                                                0, 0, 0, 0, 0,   //
                                                                0, 0, 0, 0, 0));
  EXPECT_EQ(LayerRoutes(kSlots, 2, {5, 5, 5, 5}).share(tokens),
            LayerRoutes(kSlots, 2).share(tokens));
}

}  // namespace
}  // namespace moetrain

// ckptctl with a run that has grown: show, unit, diff, export.
#include <gmock/gmock.h>

#include "tests/client/ctl_fixture.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;

// Step 30 adds the weights of an adapter.
class CtlGrowth : public Ctl {
 protected:
  void SetUp() override {
    Ctl::SetUp();
    auto session = train(as_rank(0, 1));
    ASSERT_OK(session);
    const client::UnitInfo adapter = {"adapter", -1,   -1,
                                      "weights", 4096, {{"adapter.a", "F32", {1024}, 0}}};
    const auto numbers = session->grow({adapter});
    ASSERT_OK(numbers);
    ASSERT_EQ(numbers->front(), 3u);
    client::SnapshotOptions plan;
    plan.step = 30;
    plan.units = {2, 3};
    plan.fragments = {{0, 2, 0, 8}, {0, 3, 0, 4096}};
    auto snapshot = session->begin(plan);
    ASSERT_OK(snapshot);
    ASSERT_OK(snapshot->write(2, 0, &plan.step, 8));
    const std::vector<float> weights(1024, 30.0f);
    ASSERT_OK(snapshot->write(3, 0, weights.data(), 4096));
    ASSERT_OK(snapshot->end());
    ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
    ASSERT_OK(session->leave());
  }
  Json exported(const std::string& target) {
    return json({"export", target, "--out", folder_.path(target)});
  }

  const TempFolder folder_;
};

TEST_F(CtlGrowth, ShowListsUnitOnlyWhereItIs) {
  EXPECT_EQ(json({"show", "tiny@20"})["units"].size(), 3u);
  const Json grown = json({"show", "tiny@30"});
  EXPECT_EQ(grown["units"].size(), 4u);
  EXPECT_EQ(grown["complete"], true);
  EXPECT_THAT(ctl({"show", "tiny@30"}).out, HasSubstr("adapter"));
  EXPECT_EQ(json({"unit", "tiny", "adapter"})["versions"].size(), 1u);
}

TEST_F(CtlGrowth, DiffNamesTheNewUnit) {
  const Json diff = json({"diff", "tiny@20", "tiny@30"});
  bool added = false;
  for (const Json& unit : diff["units"]) {
    added = added || (unit["unit"] == "adapter" && unit["change"] == "added");
  }
  EXPECT_TRUE(added) << diff;
}

TEST_F(CtlGrowth, ExportHasTheTensorsOfItsView) {
  EXPECT_EQ(exported("tiny@20")["tensors"], 1);
  EXPECT_EQ(exported("tiny@30")["tensors"], 2);
}

TEST_F(CtlGrowth, VerifyAndPruneWork) {
  EXPECT_EQ(ctl({"verify", "tiny"}).exit_code, 0);
  EXPECT_EQ(ctl({"prune", "tiny", "--keep-last", "1", "--yes"}).exit_code, 0);
  EXPECT_EQ(json({"show", "tiny@30"})["units"].size(), 4u);
  EXPECT_EQ(exported("tiny@30")["tensors"], 2);
}

}  // namespace
}  // namespace ckpt::test

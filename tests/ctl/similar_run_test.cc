#include "client/ctl/similar_run.h"

#include <gtest/gtest.h>

namespace ckptctl {
namespace {

TEST(SimilarRun, NamesMostSimilarRun) {
  const auto with_hint = [](const std::string& message) {
    return with_similar_name({ckpt::ErrorCode::kNotFound, message}, {"base", "tiny"}).message;
  };
  EXPECT_EQ(with_hint("run tin: no such run"), "run tin: no such run; did you mean `tiny`?");
  EXPECT_EQ(with_hint("run other: no such run"), "run other: no such run");
  EXPECT_EQ(with_hint("run tiny: no tag tin"), "run tiny: no tag tin");
}

}  // namespace
}  // namespace ckptctl

#include "ckptd/snapshots/registrations.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

using ckpt::fb::UnitCodec;

class RegistrationsTest : public testing::Test {
 protected:
  void note(std::vector<UnitCodec> codecs, std::vector<uint32_t> flags = {}) {
    ckpt::fb::RegisterUnitsT message;
    message.codecs = std::move(codecs);
    message.flags = std::move(flags);
    registrations_.note("tiny", message);
  }
  EncodePlan plan(CodecChoice by_default) const {
    return registrations_.encode_plan("tiny", units_, by_default);
  }

  const UnitSpecList units_ =
      std::make_shared<const std::vector<ckpt::UnitSpec>>(std::vector<ckpt::UnitSpec>(2));
  Registrations registrations_;
};

TEST_F(RegistrationsTest, WithoutARequestTheDefaultCountsForAll) {
  EXPECT_EQ(plan(CodecChoice::kNone), nullptr);
  const EncodePlan zstd = plan(CodecChoice::kZstd);
  ASSERT_NE(zstd, nullptr);
  EXPECT_TRUE(zstd->has(0) && zstd->has(1));
  EXPECT_FALSE(zstd->any_deltas);
  EXPECT_TRUE(plan(CodecChoice::kDelta)->may_be_delta(0));
}

TEST_F(RegistrationsTest, RequestOverridesDefaultOfItsUnit) {
  note({UnitCodec::None, UnitCodec::Default});
  EXPECT_EQ(plan(CodecChoice::kNone), nullptr);
  const EncodePlan zstd = plan(CodecChoice::kZstd);
  ASSERT_NE(zstd, nullptr);
  EXPECT_FALSE(zstd->has(0));
  EXPECT_TRUE(zstd->has(1));
}

TEST_F(RegistrationsTest, LastRegistrationWithCodecsCounts) {
  note({UnitCodec::Zstd, UnitCodec::Zstd});
  note({});
  ASSERT_NE(plan(CodecChoice::kNone), nullptr);
  note({UnitCodec::None, UnitCodec::None});
  EXPECT_EQ(plan(CodecChoice::kZstd), nullptr);
}

TEST_F(RegistrationsTest, ARequestOfAnotherRunDoesNotCount) {
  note({UnitCodec::Zstd, UnitCodec::Zstd});
  EXPECT_EQ(registrations_.encode_plan("other", units_, CodecChoice::kNone), nullptr);
}

TEST_F(RegistrationsTest, ForgetsCodecsAndFlagsOfARun) {
  note({UnitCodec::Zstd, UnitCodec::Zstd}, {UnitFlags::kConstant, 0});
  EXPECT_TRUE(registrations_.constant("tiny", 0));
  EXPECT_FALSE(registrations_.constant("tiny", 1));
  registrations_.forget("tiny");
  EXPECT_FALSE(registrations_.constant("tiny", 0));
  EXPECT_EQ(plan(CodecChoice::kNone), nullptr);
}

}  // namespace
}  // namespace ckptd

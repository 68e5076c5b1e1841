// LoadWindow: its sums, and the bytes that it accepts.
#include "trainer/placement/load_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two layers of two experts; step s has s tokens for expert 0 and 10 s for expert 1, the second
// layer the other way round.
LoadWindow after(uint64_t steps) {
  LoadWindow window(2, 2);
  for (int64_t step = 1; step <= static_cast<int64_t>(steps); ++step) {
    window.record(std::vector<int64_t>{step, 10 * step, 10 * step, step});
  }
  return window;
}

std::string refusal(const std::vector<std::byte>& bytes, uint64_t last_step = 100) {
  const auto window = LoadWindow::decode(bytes, 2, 2, last_step);
  if (window.ok()) return "accepted";
  EXPECT_EQ(window.error().code, ckpt::ErrorCode::kCorrupt);
  return window.error().message;
}

// Sets the count of one step (0: the oldest of seven) for expert i of the grid.
void set(std::vector<std::byte>& bytes, size_t i, size_t step, uint32_t count) {
  ckpt::base::store(bytes.data() + i * LoadWindow::kBytesPerExpert + step * sizeof(count), count);
}

TEST(LoadWindowTest, SumsFiveStepsUpToGivenStep) {
  const LoadWindow window = after(9);  // knows 3 .. 9
  EXPECT_EQ(window.known_steps(), 7u);
  EXPECT_THAT(window.sum(9), ElementsAre(ElementsAre(35, 350), ElementsAre(350, 35)));  // 5 .. 9
  EXPECT_THAT(window.sum(7), ElementsAre(ElementsAre(25, 250), ElementsAre(250, 25)));  // 3 .. 7
  EXPECT_THAT(window.sum(4), ElementsAre(ElementsAre(7, 70), ElementsAre(70, 7)));      // 3, 4
  EXPECT_THAT(window.sum(2), IsEmpty());
  EXPECT_THAT(after(2).sum(2), ElementsAre(ElementsAre(3, 30), ElementsAre(30, 3)));
  EXPECT_THAT(LoadWindow(2, 2).sum(5), IsEmpty());
}

TEST(LoadWindowTest, KnowsWhichSumsAreComplete) {
  const LoadWindow window = after(9);
  EXPECT_TRUE(window.covers(9));
  EXPECT_TRUE(window.covers(7));
  EXPECT_FALSE(window.covers(6)) << "step 2 is forgotten";
  EXPECT_FALSE(window.covers(10)) << "not yet known";
  EXPECT_TRUE(window.covers(0)) << "there is nothing to know";
  EXPECT_TRUE(after(3).covers(3)) << "all that there was";
  EXPECT_FALSE(LoadWindow(2, 2, 100).covers(100));
  EXPECT_TRUE(LoadWindow(2, 2, 100).covers(0));
}

TEST(LoadWindowTest, RoundTripsThroughBytes) {
  for (const uint64_t steps : {0, 1, 4, 7, 8, 30}) {
    const LoadWindow window = after(steps);
    const std::vector<std::byte> bytes = window.encode();
    EXPECT_EQ(bytes.size(), 4u * 28);
    const auto again = LoadWindow::decode(bytes, 2, 2, steps);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, window);
  }
}

TEST(LoadWindowTest, WritesTheOldestStepFirst) {
  const std::vector<std::byte> bytes = after(2).encode();
  for (size_t step = 0; step < 5; ++step) {
    EXPECT_EQ(ckpt::base::load<uint32_t>(bytes.data() + step * 4), 0u);
  }
  EXPECT_EQ(ckpt::base::load<uint32_t>(bytes.data() + 5 * 4), 1u);
  EXPECT_EQ(ckpt::base::load<uint32_t>(bytes.data() + 6 * 4), 2u);
  EXPECT_EQ(ckpt::base::load<uint32_t>(bytes.data() + 28 + 6 * 4), 20u);
}

TEST(LoadWindowTest, SaturatesLargeCounts) {
  LoadWindow window(1, 2);
  window.record(std::vector<int64_t>{int64_t{1} << 40, 3});
  EXPECT_THAT(window.sum(1), ElementsAre(ElementsAre(UINT32_MAX, 3)));
  const auto again = LoadWindow::decode(window.encode(), 1, 2, 1);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->sum(1), window.sum(1));
}

TEST(LoadWindowTest, RefusesInvalidBytes) {
  const std::vector<std::byte> good = after(9).encode();
  EXPECT_EQ(refusal(good, 9), "accepted");
  EXPECT_THAT(refusal({}), HasSubstr("0 bytes; 2 layers of 2 experts have 112"));
  std::vector<std::byte> bytes = good;
  bytes.pop_back();
  EXPECT_THAT(refusal(bytes), HasSubstr("111 bytes"));
  EXPECT_THAT(refusal(good, 6), HasSubstr("counts of more than 6 steps"));

  bytes = good;
  set(bytes, 1, 3, 7);
  EXPECT_THAT(refusal(bytes), HasSubstr("layer 1 of step 97 has 66 tokens, another layer 13"));

  bytes = good;
  for (size_t i = 0; i < 4; ++i) set(bytes, i, 6, 0);
  EXPECT_THAT(refusal(bytes), HasSubstr("step 100 is missing"));
}

TEST(LoadWindowTest, RefusesTooLargeTokenSum) {
  const uint32_t experts = 1 << 15;
  std::vector<std::byte> bytes(size_t{experts} * 28, std::byte{0xff});
  const auto window = LoadWindow::decode(bytes, 1, experts, 7);
  ASSERT_FALSE(window.ok());
  EXPECT_THAT(window.error().message, HasSubstr("layer 0 of step 1 has 140737488322560 tokens"));
}

// Accepted bytes can be summed and encode to the same bytes again.
TEST(LoadWindowTest, AcceptedRandomBytesRoundTrip) {
  std::mt19937 random(3);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = after(random() % 10).encode();
    for (uint32_t i = random() % 4; i > 0; --i) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    }
    if (random() % 50 == 0) bytes.resize(random() % 200);
    const uint64_t last_step = random() % 12;
    const auto window = LoadWindow::decode(bytes, 2, 2, last_step);
    if (!window.ok()) continue;
    ++accepted;
    EXPECT_EQ(window->encode(), bytes);
    EXPECT_LE(window->known_steps(), last_step);
    for (uint64_t step = 0; step < 15; ++step) {
      const LayerLoads sum = window->sum(step);
      EXPECT_TRUE(sum.empty() || sum.size() == 2);
    }
  }
  EXPECT_GT(accepted, 1'000);
}

}  // namespace
}  // namespace moetrain

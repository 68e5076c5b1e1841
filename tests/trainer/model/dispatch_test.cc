// Dispatch: every token reaches every expert it chose, in the promised order.
#include "trainer/parallel/dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <random>

#include "tests/trainer/model/ranks.h"

namespace moetrain {
namespace {

struct DispatchCase {
  const char* name;
  uint32_t ranks;
  uint32_t experts;
  uint32_t top_k;
  std::vector<int64_t> tokens;  // per rank
  bool shuffled;                // placement in no particular order
};

// A row says where it comes from and goes: source rank, token, expert.
constexpr int64_t kWidth = 3;

class DispatchTest : public testing::TestWithParam<DispatchCase> {
 protected:
  ExpertPlacement make_placement(std::mt19937_64& random) const {
    const DispatchCase& c = GetParam();
    ExpertPlacement placement = *static_placement(1, c.experts, c.ranks);
    if (!c.shuffled) return placement;
    std::vector<uint32_t> experts(c.experts);
    for (uint32_t e = 0; e < c.experts; ++e) experts[e] = e;
    std::ranges::shuffle(experts, random);
    for (auto& slots : placement.slots[0]) slots.clear();
    for (const uint32_t expert : experts) placement.slots[0][random() % c.ranks].push_back(expert);
    return placement;
  }

  std::vector<int32_t> make_choice(uint32_t rank) const {
    const DispatchCase& c = GetParam();
    std::mt19937_64 random(kSeed + rank);
    std::vector<int32_t> choice;
    for (int64_t token = 0; token < c.tokens[rank]; ++token) {
      std::vector<int32_t> experts(c.experts);
      for (uint32_t e = 0; e < c.experts; ++e) experts[e] = static_cast<int32_t>(e);
      std::ranges::shuffle(experts, random);
      choice.insert(choice.end(), experts.begin(), experts.begin() + c.top_k);
    }
    return choice;
  }

  // What lies in expert order on a rank: by slot, source rank, token.
  std::vector<float> expected_rows(const ExpertPlacement& placement, uint32_t rank) const {
    const DispatchCase& c = GetParam();
    std::vector<float> rows;
    for (const uint32_t expert : placement.slots[0][rank]) {
      for (uint32_t source = 0; source < c.ranks; ++source) {
        const std::vector<int32_t> choice = make_choice(source);
        for (size_t i = 0; i < choice.size(); ++i) {
          if (choice[i] != static_cast<int32_t>(expert)) continue;
          const size_t token = i / c.top_k;
          rows.insert(rows.end(), {static_cast<float>(source), static_cast<float>(token),
                                   static_cast<float>(expert)});
        }
      }
    }
    return rows;
  }

  static constexpr uint64_t kSeed = 42;
};

TEST_P(DispatchTest, MovesEveryRowThereAndBack) {
  const DispatchCase& c = GetParam();
  std::mt19937_64 random(kSeed);
  const ExpertPlacement placement = make_placement(random);
  ASSERT_TRUE(validate(placement).ok());
  run_ranks(c.ranks, [&](Comm& comm) {
    const std::vector<int32_t> choice = make_choice(comm.rank());
    Dispatch dispatch(cpu_device());
    ASSERT_TRUE(dispatch.plan(comm, placement, 0, c.top_k, choice).ok());
    ASSERT_EQ(dispatch.sent_rows(), static_cast<int64_t>(choice.size()));

    Tensor rows(cpu_device(), Type::kFloat, choice.size() * kWidth);
    const std::vector<int64_t> positions = *dispatch.positions().read<int64_t>();
    for (size_t i = 0; i < choice.size(); ++i) {
      float* row = rows.as<float>() + positions[i] * kWidth;
      const size_t token = i / c.top_k;
      row[0] = static_cast<float>(comm.rank());
      row[1] = static_cast<float>(token);
      row[2] = static_cast<float>(choice[i]);
    }
    Tensor arrived(cpu_device(), Type::kFloat,
                   static_cast<size_t>(dispatch.received_rows() * kWidth));
    std::ranges::fill(arrived.host<float>(), -1.0f);
    ASSERT_TRUE(dispatch.to_experts(comm, kWidth, rows, arrived).ok());
    EXPECT_EQ(*arrived.read<float>(), expected_rows(placement, comm.rank()))
        << "rank " << comm.rank();

    Tensor returned(cpu_device(), Type::kFloat, rows.size());
    std::ranges::fill(returned.host<float>(), -1.0f);
    ASSERT_TRUE(dispatch.to_tokens(comm, kWidth, arrived, returned).ok());
    EXPECT_EQ(*returned.read<float>(), *rows.read<float>()) << "rank " << comm.rank();
  });
}

const DispatchCase kDispatchCases[] = {
    {"one_rank", 1, 4, 2, {9}, false},
    {"two_ranks", 2, 4, 2, {5, 7}, false},
    {"uneven_blocks", 3, 8, 2, {6, 6, 3}, false},
    {"a_rank_without_tokens", 3, 5, 1, {4, 0, 7}, false},
    {"nobody_has_tokens", 2, 4, 2, {0, 0}, false},
    {"every_expert_chosen", 2, 3, 3, {4, 4}, false},
    {"any_placement", 4, 9, 3, {8, 1, 5, 2}, true},
    {"a_rank_without_experts", 4, 4, 2, {3, 3, 3, 3}, true},
};

INSTANTIATE_TEST_SUITE_P(All, DispatchTest, testing::ValuesIn(kDispatchCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace moetrain

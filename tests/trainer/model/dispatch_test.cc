// Dispatch: every token reaches every expert it chose, in the promised order.
#include "trainer/model/dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/trainer/model/ranks.h"
#include "trainer/placement/token_shares.h"

namespace moetrain {
namespace {

struct DispatchCase {
  const char* name;
  uint32_t ranks;
  uint32_t experts;
  uint32_t top_k;
  std::vector<int64_t> tokens;       // per rank
  bool shuffled = false;             // placement in no particular order
  uint32_t replicas = 0;             // slots more than experts, anywhere
  std::vector<uint32_t> nodes = {};  // of ranks; empty: one node
};

// A row says where it comes from and goes: source rank, token, expert.
constexpr int64_t kWidth = 3;

class DispatchTest : public testing::TestWithParam<DispatchCase> {
 protected:
  ComputePlacement make_placement(std::mt19937_64& random) const {
    const DispatchCase& c = GetParam();
    ComputePlacement placement{
        .ranks = c.ranks, .experts = c.experts, .slots = {{}}, .node_of_rank = c.nodes};
    placement.slots[0].resize(c.ranks);
    std::vector<uint32_t> experts(c.experts);
    for (uint32_t e = 0; e < c.experts; ++e) experts[e] = e;
    if (c.shuffled) std::ranges::shuffle(experts, random);
    for (uint32_t i = 0; i < c.experts; ++i) {
      placement.slots[0][c.shuffled ? random() % c.ranks : i * c.ranks / c.experts].push_back(
          experts[i]);
    }
    for (uint32_t i = 0; i < c.replicas; ++i) {
      placement.slots[0][random() % c.ranks].push_back(static_cast<uint32_t>(random() % c.experts));
    }
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

  // The tokens of a source for an expert, in order.
  std::vector<size_t> tokens_for(uint32_t source, uint32_t expert) const {
    const std::vector<int32_t> choice = make_choice(source);
    std::vector<size_t> tokens;
    for (size_t i = 0; i < choice.size(); ++i) {
      if (choice[i] == static_cast<int32_t>(expert)) tokens.push_back(i / GetParam().top_k);
    }
    return tokens;
  }

  struct ExpertShares {
    std::vector<uint32_t> slot_ranks;
    std::vector<int64_t> shares;  // [source][slot]: tokens
  };
  // The model that dispatch must follow: token_shares.h on the tokens of all ranks.
  ExpertShares shares_of(const ComputePlacement& placement, uint32_t expert) const {
    ExpertShares of_expert;
    std::vector<int64_t> counts;
    for (uint32_t source = 0; source < GetParam().ranks; ++source) {
      counts.push_back(static_cast<int64_t>(tokens_for(source, expert).size()));
    }
    const auto slots = slots_of_experts(placement, 0);
    for (const SlotAddress& at : slots[expert]) {
      of_expert.slot_ranks.push_back(at.rank);
    }
    const std::vector<uint32_t>& nodes = GetParam().nodes;
    of_expert.shares = nodes.empty()
                           ? share_tokens(counts, of_expert.slot_ranks, expert)
                           : share_tokens_by_node(counts, of_expert.slot_ranks, nodes, expert);
    return of_expert;
  }

  // [destination]: tokens that a source sends there.
  std::vector<int64_t> expected_sends(const ComputePlacement& placement, uint32_t source) const {
    std::vector<int64_t> sends(GetParam().ranks);
    for (uint32_t expert = 0; expert < GetParam().experts; ++expert) {
      const auto [slot_ranks, shares] = shares_of(placement, expert);
      for (size_t slot = 0; slot < slot_ranks.size(); ++slot) {
        sends[slot_ranks[slot]] += shares[source * slot_ranks.size() + slot];
      }
    }
    return sends;
  }

  // Expected rows of a rank in expert order: by expert, source rank, token. The slots of an expert
  // in order are filled with the source's shares, slot after slot.
  std::vector<float> expected_rows(const ComputePlacement& placement, uint32_t rank) const {
    const uint32_t ranks = GetParam().ranks;
    std::vector<float> rows;
    for (const uint32_t expert : experts_of_rank(placement, 0, rank)) {
      const auto [slot_ranks, shares] = shares_of(placement, expert);
      for (uint32_t source = 0; source < ranks; ++source) {
        const std::vector<size_t> tokens = tokens_for(source, expert);
        size_t next = 0;
        for (size_t slot = 0; slot < slot_ranks.size(); ++slot) {
          for (int64_t i = 0; i < shares[source * slot_ranks.size() + slot]; ++i, ++next) {
            if (slot_ranks[slot] != rank) continue;
            rows.insert(rows.end(),
                        {static_cast<float>(source), static_cast<float>(tokens.at(next)),
                         static_cast<float>(expert)});
          }
        }
        EXPECT_EQ(next, tokens.size());
      }
    }
    return rows;
  }

  static constexpr uint64_t kSeed = 42;
};

TEST_P(DispatchTest, MovesEveryRowThereAndBack) {
  const DispatchCase& c = GetParam();
  std::mt19937_64 random(kSeed);
  const ComputePlacement placement = make_placement(random);
  ASSERT_TRUE(validate(placement).ok());
  run_ranks(c.ranks, [&](Comm& comm) {
    const std::vector<int32_t> choice = make_choice(comm.rank());
    Dispatch dispatch(cpu_device());
    ASSERT_TRUE(dispatch.plan(comm, placement, 0, c.top_k, choice).ok());
    ASSERT_EQ(dispatch.sent_rows(), static_cast<int64_t>(choice.size()));
    const std::span<const int64_t> sent = dispatch.sent_to_ranks();
    EXPECT_EQ(std::vector<int64_t>(sent.begin(), sent.end()),
              expected_sends(placement, comm.rank()));

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
    EXPECT_EQ(dispatch.rank_rows()[comm.rank()], dispatch.received_rows());

    Tensor returned(cpu_device(), Type::kFloat, rows.size());
    std::ranges::fill(returned.host<float>(), -1.0f);
    ASSERT_TRUE(dispatch.to_tokens(comm, kWidth, arrived, returned).ok());
    EXPECT_EQ(*returned.read<float>(), *rows.read<float>()) << "rank " << comm.rank();
  });
}

const DispatchCase kDispatchCases[] = {
    {"one_rank", 1, 4, 2, {9}},
    {"two_ranks", 2, 4, 2, {5, 7}},
    {"uneven_blocks", 3, 8, 2, {6, 6, 3}},
    {"a_rank_without_tokens", 3, 5, 1, {4, 0, 7}},
    {"nobody_has_tokens", 2, 4, 2, {0, 0}},
    {"every_expert_chosen", 2, 3, 3, {4, 4}},
    {"any_placement", 4, 9, 3, {8, 1, 5, 2}, true},
    {"a_rank_without_experts", 4, 4, 2, {3, 3, 3, 3}, true},
    {"replicas", 2, 4, 2, {9, 6}, false, 4},
    {"replicas_on_one_rank", 1, 3, 2, {7}, false, 5},
    {"more_replicas_than_ranks", 3, 2, 1, {11, 0, 4}, true, 10},
    {"replicas_anywhere", 5, 7, 3, {8, 1, 0, 12, 3}, true, 9},
    {"replicas_without_tokens", 2, 3, 1, {0, 0}, false, 3},
    {"replicas_on_two_nodes", 4, 4, 2, {9, 6, 0, 13}, true, 12, {0, 0, 1, 1}},
    {"nodes_without_replicas", 6, 9, 2, {5, 8, 3, 0, 9, 4}, true, 4, {7, 2, 5, 7, 2, 5}},
    {"every_rank_a_node", 5, 4, 1, {12, 3, 8, 0, 7}, true, 11, {0, 1, 2, 3, 4}},
    {"one_node_by_name", 3, 5, 3, {4, 7, 2}, true, 6, {1, 1, 1}},
};

INSTANTIATE_TEST_SUITE_P(All, DispatchTest, testing::ValuesIn(kDispatchCases),
                         [](const auto& test) { return std::string(test.param.name); });

// The same dispatch plans for one placement after another: a group re-plans.
TEST(DispatchReuse, FollowsThePlacement) {
  run_ranks(2, [](Comm& comm) {
    Dispatch dispatch(cpu_device());
    const std::vector<int32_t> choice = {0, 1, 0, 0};
    const ComputePlacement apart{.ranks = 2, .experts = 2, .slots = {{{0}, {1}}}};
    const ComputePlacement both{.ranks = 2, .experts = 2, .slots = {{{0, 1}, {1, 0}}}};
    ASSERT_TRUE(dispatch.plan(comm, apart, 0, 1, choice).ok());
    EXPECT_EQ(dispatch.received_rows(), comm.rank() == 0 ? 6 : 2);
    ASSERT_TRUE(dispatch.plan(comm, both, 0, 1, choice).ok());
    EXPECT_EQ(dispatch.received_rows(), 4);
    EXPECT_EQ(dispatch.expert_rows().size(), 2u);
    ASSERT_TRUE(dispatch.plan(comm, apart, 0, 1, choice).ok());
    EXPECT_EQ(dispatch.received_rows(), comm.rank() == 0 ? 6 : 2);
  });
}

// The same slots on other nodes: the plan before is not used again.
TEST(DispatchReuse, FollowsTheNodes) {
  run_ranks(4, [](Comm& comm) {
    Dispatch dispatch(cpu_device());
    const std::vector<int32_t> choice(comm.rank() == 0 ? 8 : 0, 0);
    ComputePlacement placement{.ranks = 4, .experts = 1, .slots = {{{0}, {0}, {0}, {0}}}};
    ASSERT_TRUE(dispatch.plan(comm, placement, 0, 1, choice).ok());
    EXPECT_EQ(dispatch.received_rows(), 2);
    placement.node_of_rank = {0, 0, 1, 1};
    ASSERT_TRUE(dispatch.plan(comm, placement, 0, 1, choice).ok());
    EXPECT_EQ(dispatch.received_rows(), comm.rank() < 2 ? 4 : 0);
    placement.node_of_rank = {0, 1, 2, 3};
    ASSERT_TRUE(dispatch.plan(comm, placement, 0, 1, choice).ok());
    EXPECT_EQ(dispatch.received_rows(), comm.rank() == 0 ? 8 : 0);
  });
}

}  // namespace
}  // namespace moetrain

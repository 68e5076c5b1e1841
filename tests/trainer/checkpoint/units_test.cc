// Units and plans: pure functions of the model's shape and the placement.
#include "trainer/checkpoint/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "trainer/checkpoint/plan.h"
#include "trainer/checkpoint/registration.h"
#include "trainer/checkpoint/saved_run.h"
#include "trainer/checkpoint/trainer_state.h"

namespace moetrain {
namespace {

ModelConfig shape(uint32_t layers, uint32_t experts) {
  ModelConfig config;
  config.layers = layers;
  config.experts = experts;
  config.hidden = 48;
  return config;
}

TEST(StateUnitsTest, HoldEveryParameterAndBothMomentsOnce) {
  const ModelConfig config = shape(3, 5);
  std::multiset<std::string> tensors;
  for (const StateUnit& unit : state_units(config)) {
    uint64_t next = 0;
    for (const UnitTensor& tensor : unit.tensors) {
      EXPECT_EQ(tensor.offset, next) << unit.name << " " << tensor.name();
      next += tensor.bytes;
      tensors.insert(tensor.name());
    }
    if (!unit.tensors.empty()) {
      EXPECT_EQ(next, unit.bytes) << unit.name;
    }
  }
  std::multiset<std::string> expected;
  std::vector<ParameterSpec> specs = dense_parameters(config);
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (uint32_t expert = 0; expert < 5; ++expert) {
      for (ParameterSpec& spec : expert_parameters(config, layer, expert)) specs.push_back(spec);
    }
  }
  for (const ParameterSpec& spec : specs) {
    for (const char* prefix : {"", "optimizer.m.", "optimizer.v."}) {
      expected.insert(prefix + spec.name);
    }
  }
  EXPECT_EQ(tensors, expected);
}

TEST(StateUnitsTest, UnitNamesMatchContents) {
  std::map<std::string, StateUnit> units;
  for (const StateUnit& unit : state_units(shape(2, 3))) units[unit.name] = unit;
  EXPECT_EQ(units.size(), 1u + 2u + 2u * 2u + 2u * 3u * 2u);
  EXPECT_EQ(state_units(shape(2, 3))[kTrainerUnit].name, "trainer");
  const StateUnit& weights = units.at("layers.1.experts.2.weights");
  EXPECT_EQ(weights.layer, 1u);
  EXPECT_EQ(weights.expert, 2u);
  EXPECT_EQ(weights.part, "weights");
  EXPECT_EQ(weights.tensors.size(), 3u) << "nothing that changes while the expert does not";
  EXPECT_EQ(units.at("layers.1.experts.2.optimizer").bytes, 2 * weights.bytes);
  const auto holds = [&](const char* unit, const char* tensor) {
    for (const UnitTensor& t : units.at(unit).tensors) {
      if (t.name() == tensor) return true;
    }
    return false;
  };
  EXPECT_TRUE(holds("embed", "model.embed_tokens.weight"));
  EXPECT_TRUE(holds("head", "lm_head.weight"));
  EXPECT_TRUE(holds("head", "optimizer.v.model.norm.weight"));
  EXPECT_TRUE(holds("layers.0.attention", "model.layers.0.self_attn.q_proj.weight"));
  EXPECT_TRUE(holds("layers.0.attention", "model.layers.0.input_layernorm.weight"));
  EXPECT_TRUE(holds("layers.1.router", "optimizer.m.model.layers.1.block_sparse_moe.gate.weight"));
}

TEST(StateUnitsTest, RegistrationMatchesUnits) {
  const auto units = state_units(shape(1, 2));
  const auto infos = registration(units);
  ASSERT_EQ(infos.size(), units.size());
  EXPECT_EQ(infos[kTrainerUnit].layer, -1);
  EXPECT_TRUE(infos[kTrainerUnit].tensors.empty());
  for (size_t i = 0; i < units.size(); ++i) {
    EXPECT_EQ(infos[i].bytes, units[i].bytes);
    EXPECT_EQ(infos[i].tensors.size(), units[i].tensors.size());
    EXPECT_EQ(infos[i].expert, units[i].expert ? static_cast<int64_t>(*units[i].expert) : -1);
  }
}

TEST(SavedRunTest, OtherLayoutErrorSuggestsExport) {
  const auto ours = state_units(shape(1, 2));
  std::vector<SavedUnit> saved;
  for (const StateUnit& unit : ours) saved.push_back({unit.name, unit.bytes});
  EXPECT_TRUE(check_layout("tiny", saved, ours).ok());
  std::vector<SavedUnit> stamped = saved;
  for (SavedUnit& unit : stamped) unit.bytes += unit.name.ends_with(".weights") ? 24 : 0;
  const auto refused = check_layout("tiny", stamped, ours);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message,
              testing::AllOf(testing::HasSubstr("unit layers.0.experts.0.weights has"),
                             testing::HasSubstr("ckptctl export tiny@STEP")));
  std::vector<SavedUnit> weights = saved;
  weights.erase(weights.begin());
  EXPECT_THAT(check_layout("tiny", weights, ours).error().message,
              testing::AllOf(testing::HasSubstr("run tiny has no unit `trainer`"),
                             testing::HasSubstr("export --resumable")));
  saved.pop_back();
  EXPECT_THAT(check_layout("tiny", saved, ours).error().message, testing::HasSubstr("units, not"));
  saved[1].name = "embedding";
  EXPECT_THAT(check_layout("tiny", saved, ours).error().message,
              testing::HasSubstr("unit 1 is embedding, not embed"));
}

// Holders of an expert bring equal parts of it, up to where it can be cut.
void expect_equal_parts(const std::vector<StateUnit>& units, const ComputePlacement& placement,
                        const std::vector<ckpt_fragment>& plan) {
  for (const ckpt_fragment& fragment : plan) {
    const StateUnit& unit = units[fragment.unit];
    if (!unit.expert) continue;
    const auto holding = holders_of_experts(placement, *unit.layer)[*unit.expert].size();
    EXPECT_NEAR(static_cast<double>(fragment.length),
                static_cast<double>(unit.bytes) / static_cast<double>(holding),
                static_cast<double>(2 * kShareCutBytes));
  }
}

TEST(SnapshotPlanTest, CoversEveryUnitOnceWithBoundedShares) {
  std::mt19937 random(20260101);
  for (int round = 0; round < 30; ++round) {
    const uint32_t experts = 1 + random() % 9;
    const uint32_t layers = 1 + random() % 3;
    const uint32_t ranks = 1 + random() % experts;
    const auto units = state_units(shape(layers, experts));
    auto placement = static_placement(layers, experts, ranks);
    ASSERT_TRUE(placement.ok());
    if (round % 2 == 1) {  // replicas anywhere, also twice on one rank
      for (LayerSlots& layer : placement->slots) {
        for (uint32_t more = random() % 8; more > 0; --more) {
          layer[random() % ranks].push_back(static_cast<uint32_t>(random() % experts));
        }
      }
    }
    const auto plan = snapshot_plan(units, all_units(units), Ownership::replicated(*placement),
                                    static_cast<DenseSharding>(round % 3));
    std::vector<uint64_t> covered(units.size());
    for (const ckpt_fragment& fragment : plan) {
      EXPECT_EQ(fragment.offset, covered[fragment.unit]) << units[fragment.unit].name;
      EXPECT_GT(fragment.length, 0u);
      EXPECT_LT(fragment.rank, ranks);
      covered[fragment.unit] += fragment.length;
    }
    uint64_t total = 0;
    for (size_t i = 0; i < units.size(); ++i) {
      EXPECT_EQ(covered[i], units[i].bytes) << units[i].name << " round " << round;
    }
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      total += bytes_of_rank(plan, rank);
      most = std::max(most, bytes_of_rank(plan, rank));
    }
    EXPECT_EQ(total, total_bytes(units));
    const ShareSummary summary = bytes_by_rank(plan, ranks);
    EXPECT_EQ(summary.total_bytes, total);
    EXPECT_EQ(summary.max_bytes, most);
    EXPECT_DOUBLE_EQ(summary.mean_bytes, static_cast<double>(total) / ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_LE(bytes_of_rank(plan, rank), largest_share(units, Ownership::replicated(*placement),
                                                         static_cast<DenseSharding>(round % 3)));
    }
    // The rank that contributes an expert also restores it.
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const auto mine = units_of_rank(units, Ownership::replicated(*placement), rank);
      for (const ckpt_fragment& fragment : plan) {
        if (fragment.rank != rank) continue;
        EXPECT_TRUE(std::binary_search(mine.begin(), mine.end(), fragment.unit));
      }
    }
    expect_equal_parts(units, *placement, plan);
  }
}

TEST(SnapshotPlanTest, SharesTheBytesEvenly) {
  const auto units = state_units(shape(2, 4));
  const auto placement = static_placement(2, 4, 4);
  const auto plan = snapshot_plan(units, all_units(units), Ownership::replicated(*placement),
                                  DenseSharding::kBytes);
  const double mean = static_cast<double>(total_bytes(units)) / 4;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_NEAR(static_cast<double>(bytes_of_rank(plan, rank)) / mean, 1.0, 0.01) << rank;
  }
}

TEST(ArenaSizeTest, HoldsThreeSnapshots) {
  for (const uint64_t share : {0ull, 1ull, 300'000ull, 5'000'000ull, 1ull << 30, 7ull << 30}) {
    const ArenaSize size = arena_size(share);
    EXPECT_GE(size.arena_bytes, 3 * share);
    EXPECT_EQ(size.arena_bytes % size.slab_bytes, 0u);
    EXPECT_EQ(size.slab_bytes % 4096, 0u);
    const ArenaSize larger = arena_size(share, /*memory_level=*/true);
    EXPECT_EQ(larger.slab_bytes, size.slab_bytes);
    EXPECT_GE(larger.arena_bytes, size.arena_bytes + share) << "what is held, beside all that";
  }
}

TEST(ArenaSizeTest, SuggestsRestartOnlyIfItNeedsLess) {
  const auto remedy = [](ckpt::ErrorDetail detail, uint64_t restart_bytes) {
    const ckpt::Error error{ckpt::ErrorCode::kResourceExhausted, "in any words", detail};
    return restart_remedy(error, 64u << 20, restart_bytes);
  };
  EXPECT_THAT(remedy(ckpt::ErrorDetail::kNoArenaRoom, 16u << 20),
              testing::AllOf(testing::HasSubstr("each rank asks for 64.0 MiB, room"),
                             testing::EndsWith("--on-loss restart asks for 16.0 MiB per rank")));
  EXPECT_EQ(remedy(ckpt::ErrorDetail::kNoArenaRoom, 64u << 20), "") << "one rank";
  EXPECT_EQ(remedy(ckpt::ErrorDetail::kNone, 16u << 20), "");
}

TEST(RegistrationRefusedTest, RunWithOtherUnitsIsBadUsage) {
  const ckpt::Error refusal = registration_refused(
      "tiny",
      {ckpt::ErrorCode::kFailedPrecondition, "unit a: 2 bytes", ckpt::ErrorDetail::kUnitsDiffer});
  EXPECT_EQ(refusal.code, ckpt::ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      refusal.message,
      "run tiny exists already, with a model of another shape; --resume latest continues that "
      "run, another --run begins a new one (unit a: 2 bytes)");
}

TEST(RegistrationRefusedTest, RunInUseNamesTheJobToStop) {
  const ckpt::Error refusal = registration_refused(
      "tiny",
      {ckpt::ErrorCode::kFailedPrecondition, "session 3 trains it", ckpt::ErrorDetail::kRunInUse});
  EXPECT_EQ(refusal.code, ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_EQ(refusal.message,
            "run tiny is in use by a job with a model of another shape; stop that job, or begin a "
            "new run with another --run (session 3 trains it)");
}

TEST(RegistrationRefusedTest, OtherErrorsStayUnchanged) {
  for (const auto code : {ckpt::ErrorCode::kInvalidArgument, ckpt::ErrorCode::kFailedPrecondition,
                          ckpt::ErrorCode::kUnavailable}) {
    const ckpt::Error refusal = registration_refused("tiny", {code, "run tiny: 0 units"});
    EXPECT_EQ(refusal.code, code);
    EXPECT_EQ(refusal.message, "run tiny: 0 units");
  }
}

TEST(StartRefusedTest, OnlyRunWithCommitsIsReportedAsExisting) {
  const ckpt::Error has_commits{ckpt::ErrorCode::kFailedPrecondition,
                                "run tiny: it has 3 commits; resume from `latest`, or "
                                "start a run of another name",
                                ckpt::ErrorDetail::kRunHasCommits};
  const ckpt::Error refusal = start_refused("tiny", has_commits);
  EXPECT_EQ(refusal.code, ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_EQ(refusal.message,
            "run tiny exists already; --resume latest continues that run, another --run begins "
            "a new one (it has 3 commits)");
  const ckpt::Error other{ckpt::ErrorCode::kFailedPrecondition, "the epoch is being opened"};
  EXPECT_EQ(start_refused("tiny", other).message, other.message);
}

}  // namespace
}  // namespace moetrain

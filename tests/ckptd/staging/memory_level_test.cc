// Which slabs the memory level wants, against a model that asks every unit.
#include "ckptd/staging/memory_level.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace ckptd {
namespace {

using Slab = MemoryLevel::Slab;

class Model {
 public:
  void add(const ckpt::SnapshotKey& snapshot, const std::vector<MemoryLevel::Piece>& pieces) {
    std::map<ckpt::UnitId, MemoryLevel::Version> versions;
    for (const auto& piece : pieces) {
      versions[piece.fragment.unit].snapshot = snapshot;
      versions[piece.fragment.unit].pieces.push_back(piece);
      held_.insert(piece.at);
    }
    for (auto& [unit, version] : versions) {
      if (!newer(unit, snapshot)) units_[unit] = std::move(version);
    }
  }
  void supersede(const ckpt::SnapshotKey& snapshot, const std::vector<ckpt::UnitId>& units) {
    for (const ckpt::UnitId unit : units) {
      if (!newer(unit, snapshot)) units_.erase(unit);
    }
  }
  void evict(const Slab& slab) {
    std::erase_if(units_, [&](const auto& unit) {
      return std::any_of(unit.second.pieces.begin(), unit.second.pieces.end(),
                         [&](const auto& piece) { return piece.at == slab; });
    });
    held_.erase(slab);
  }
  void keep(ckpt::Step most) {
    std::erase_if(units_, [&](const auto& unit) { return unit.second.snapshot.step > most; });
  }
  // Held slabs that no version uses: returns them, and ends their holds.
  std::set<Slab> unwanted() {
    std::set<Slab> left = held_;
    for (const auto& [unit, version] : units_) {
      for (const auto& piece : version.pieces) left.erase(piece.at);
    }
    for (const Slab& slab : left) held_.erase(slab);
    return left;
  }
  const std::map<ckpt::UnitId, MemoryLevel::Version>& units() const { return units_; }
  const std::set<Slab>& held() const { return held_; }

 private:
  bool newer(ckpt::UnitId unit, const ckpt::SnapshotKey& than) const {
    const auto known = units_.find(unit);
    if (known == units_.end()) return false;
    const ckpt::SnapshotKey& have = known->second.snapshot;
    return std::pair(have.lineage, have.step) > std::pair(than.lineage, than.step);
  }

  std::map<ckpt::UnitId, MemoryLevel::Version> units_;
  std::set<Slab> held_;
};

TEST(MemoryLevelTest, WantsSlabsThatHoldNewestVersions) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 generator(seed);
    const auto draw = [&](uint32_t below) { return static_cast<uint32_t>(generator() % below); };
    MemoryLevel level;
    Model model;
    uint32_t next_slab = 0;
    for (ckpt::Step step = 1; step < 40; ++step) {
      // Commits of concurrent snapshots may come in another order than their steps.
      const ckpt::SnapshotKey key{.run = 7,
                                  .lineage = static_cast<ckpt::LineageId>(1 + step / 20),
                                  .epoch = 1,
                                  .step = step + draw(3),
                                  .attempt = 0};
      std::vector<Slab> returned;
      const uint32_t kind = draw(8);
      if (kind < 5) {
        std::vector<MemoryLevel::Piece> pieces;
        for (ckpt::UnitId unit = 0; unit < 5; ++unit) {
          if (draw(2) == 0) continue;
          for (uint64_t part = 0; part < 1 + draw(2); ++part) {
            const Slab at{1 + draw(2), next_slab + draw(3)};
            pieces.push_back({at, {.unit = unit, .offset = part, .length = 1}});
          }
        }
        next_slab += 3;
        returned = level.add(key, pieces);
        model.add(key, pieces);
      } else if (kind == 5) {
        const std::vector<ckpt::UnitId> units = {draw(5), draw(5)};
        returned = level.supersede(key, units);
        model.supersede(key, units);
      } else if (kind == 6 && !model.held().empty()) {
        const Slab oldest = *model.held().begin();
        returned = level.evict(oldest);
        model.evict(oldest);
        EXPECT_FALSE(level.wants(oldest));
      } else if (kind == 7) {
        returned = level.keep(7, [&](const auto& snapshot) { return snapshot.step <= step - 1; });
        model.keep(step - 1);
        EXPECT_TRUE(level.keep(8, [](const auto&) { return false; }).empty()) << "another run";
      }
      const std::set<Slab> unwanted(returned.begin(), returned.end());
      EXPECT_EQ(unwanted.size(), returned.size()) << "each once";
      EXPECT_EQ(unwanted, model.unwanted());
      EXPECT_EQ(level.versions(), model.units().size());
      for (const auto& [unit, version] : model.units()) {
        const MemoryLevel::Version* known = level.find(7, unit);
        ASSERT_NE(known, nullptr);
        EXPECT_EQ(known->snapshot, version.snapshot);
        EXPECT_EQ(known->pieces.size(), version.pieces.size());
      }
    }
  }
}

}  // namespace
}  // namespace ckptd

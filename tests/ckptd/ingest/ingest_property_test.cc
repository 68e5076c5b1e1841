// Random histories of snapshots against a model of a few lines: whatever the order of events, a
// snapshot commits if and only if every byte of every unit was sealed exactly once and written.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ckptd/ingest/ingest.h"

namespace ckptd {
namespace {

using ckpt::SnapshotKey;
using ckpt::UnitRange;

struct Piece {
  ckpt::Rank rank;
  UnitRange range;
};

class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {}

  void run() {
    make_units();
    make_plan();
    Ingest ingest;
    for (ckpt::Rank rank = 0; rank < ranks_; ++rank) play_begin(ingest, rank);
    std::shuffle(pieces_.begin(), pieces_.end(), random_);
    size_t pending = 0;
    const bool lose_one = chance(0.2);
    const size_t loss_at = pick(pieces_.size());
    for (size_t i = 0; i < pieces_.size() && !failed_; ++i) {
      if (lose_one && i == loss_at) lose(ingest, pieces_[i].rank);
      if (failed_) break;
      const Piece& piece = pieces_[i];
      note(ingest.sealed(key_, piece.rank, {fragment(piece.range)}));
      ++pending;
      if (failed_) break;
      while (pending > 0 && chance(0.5)) {
        --pending;
        note(Ingest::Outcome{{}, ingest.written(key_, {})});
      }
      ASSERT_EQ(committed_, pending == 0 && i + 1 == pieces_.size());
      ASSERT_EQ(staged_, i + 1 == pieces_.size());
    }
    for (; pending > 0; --pending) note(Ingest::Outcome{{}, ingest.written(key_, {})});
    ASSERT_EQ(committed_, !failed_);
    ASSERT_EQ(failed_, lose_one) << "nothing but a loss may fail it";
    if (committed_) {
      const auto late = ingest.sealed(key_, pieces_[0].rank, {fragment(pieces_[0].range)});
      EXPECT_FALSE(late.status.ok());
      EXPECT_TRUE(late.actions.empty()) << "its record may be durable already";
      EXPECT_TRUE(ingest.committed(key_, {}).empty());
    }
    EXPECT_EQ(ingest.open_count(), 0u);
  }

 private:
  size_t pick(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  static ckpt::ExtentFragment fragment(const UnitRange& range) {
    return {.unit = range.unit, .offset = range.offset, .length = range.length};
  }

  void make_units() {
    units_.resize(1 + pick(5));
    for (size_t i = 0; i < units_.size(); ++i) {
      units_[i].name = fmt::format("unit.{}", i);
      units_[i].bytes = 1 + pick(200);
    }
  }
  // Cuts every unit at random places, gives the parts to random ranks, and cuts each again into the
  // pieces that will be sealed.
  void make_plan() {
    ranks_ = static_cast<uint32_t>(1 + pick(4));
    declared_.resize(ranks_);
    for (ckpt::UnitId unit = 0; unit < units_.size(); ++unit) {
      plan_.units.push_back(unit);
      for (const UnitRange& range : cut({unit, 0, units_[unit].bytes})) {
        const auto rank = static_cast<ckpt::Rank>(pick(ranks_));
        declared_[rank].push_back(range);
        plan_.fragments.push_back({rank, range});
        for (const UnitRange& piece : cut(range)) pieces_.push_back({rank, piece});
      }
    }
  }
  std::vector<UnitRange> cut(const UnitRange& range) {
    std::vector<UnitRange> parts;
    uint64_t at = 0;
    while (at < range.length) {
      const uint64_t length = 1 + pick(range.length - at);
      parts.push_back({range.unit, range.offset + at, length});
      at += length;
    }
    return parts;
  }
  void play_begin(Ingest& ingest, ckpt::Rank rank) {
    note(ingest.begin({.snapshot = key_,
                       .run_name = "random",
                       .rank = rank,
                       .group_size = ranks_,
                       .plan = plan_hash(plan_),
                       .units = plan_.units,
                       .fragments = declared_[rank],
                       .metrics = {},
                       .deadline = Time(1)},
                      std::make_shared<const std::vector<ckpt::UnitSpec>>(units_)));
  }
  // The rank of a piece that is still to come: it cannot have sealed everything.
  void lose(Ingest& ingest, ckpt::Rank rank) {
    note(Ingest::Outcome{{}, ingest.member_gone(key_.run, key_.epoch, rank, "drawn by lot")});
    EXPECT_TRUE(failed_);
  }
  void note(const Ingest::Outcome& outcome) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error().message;
    for (const Ingest::Action& action : outcome.actions) {
      if (std::holds_alternative<Ingest::StagedAction>(action)) {
        EXPECT_FALSE(std::exchange(staged_, true));
      } else if (std::holds_alternative<Ingest::CommitAction>(action)) {
        EXPECT_FALSE(std::exchange(committed_, true));
      } else {
        EXPECT_FALSE(std::exchange(failed_, true));
      }
    }
  }

  std::mt19937_64 random_;
  const SnapshotKey key_{.run = 1, .lineage = 2, .epoch = 3, .step = 4, .attempt = 5};
  std::vector<ckpt::UnitSpec> units_;
  ckpt::Plan plan_;
  uint32_t ranks_ = 1;
  std::vector<std::vector<UnitRange>> declared_;
  std::vector<Piece> pieces_;
  bool staged_ = false;
  bool committed_ = false;
  bool failed_ = false;
};

TEST(IngestProperty, CommitsExactlyWhatIsComplete) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    History(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace ckptd

// Pruning of random histories with lineages, partial snapshots, damage, tags and pins. With any
// rules, kept views are unchanged, and exactly the blocks that no view needs are dead.
#include <gtest/gtest.h>

#include "ckptd/retention/prune.h"
#include "tests/ckptd/catalog/history.h"

namespace ckptd {
namespace {

// A request whose clock is not behind the commits.
PruneRequest request(const ckpt::KeepRules& rules) {
  return {.run = kTestRun, .rules = rules, .now_ns = UINT64_MAX};
}

// A catalog, its records, and random changes of both.
class PruneHistory {
 public:
  PruneHistory(uint64_t seed, size_t events)
      : random_(seed), history_(HistoryMaker(seed).make(events)), catalog_(make_memory_store()) {
    for (const fb::RecordT& record : history_.records) append(record);
  }

  void append(const fb::RecordT& record) {
    const Status applied = catalog_.apply(catalog_.applied_sequence() + 1, record);
    ASSERT_TRUE(applied.ok()) << applied.error().message;
    records_.push_back(record);
  }
  uint64_t draw(uint64_t bound) { return random_() % bound; }

  void pin_some() {
    for (const CommitInfo& commit : catalog_.commits(kTestRun)) {
      if (commit.deleted || draw(8) != 0) continue;
      fb::PinnedT pinned;
      pinned.run = kTestRun;
      pinned.lineage = commit.snapshot.lineage;
      pinned.step = commit.snapshot.step;
      append(make_record(std::move(pinned)));
    }
  }
  ckpt::KeepRules rules() {
    ckpt::KeepRules rules;
    if (draw(2) == 0) rules.last = static_cast<uint32_t>(1 + draw(4));
    if (draw(3) == 0) rules.every_steps = 1 + draw(20);
    if (draw(3) == 0) rules.best = {{"loss", static_cast<uint32_t>(1 + draw(3)), draw(2) == 0}};
    if (draw(3) == 0) rules.tags = {"tag1", "tag2"};
    if (draw(4) == 0) rules.within = std::chrono::seconds(1 + draw(20));
    if (rules.empty()) rules.hourly = 1;
    const auto plan = plan_prune(catalog_, request(rules));
    if (!plan.ok()) {
      // The other rules match a commit whenever there is one.
      EXPECT_TRUE(rules.last == 0 && rules.every_steps == 0 && rules.hourly == 0 &&
                  rules.within.count() == 0)
          << plan.error().message;
      EXPECT_EQ(plan.error().code, ckpt::ErrorCode::kFailedPrecondition);
      rules.last = 1;
    }
    return rules;
  }
  PrunePlan plan(const ckpt::KeepRules& rules) {
    auto plan = plan_prune(catalog_, request(rules));
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return plan.ok() ? std::move(*plan) : PrunePlan();
  }
  void execute(const PrunePlan& plan) {
    for (const PrunePlan::Removed& removed : plan.removed) {
      for (const std::string& tag : removed.tags) append(untagged(tag));
      fb::DeletedT deletion;
      deletion.run = kTestRun;
      deletion.lineage = removed.point.lineage;
      deletion.step = removed.point.step;
      deletion.reason = removed.reason;
      deletion.kept = removed.kept_units;
      deletion.kept_tokens = removed.kept_tokens;
      append(make_record(std::move(deletion)));
    }
  }

  // A view as text: each unit's version with its places, and the token counts.
  std::string view(ViewPoint point) const {
    std::string text = fmt::format("complete {}\n", catalog_.complete(kTestRun, point));
    const auto units = catalog_.units(kTestRun).value();
    const auto sums = catalog_.newest_sums(kTestRun, point);
    const auto tokens = catalog_.newest_expert_tokens(kTestRun, point);
    for (ckpt::UnitId unit = 0; unit < units->size(); ++unit) {
      const auto version = catalog_.newest_version(kTestRun, unit, point, std::nullopt);
      if (!version) continue;
      text += fmt::format("{} {}@{} {:08x} {:08x}", unit, version->snapshot.lineage,
                          version->snapshot.step, version->crc32c, sums[unit]->crc32c);
      for (const FragmentPlace& place : version->fragments) {
        text += fmt::format(" {}:{}+{}", place.segment, place.payload_offset, place.length);
        if (!place.base) continue;
        text += fmt::format(" to {}:{}", place.base->segment, place.base->payload_offset);
      }
      const ViewPoint commit{version->snapshot.lineage, version->snapshot.step};
      for (const auto& count : catalog_.expert_tokens(kTestRun, commit)) {
        text += fmt::format(" t{}", count.tokens);
      }
      text += "\n";
    }
    if (tokens)
      text += fmt::format("tokens of {}@{}\n", tokens->commit.lineage, tokens->commit.step);
    return text;
  }
  std::map<ViewPoint, std::string> views(const std::vector<PrunePlan::Kept>& kept) const {
    std::map<ViewPoint, std::string> texts;
    for (const PrunePlan::Kept& one : kept) texts[one.point] = view(one.point);
    const ckpt::LineageId current = catalog_.run(kTestRun)->current_lineage;
    texts[{current, ~ckpt::Step{0}}] = view({current, ~ckpt::Step{0}});
    return texts;
  }

  // Blocks by segment that commits and their kept units hold, looked up unit by unit.
  std::set<std::pair<ckpt::SegmentId, uint64_t>> live_blocks() const {
    std::set<std::pair<ckpt::SegmentId, uint64_t>> blocks;
    const auto add = [&](ckpt::SegmentId segment, uint64_t begin, uint64_t end) {
      for (uint64_t at = begin / 4096; at * 4096 < end; ++at) blocks.emplace(segment, at);
    };
    for (const CommitInfo& commit : catalog_.commits(kTestRun)) {
      const auto record = catalog_.record(kTestRun, commit.snapshot.lineage, commit.snapshot.step);
      if (!record) continue;
      for (const auto& extent : record->extents) {
        const uint64_t payload = extent->offset + extent->header_bytes;
        const bool part = commit.deleted || extent->lineage != 0;
        add(extent->segment, extent->offset, part ? payload : payload + extent->payload_bytes);
      }
      const auto add_place = [&](uint32_t number, uint64_t payload_offset, uint64_t bytes) {
        const auto& extent = *record->extents[number];
        const uint64_t begin = extent.offset + extent.header_bytes + payload_offset;
        add(extent.segment, begin, begin + bytes);
      };
      for (const CommitPiece& piece : pieces_of(*record)) {
        add_place(piece.fragment.extent(), piece.fragment.payload_offset(), piece.stored_bytes());
        if (!piece.base) continue;
        add_place(piece.base->extent(), piece.base->payload_offset(), piece.base_bytes());
      }
    }
    return blocks;
  }
  // Every block that any commit has held so far.
  std::set<std::pair<ckpt::SegmentId, uint64_t>> written_blocks() const {
    std::set<std::pair<ckpt::SegmentId, uint64_t>> blocks;
    for (const fb::RecordT& record : records_) {
      const auto* commit = record.body.AsCommitted();
      if (commit == nullptr) continue;
      for (const auto& extent : commit->extents) {
        const uint64_t end = extent->offset + extent->header_bytes + extent->payload_bytes;
        for (uint64_t at = extent->offset / 4096; at * 4096 < end; ++at) {
          blocks.emplace(extent->segment, at);
        }
      }
    }
    return blocks;
  }
  std::set<std::pair<ckpt::SegmentId, uint64_t>> dead_blocks() const {
    std::set<std::pair<ckpt::SegmentId, uint64_t>> blocks;
    for (const DeadSpace& dead : catalog_.dead_space(kTestRun)) {
      for (const SpaceRange& range : dead.ranges) {
        EXPECT_EQ(range.offset % 4096 + range.bytes % 4096, 0u);
        for (uint64_t at = 0; at < range.bytes; at += 4096) {
          const bool first = blocks.emplace(range.segment, (range.offset + at) / 4096).second;
          EXPECT_TRUE(first) << "freed twice";
        }
      }
    }
    return blocks;
  }
  size_t shared_extents() const {
    size_t shared = 0;
    for (const fb::RecordT& record : records_) {
      const auto* commit = record.body.AsCommitted();
      if (commit == nullptr) continue;
      shared += static_cast<size_t>(std::ranges::count_if(
          commit->extents, [](const auto& extent) { return extent->lineage != 0; }));
    }
    return shared;
  }
  size_t deltas() const {
    size_t deltas = 0;
    for (const fb::RecordT& record : records_) {
      const auto* commit = record.body.AsCommitted();
      if (commit != nullptr) deltas += commit->bases.size();
    }
    return deltas;
  }
  const Catalog& catalog() const { return catalog_; }
  const std::vector<fb::RecordT>& records() const { return records_; }

 private:
  std::mt19937_64 random_;
  RecordedHistory history_;
  Catalog catalog_;
  std::vector<fb::RecordT> records_;
};

uint64_t base_seed() {
  return static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed()) * 1000;
}

void expect_space_adds_up(const PruneHistory& history) {
  const auto live = history.live_blocks();
  const auto dead = history.dead_blocks();
  std::set<std::pair<ckpt::SegmentId, uint64_t>> all = live;
  for (const auto& block : dead) ASSERT_FALSE(live.contains(block)) << "a live block is dead";
  all.insert(dead.begin(), dead.end());
  EXPECT_EQ(all, history.written_blocks());
  for (const auto& [segment, block] : history.written_blocks()) {
    const bool any = std::any_of(live.begin(), live.end(), [segment = segment](const auto& one) {
      return one.first == segment;
    });
    EXPECT_EQ(history.catalog().live_extents(segment).value() > 0, any) << segment;
  }
}

TEST(PruneProperty, KeptViewsAreUnchanged) {
  size_t removed = 0;
  size_t rests = 0;
  size_t shared = 0;
  size_t deltas = 0;
  for (uint64_t seed = base_seed(); seed < base_seed() + 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PruneHistory history(seed, 50);
    shared += history.shared_extents();
    deltas += history.deltas();
    history.pin_some();
    const auto latest = history.catalog().latest_complete(kTestRun, 0);
    const ckpt::KeepRules rules = history.rules();
    const PrunePlan plan = history.plan(rules);
    const auto before = history.views(plan.kept);
    history.execute(plan);
    ASSERT_EQ(history.views(plan.kept), before);
    EXPECT_EQ(history.catalog().latest_complete(kTestRun, 0), latest);
    for (const ViewPoint& pin : history.catalog().pins(kTestRun)) {
      EXPECT_FALSE(history.catalog().commit(kTestRun, pin.lineage, pin.step)->deleted);
    }
    for (const auto& [tag, point] : history.catalog().tags(kTestRun)) {
      const auto commit = history.catalog().commit(kTestRun, point.lineage, point.step);
      const bool made_so_before =
          std::none_of(plan.removed.begin(), plan.removed.end(),
                       [&, p = point](const auto& one) { return one.point == p && !one.again; });
      EXPECT_TRUE(!commit->deleted || made_so_before) << "tag " << tag;
    }
    expect_space_adds_up(history);
    EXPECT_TRUE(history.plan(rules).removed.empty()) << "a second time there is nothing to do";
    removed += plan.removed.size();
    for (const auto& one : plan.removed) rests += one.kept_units.empty() ? 0 : 1;
  }
  EXPECT_GT(removed, 300u);
  EXPECT_GT(rests, 30u) << "histories in which nothing had to stay would prove little";
  EXPECT_GT(shared, 100u) << "nor would such as share nothing";
  EXPECT_GT(deltas, 1'000u);
}

// Repeated prunes with other rules: a later prune may remove what an earlier one kept.
TEST(PruneProperty, RebuildAfterRepeatedPrunesEqualsCatalog) {
  for (uint64_t seed = base_seed() + 500; seed < base_seed() + 520; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PruneHistory history(seed, 60);
    for (int round = 0; round < 4; ++round) {
      const PrunePlan plan = history.plan(history.rules());
      const auto before = history.views(plan.kept);
      history.execute(plan);
      ASSERT_EQ(history.views(plan.kept), before);
    }
    expect_space_adds_up(history);
    // Half of the dead space is reclaimed.
    fb::SpaceFreedT freed;
    freed.run = kTestRun;
    for (const DeadSpace& dead : history.catalog().dead_space(kTestRun)) {
      if (history.draw(2) == 0) freed.records.push_back(dead.sequence);
    }
    history.append(make_record(freed));
    for (const DeadSpace& dead : history.catalog().dead_space(kTestRun)) {
      EXPECT_EQ(std::count(freed.records.begin(), freed.records.end(), dead.sequence), 0);
    }
    Catalog rebuilt(make_memory_store());
    apply_all(rebuilt, history.records());
    EXPECT_EQ(rebuilt.dead_space(kTestRun), history.catalog().dead_space(kTestRun));
    EXPECT_EQ(rebuilt.commits(kTestRun), history.catalog().commits(kTestRun));
    EXPECT_EQ(rebuilt.tags(kTestRun), history.catalog().tags(kTestRun));
  }
}

// After any history, a removed run leaves only dead space and the record of its removal.
TEST(PruneProperty, RemovedRunLeavesOnlyDeadSpace) {
  for (uint64_t seed = base_seed() + 700; seed < base_seed() + 720; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PruneHistory history(seed, 40);
    history.pin_some();
    history.execute(history.plan(history.rules()));
    const auto firm = plan_removal(history.catalog(), {.run = kTestRun, .reason = "gone"});
    const bool protects =
        !history.catalog().tags(kTestRun).empty() || !history.catalog().pins(kTestRun).empty();
    EXPECT_EQ(firm.ok(), !protects);
    const auto plan =
        plan_removal(history.catalog(), {.run = kTestRun, .reason = "gone", .force = true});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const uint64_t commits = history.catalog().run(kTestRun)->commits;
    EXPECT_EQ(std::count_if(plan->removed.begin(), plan->removed.end(),
                            [](const auto& removed) { return !removed.again; }),
              static_cast<std::ptrdiff_t>(commits));
    fb::RunRemovedT removed;
    removed.run = kTestRun;
    removed.time_ns = 99;
    removed.reason = "gone";
    removed.commits = commits;
    history.append(make_record(removed));
    EXPECT_EQ(history.dead_blocks(), history.written_blocks());
    for (const auto& [segment, block] : history.written_blocks()) {
      EXPECT_EQ(history.catalog().live_extents(segment).value(), 0u) << segment;
    }
    EXPECT_TRUE(history.catalog().runs().empty());
    EXPECT_TRUE(history.catalog().commits(kTestRun).empty());
    EXPECT_EQ(history.catalog().removed_runs().front().removed_reason, "gone");
    EXPECT_EQ(history.catalog().removed_runs().front().commits, commits);
    Catalog rebuilt(make_memory_store());
    apply_all(rebuilt, history.records());
    EXPECT_EQ(rebuilt.dead_space(kTestRun), history.catalog().dead_space(kTestRun));
    EXPECT_TRUE(rebuilt.runs().empty());
  }
}

// Overlapping snapshots of a lineage may be recorded out of order.
TEST(PrunePlan, LastKeepsHighestStepOfLineage) {
  Catalog catalog(make_memory_store());
  const auto units = test_units(1, 1);
  std::vector<fb::RecordT> records = {store_opened(), run_created(), units_registered(units),
                                      lineage_opened(1, 0, 0)};
  for (const ckpt::Step step : {5, 20, 10}) {
    records.push_back(
        committed({.point = {1, step}, .units = all_units(units), .full = true}, units));
  }
  apply_all(catalog, records);
  const auto plan = plan_prune(catalog, request({.last = 1}));
  ASSERT_TRUE(plan.ok() && plan->kept.size() == 1);
  EXPECT_EQ(plan->kept[0].point, (ViewPoint{1, 20}));
  EXPECT_EQ(plan->kept[0].reasons, (std::vector<std::string>{"newest complete view", "last"}));
  EXPECT_EQ(plan->removed.size(), 2u);
}

// Neither a prune nor a removal deletes a commit that another run was started from.
TEST(PrunePlan, KeepsCommitThatAnotherRunStartedFrom) {
  Catalog catalog(make_memory_store());
  const auto units = test_units(1, 1);
  std::vector<fb::RecordT> records = {store_opened(), run_created(), units_registered(units),
                                      lineage_opened(1, 0, 0)};
  for (const ckpt::Step step : {5, 10, 15}) {
    records.push_back(
        committed({.point = {1, step}, .units = all_units(units), .full = true}, units));
  }
  fb::RunCreatedT child;
  child.run = kTestRun + 1;
  child.name = "child";
  child.parent_run = kTestRun;
  child.parent_lineage = 1;
  child.parent_step = 5;
  records.push_back(make_record(std::move(child)));
  apply_all(catalog, records);
  ckpt::KeepRules last;
  last.last = 1;
  const auto pruned = plan_prune(catalog, request(last));
  ASSERT_TRUE(pruned.ok());
  ASSERT_EQ(pruned->removed.size(), 1u);
  EXPECT_EQ(pruned->removed[0].point.step, 10u);
  const auto refusal = [&](std::optional<ViewPoint> point) {
    const auto plan =
        plan_removal(catalog, {.run = kTestRun, .point = point, .reason = "gone", .force = true});
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_NE(refusal(ViewPoint{1, 5}).find("run child was started from it"), std::string::npos);
  EXPECT_NE(refusal(std::nullopt).find("run child was started from tiny~1@5"), std::string::npos);
  EXPECT_EQ(refusal(ViewPoint{1, 10}), "");
}

TEST(PrunePlan, NeedsARuleThatKeepsSomething) {
  PruneHistory history(1, 10);
  const auto plan = plan_prune(history.catalog(), request({}));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_NE(plan.error().message.find("set rules first, as in `ckptctl keep "), std::string::npos);
  const std::vector<std::pair<ckpt::KeepRules, const char*>> slips = {
      {{.tags = {"of-nobody"}}, "match none of its"},
      {{.last = 3, .best = {{"lsos", 2, false}}}, "has the metric lsos"}};
  for (const auto& [rules, says] : slips) {
    const auto none = plan_prune(history.catalog(), request(rules));
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ckpt::ErrorCode::kFailedPrecondition);
    EXPECT_NE(none.error().message.find(says), std::string::npos);
    const auto checked = check_rules(history.catalog(), kTestRun, rules);
    ASSERT_FALSE(checked.ok());
    const auto why = [](const ckpt::Error& error) {
      return error.message.substr(0, error.message.rfind(';'));
    };
    EXPECT_EQ(why(checked.error()), why(none.error())) << "keep refuses what prune refuses";
  }
  EXPECT_EQ(plan_prune(history.catalog(), {.run = 99}).error().code, ckpt::ErrorCode::kNotFound);
}

}  // namespace
}  // namespace ckptd

// Random histories, and the naive model of them that the catalog must agree with.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "tests/ckptd/catalog/history_model.h"
#include "tests/ckptd/catalog/records.h"

namespace ckptd {

struct RecordedHistory {
  HistoryModel model;
  std::vector<fb::RecordT> records;
};

class HistoryMaker {
 public:
  explicit HistoryMaker(uint64_t seed) : random_(seed) {}

  RecordedHistory make(size_t events) {
    add(store_opened());
    add(run_created());
    add_units(test_units(1, 2));
    for (int i = 0; i < 2; ++i) {  // units of several blocks
      ckpt::UnitSpec large;
      large.name = fmt::format("large.{}", i);
      large.bytes = 5'000 + draw(10'000);
      add_units({large});
    }
    add_lineage(0, 0);
    for (size_t i = 0; i < events; ++i) add_event();
    return std::move(history_);
  }

 private:
  HistoryModel& model() { return history_.model; }
  uint64_t draw(uint64_t bound) { return random_() % bound; }
  void add(fb::RecordT record) { history_.records.push_back(std::move(record)); }

  void add_event() {
    const uint64_t kind = draw(100);
    if (kind < 60) return add_commit();
    if (kind < 70) return add_lineage(any_lineage(), draw(40));
    if (kind < 78) return damage();
    if (kind < 86) return remove();
    if (kind < 93) return tag();
    if (kind < 95) return add(epoch_opened(draw(100)));
    if (kind < 97) return add(snapshot_refused({any_lineage(), draw(40)}, any_alarms()));
    if (model().base == model().units.size() && draw(2) == 0) return add_units({late_unit()});
    grow_by_ = 1 + draw(3);
    add_commit();
  }
  ckpt::UnitSpec late_unit() {
    ckpt::UnitSpec late;
    late.name = fmt::format("late.{}", model().units.size());
    late.bytes = 1 + draw(50);
    return late;
  }
  // The run grows by units of this commit.
  void grow(CommitSpec& spec) {
    for (; grow_by_ > 0; --grow_by_) {
      const auto id = static_cast<ckpt::UnitId>(model().units.size());
      model().units.push_back(late_unit());
      spec.units.push_back(id);
      spec.grown.push_back(id);
    }
  }

  std::vector<fb::Alarm> any_alarms() {
    std::vector<fb::Alarm> alarms;
    for (uint64_t i = draw(4); i > 0; --i) {
      alarms.emplace_back(static_cast<ckpt::UnitId>(draw(model().units.size())),
                          static_cast<fb::AlarmKind>(draw(3)), draw(40));
    }
    return alarms;
  }
  ckpt::LineageId any_lineage() {
    return static_cast<ckpt::LineageId>(1 + draw(model().lineages.size()));
  }
  void add_units(const std::vector<ckpt::UnitSpec>& units) {
    model().base += units.size();
    add(units_registered(units, static_cast<ckpt::UnitId>(model().units.size())));
    model().units.insert(model().units.end(), units.begin(), units.end());
  }
  void add_lineage(ckpt::LineageId parent, ckpt::Step fork_step) {
    const auto id = static_cast<ckpt::LineageId>(model().lineages.size() + 1);
    add(lineage_opened(id, parent, fork_step));
    model().lineages[id] = {id, parent, fork_step};
  }

  void add_commit() {
    CommitSpec spec;
    spec.point = {any_lineage(), draw(40)};
    auto& commits = model().commits;
    const auto same = std::find_if(commits.begin(), commits.end(),
                                   [&](const auto& commit) { return commit.point == spec.point; });
    // Only damaged or deleted steps are committed again.
    if (same != commits.end() && !same->damaged && !same->deleted) return;
    if (same != commits.end()) commits.erase(same);
    // No two commits lie in the same place.
    spec.place = kPlacesPerCommit * (1 + history_.records.size());
    spec.full = draw(3) == 0;
    spec.pieces = 1 + draw(4);
    spec.epoch = 1 + draw(5);
    spec.attempt = static_cast<uint32_t>(draw(3));
    for (ckpt::UnitId unit = 0; unit < model().units.size(); ++unit) {
      if (spec.full || draw(3) == 0) spec.units.push_back(unit);
    }
    if (spec.units.empty()) spec.units.push_back(0);
    grow(spec);
    if (draw(2) == 0) spec.tokens = {{0, 0, draw(1000)}, {0, 1, 500 + draw(500)}};
    if (!spec.tokens.empty() && draw(2) == 0) spec.lost = {{0, 1, 1 + draw(500)}};
    spec.alarms = any_alarms();
    fb::RecordT record = committed(spec, model().units);
    make_deltas(*record.body.AsCommitted());
    share_some(*record.body.AsCommitted());
    written_[spec.point] = *record.body.AsCommitted();
    add(std::move(record));
    commits.push_back({spec.point, {spec.units.begin(), spec.units.end()}, spec.full});
  }

  // Turns fragments of some units into deltas against the equal range of the newest earlier
  // version. If that range is a delta itself, both use the same base.
  void make_deltas(fb::CommittedT& commit) {
    std::vector<CommitPiece> pieces = pieces_of(commit);
    std::set<ckpt::UnitId> units;
    for (ckpt::UnitId unit = 0; unit < model().units.size(); ++unit) {
      if (draw(2) == 0) units.insert(unit);
    }
    for (CommitPiece& piece : pieces) {
      const fb::Fragment& own = piece.fragment;
      const auto newest = model().newest(own.unit(), {commit.lineage, ~ckpt::Step{0}});
      if (!newest || !units.contains(own.unit()) || own.length() < 2) continue;
      const fb::CommittedT& other = written_.at(*newest);
      for (const CommitPiece& before : pieces_of(other)) {
        const fb::Fragment& there = before.fragment;
        const bool alike = there.unit() == own.unit() && there.offset() == own.offset() &&
                           there.length() == own.length();
        if (!alike) continue;
        const uint32_t from = before.base ? before.base->extent() : there.extent();
        const uint32_t extent = shared_extent(commit, other, *other.extents[from]);
        piece.base = before.base
                         ? in_extent(*before.base, extent, before.base->deltas() + 1)
                         : fb::Base(0, extent, there.payload_offset(), there.crc32c(), 0, 0, 0, 1);
        piece.encoded = fb::Encoded(0, 0xc0de, own.length() / 2);
        piece.fragment = {own.unit(),
                          own.extent(),
                          own.offset(),
                          own.length(),
                          own.payload_offset(),
                          own.crc32c(),
                          static_cast<uint32_t>(ckpt::Codec::kDeltaZstd)};
      }
    }
    put_pieces(commit, pieces);
  }

  // Some units share all extents of their newest earlier version (dedup).
  void share_some(fb::CommittedT& commit) {
    std::vector<CommitPiece> pieces = pieces_of(commit);
    for (ckpt::UnitId unit = 0; unit < model().units.size(); ++unit) {
      const auto is_of_unit = [&](const auto& piece) { return piece.fragment.unit() == unit; };
      if (draw(3) != 0 || std::ranges::none_of(pieces, is_of_unit)) continue;
      const auto newest = model().newest(unit, {commit.lineage, ~ckpt::Step{0}});
      if (!newest) continue;
      std::erase_if(pieces, is_of_unit);
      const fb::CommittedT& other = written_.at(*newest);
      for (CommitPiece piece : pieces_of(other)) {
        if (!is_of_unit(piece)) continue;
        const fb::ExtentT& extent = *other.extents[piece.fragment.extent()];
        piece.fragment = in_extent(piece.fragment, shared_extent(commit, other, extent));
        if (piece.base) {
          const fb::ExtentT& of_base = *other.extents[piece.base->extent()];
          piece.base =
              in_extent(*piece.base, shared_extent(commit, other, of_base), piece.base->deltas());
        }
        pieces.push_back(piece);
      }
    }
    std::ranges::stable_sort(pieces, {}, [](const auto& of) { return of.fragment.unit(); });
    put_pieces(commit, drop_unused_extents(commit, pieces));
  }
  // Drops the extents that no fragment refers to and renumbers the rest.
  static std::vector<CommitPiece> drop_unused_extents(fb::CommittedT& commit,
                                                      std::vector<CommitPiece> pieces) {
    std::map<uint32_t, uint32_t> numbers;
    for (const CommitPiece& piece : pieces) {
      numbers[piece.fragment.extent()] = 0;
      if (piece.base) numbers[piece.base->extent()] = 0;
    }
    std::vector<std::unique_ptr<fb::ExtentT>> used;
    for (auto& [before, now] : numbers) {
      now = static_cast<uint32_t>(used.size());
      used.push_back(std::move(commit.extents[before]));
    }
    commit.extents = std::move(used);
    for (CommitPiece& piece : pieces) {
      piece.fragment = in_extent(piece.fragment, numbers.at(piece.fragment.extent()));
      if (!piece.base) continue;
      piece.base = in_extent(*piece.base, numbers.at(piece.base->extent()), piece.base->deltas());
    }
    return pieces;
  }
  static fb::Fragment in_extent(const fb::Fragment& fragment, uint32_t extent) {
    return {fragment.unit(),           extent,
            fragment.offset(),         fragment.length(),
            fragment.payload_offset(), fragment.crc32c(),
            fragment.codec()};
  }
  static fb::Base in_extent(const fb::Base& base, uint32_t extent, uint32_t deltas) {
    return {base.fragment(),       extent,       base.payload_offset(),
            base.crc32c(),         base.codec(), base.encoded_bytes(),
            base.encoded_crc32c(), deltas};
  }
  // Index of that extent in the commit. The extent is added to the commit if it is new.
  static uint32_t shared_extent(fb::CommittedT& commit, const fb::CommittedT& other,
                                const fb::ExtentT& extent) {
    for (uint32_t i = 0; i < commit.extents.size(); ++i) {
      const fb::ExtentT& listed = *commit.extents[i];
      if (listed.segment == extent.segment && listed.offset == extent.offset) return i;
    }
    commit.extents.push_back(std::make_unique<fb::ExtentT>(extent));
    fb::ExtentT& shared = *commit.extents.back();
    if (shared.lineage == 0) {
      shared.lineage = other.lineage;
      shared.epoch = other.epoch;
      shared.step = other.step;
      shared.attempt = other.attempt;
    }
    return static_cast<uint32_t>(commit.extents.size() - 1);
  }
  HistoryModel::Commit* any_commit() {
    if (model().commits.empty()) return nullptr;
    return &model().commits[draw(model().commits.size())];
  }
  void damage() {
    HistoryModel::Commit* commit = any_commit();
    if (commit == nullptr) return;
    add(commit_damaged(commit->point, "its header"));
    if (!commit->deleted) commit->damaged = true;
  }
  void remove() {
    HistoryModel::Commit* commit = any_commit();
    if (commit == nullptr) return;
    std::set<ckpt::UnitId> kept;
    for (const ckpt::UnitId unit : commit->units) {
      if (draw(3) == 0) kept.insert(unit);
    }
    add(deleted(commit->point, "retention", {kept.begin(), kept.end()}, draw(2) == 0));
    commit->deleted = true;
    commit->units = std::move(kept);
  }
  void tag() {
    const std::string name = fmt::format("tag{}", draw(4));
    HistoryModel::Commit* commit = any_commit();
    if (commit == nullptr || draw(4) == 0) {
      add(untagged(name));
      model().tags.erase(name);
      return;
    }
    add(tagged(commit->point, name));
    model().tags[name] = commit->point;
  }

  static constexpr uint64_t kPlacesPerCommit = 8;  // distance of commits: the size of the largest

  std::mt19937_64 random_;
  uint64_t grow_by_ = 0;  // units of the next commit
  RecordedHistory history_;
  std::map<ViewPoint, fb::CommittedT> written_;  // the last commit of each step
};

// Every answer of the catalog about the run as one text. Two catalogs with equal texts give equal
// answers.
std::string everything(const Catalog& catalog, ckpt::RunId run = kTestRun);

}  // namespace ckptd

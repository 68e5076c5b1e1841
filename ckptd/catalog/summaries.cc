// Data stored beside commits: tokens per expert, CRCs of all units, refused snapshots.
#include <algorithm>

#include "ckptd/catalog/catalog_impl.h"

namespace ckptd {

using keys::CommitIndex;

namespace {

// Reads the commits of a view, newest first. If that does not end soon, the view has units that are
// saved rarely or never: a seek for each of them is then cheaper than reading the whole history. A
// seek costs about as much as reading a small commit, or 64 units of a large one. Reading on must
// not add more than a quarter to the cost of the seeks.
constexpr size_t kCommitsReadMin = 16;
constexpr size_t kUnitsPerSeek = 64;
constexpr size_t kShareOfSeeks = 4;

bool cheaper_to_look_up(const SumsCost& cost, size_t stretches) {
  if (cost.commits < kCommitsReadMin) return false;
  return kShareOfSeeks * (cost.commits + cost.units / kUnitsPerSeek) > cost.missing * stretches;
}

}  // namespace

std::vector<Refusal> Catalog::refusals(ckpt::RunId run) const {
  std::vector<Refusal> refusals;
  impl_->scan(Family::kCommits, keys::commits(run, CommitIndex::kRefused),
              KvStore::Order::kAscending, [&](std::string_view key, std::string_view value) {
                const auto record = values::decode_record(value);
                const auto* refused = record ? record->body.AsSnapshotRefused() : nullptr;
                const auto sequence = keys::u64_at(key, key.size() - sizeof(uint64_t));
                if (refused == nullptr || !sequence) {
                  impl_->damaged(Family::kCommits, "a refused snapshot");
                  return true;
                }
                refusals.push_back(
                    {{run, refused->lineage, refused->epoch, refused->step, refused->attempt},
                     *sequence,
                     refused->time_ns,
                     ckpt::from_fb(refused->alarms, refused->alarms_left_out)});
                return true;
              });
  return refusals;
}

ckpt::ExpertTokenCounts Catalog::expert_tokens(ckpt::RunId run, ViewPoint commit) const {
  const auto value = impl_->get(
      Family::kCommits, keys::commit(run, CommitIndex::kTokens, commit.lineage, commit.step));
  if (!value) return {};
  auto counts = values::decode_token_counts(*value);
  if (!counts) impl_->damaged(Family::kCommits, fmt::format("tokens of step {}", commit.step));
  return counts ? std::move(*counts) : ckpt::ExpertTokenCounts();
}

std::optional<Catalog::TokensAt> Catalog::newest_expert_tokens(ckpt::RunId run,
                                                               ViewPoint point) const {
  const RunEntry* entry = impl_->find(run);
  if (entry == nullptr) return std::nullopt;
  for (const Impl::Stretch& stretch : impl_->path(*entry, point)) {
    const auto found = impl_->seek_for_prev(
        Family::kCommits,
        keys::commit(run, CommitIndex::kTokens, stretch.lineage, stretch.newest_step),
        keys::commits(run, CommitIndex::kTokens, stretch.lineage));
    if (!found) continue;
    const auto at = keys::lineage_step_at_end(found->key);
    auto counts = values::decode_token_counts(found->value);
    if (!at || !counts) {
      impl_->damaged(Family::kCommits, "token counts");
      return std::nullopt;
    }
    return TokensAt{{at->lineage, at->step}, std::move(*counts)};
  }
  return std::nullopt;
}

std::optional<ckpt::Step> Catalog::newest_tokens_in(ckpt::RunId run, ViewPoint point) const {
  std::optional<ckpt::Step> newest;
  impl_->scan_back(Family::kCommits,
                   keys::commit(run, CommitIndex::kTokens, point.lineage, point.step),
                   keys::commits(run, CommitIndex::kTokens, point.lineage),
                   [&](std::string_view key, std::string_view) {
                     if (const auto at = keys::lineage_step_at_end(key)) {
                       newest = at->step;
                     } else {
                       impl_->damaged(Family::kCommits, "token counts");
                     }
                     return false;
                   });
  return newest;
}

void Catalog::visit_units(ckpt::RunId run, ViewPoint point, const VisitUnits& visit) const {
  std::vector<ckpt::UnitId> units;
  impl_->scan(Family::kCommits, keys::commits(run, CommitIndex::kSums, point.lineage),
              KvStore::Order::kAscending, [&](std::string_view key, std::string_view value) {
                const auto at = keys::lineage_step_at_end(key);
                const auto sums = values::decode_unit_sums(value);
                if (!at || !sums) {
                  impl_->damaged(Family::kCommits, "sums of units");
                  return false;
                }
                if (at->step > point.step) return false;
                units.clear();
                for (const auto& [unit, crc] : *sums) units.push_back(unit);
                visit(at->step, units);
                return true;
              });
}

// Returns where single look-ups take over, once they are cheaper; nullopt: not needed.
std::optional<Catalog::Impl::Stretch> Catalog::Impl::read_sums(ckpt::RunId run,
                                                               const Stretch& stretch,
                                                               size_t stretches_left,
                                                               SumsCost& cost, Sums& newest) const {
  std::optional<Stretch> left_at;
  scan_back(Family::kCommits,
            keys::commit(run, CommitIndex::kSums, stretch.lineage, stretch.newest_step),
            keys::commits(run, CommitIndex::kSums, stretch.lineage),
            [&](std::string_view key, std::string_view value) {
              const auto at = keys::lineage_step_at_end(key);
              const auto sums = values::decode_unit_sums(value);
              if (!at || !sums) {
                damaged(Family::kCommits, "sums of units");
                return false;
              }
              if (cheaper_to_look_up(cost, stretches_left)) {
                left_at = {stretch.lineage, at->step};
                return false;
              }
              for (const auto& [unit, crc] : *sums) {
                if (unit >= newest.size() || newest[unit]) continue;
                newest[unit] = UnitSum{at->lineage, at->step, crc};
                --cost.missing;
              }
              cost.commits += 1;
              cost.units += sums->size();
              return cost.missing > 0;
            });
  return left_at;
}

void Catalog::Impl::look_up_sums(ckpt::RunId run, const Stretch& stretch, Sums& newest) const {
  std::vector<ckpt::UnitId> units;
  std::vector<std::string> wanted;
  for (ckpt::UnitId unit = 0; unit < newest.size(); ++unit) {
    if (newest[unit]) continue;
    units.push_back(unit);
    wanted.push_back(keys::version(run, unit, stretch.lineage, stretch.newest_step));
  }
  std::vector<ckpt::UnitId> newest_is_damaged;
  const Status sought = store->seek_each(
      Family::kVersions, wanted, [&](size_t i, std::string_view key, std::string_view value) {
        if (!key.starts_with(keys::versions(run, units[i], stretch.lineage))) return;
        const auto at = keys::lineage_step_at_end(key);
        const auto version = values::decode_version(value);
        if (!at || !version) {
          damaged(Family::kVersions, fmt::format("unit number {}", units[i]));
        } else if (version->damaged) {
          newest_is_damaged.push_back(units[i]);
        } else {
          newest[units[i]] = UnitSum{at->lineage, at->step, version->crc32c};
        }
      });
  if (!sought.ok() && health.ok()) health = sought;
  for (const ckpt::UnitId unit : newest_is_damaged) {
    const auto version = newest_in(run, unit, stretch);
    if (!version) continue;
    newest[unit] = UnitSum{version->snapshot.lineage, version->snapshot.step, version->crc32c};
  }
}

std::vector<std::optional<UnitSum>> Catalog::newest_sums(ckpt::RunId run, ViewPoint point) const {
  const RunEntry* entry = impl_->find(run);
  if (entry == nullptr) return {};
  Impl::Sums newest(entry->units->size());
  SumsCost cost{.missing = newest.size()};
  const std::vector<Impl::Stretch> path = impl_->path(*entry, point);
  bool looking_up = false;
  for (size_t i = 0; i < path.size() && cost.missing > 0; ++i) {
    Impl::Stretch stretch = path[i];
    if (!looking_up) {
      const auto left_at = impl_->read_sums(run, stretch, path.size() - i, cost, newest);
      if (!left_at) continue;
      looking_up = true;
      stretch = *left_at;
    }
    impl_->look_up_sums(run, stretch, newest);
  }
  return newest;
}

}  // namespace ckptd

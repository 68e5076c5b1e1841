// What is kept beside commits: tokens per expert, CRCs of all units, snapshots that were refused.
#include <algorithm>

#include "ckptd/catalog/catalog_impl.h"

namespace ckptd {

using keys::CommitIndex;

namespace {

// A view that so many commits do not complete has units that are never saved, or saved very seldom:
// then one seek for each of the rest is cheaper than the whole history.
constexpr size_t kCommitsReadForSums = 256;

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

std::vector<std::optional<UnitSum>> Catalog::newest_sums(ckpt::RunId run, ViewPoint point) const {
  const RunEntry* entry = impl_->find(run);
  if (entry == nullptr) return {};
  std::vector<std::optional<UnitSum>> newest(entry->units->size());
  size_t missing = newest.size();
  size_t commits_read = 0;
  bool all_read = true;  // then what no commit of the view has is nowhere
  const std::vector<Impl::Stretch> path = impl_->path(*entry, point);
  for (const Impl::Stretch& stretch : path) {
    const std::string prefix = keys::commits(run, CommitIndex::kSums, stretch.lineage);
    std::string from = keys::commit(run, CommitIndex::kSums, stretch.lineage, stretch.newest_step);
    while (missing > 0) {
      all_read = commits_read++ < kCommitsReadForSums;
      if (!all_read) break;
      const auto found = impl_->seek_for_prev(Family::kCommits, from, prefix);
      if (!found) break;
      const auto at = keys::lineage_step_at_end(found->key);
      const auto sums = values::decode_unit_sums(found->value);
      if (!at || !sums) {
        impl_->damaged(Family::kCommits, "sums of units");
        break;
      }
      for (const auto& [unit, crc] : *sums) {
        if (unit >= newest.size() || newest[unit]) continue;
        newest[unit] = UnitSum{at->lineage, at->step, crc};
        --missing;
      }
      if (at->step == 0) break;
      from = keys::commit(run, CommitIndex::kSums, stretch.lineage, at->step - 1);
    }
  }
  for (ckpt::UnitId unit = 0; missing > 0 && !all_read && unit < newest.size(); ++unit) {
    if (newest[unit]) continue;
    const auto version = newest_version(run, unit, point, std::nullopt);
    if (!version) continue;
    newest[unit] = UnitSum{version->snapshot.lineage, version->snapshot.step, version->crc32c};
  }
  return newest;
}

}  // namespace ckptd

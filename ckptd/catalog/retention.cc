// Reading what retention goes by: rules, pins, and space that is dead or live.
#include "ckptd/catalog/catalog_impl.h"

namespace ckptd {

using keys::CommitIndex;

ckpt::KeepRules Catalog::keep_rules(ckpt::RunId run) const {
  const RunEntry* entry = impl_->find(run);
  return entry == nullptr ? ckpt::KeepRules() : entry->rules;
}

std::vector<ViewPoint> Catalog::pins(ckpt::RunId run) const {
  std::vector<ViewPoint> pins;
  impl_->scan(Family::kCommits, keys::commits(run, CommitIndex::kPinned),
              KvStore::Order::kAscending, [&](std::string_view key, std::string_view) {
                const auto at = keys::lineage_step_at_end(key);
                if (at) pins.push_back({at->lineage, at->step});
                return true;
              });
  return pins;
}

std::vector<DeadSpace> Catalog::dead_space(ckpt::RunId run) const {
  std::vector<DeadSpace> dead;
  impl_->scan(Family::kCommits, keys::commits(run, CommitIndex::kDead), KvStore::Order::kAscending,
              [&](std::string_view key, std::string_view value) {
                const auto sequence = keys::u64_at(key, key.size() - sizeof(uint64_t));
                auto ranges = values::decode_ranges(value);
                if (!sequence || !ranges) {
                  impl_->damaged(Family::kCommits, "dead space");
                  return true;
                }
                dead.push_back({*sequence, std::move(*ranges)});
                return true;
              });
  return dead;
}

Result<uint64_t> Catalog::live_extents(ckpt::SegmentId segment) const {
  const auto value = impl_->get(Family::kSegments, keys::segment(segment));
  CKPT_TRY(impl_->health);
  if (!value) return uint64_t{0};
  const auto count = keys::u64_at(*value, 0);
  if (!count) impl_->damaged(Family::kSegments, fmt::format("segment {}", segment));
  CKPT_TRY(impl_->health);
  return *count;
}

}  // namespace ckptd

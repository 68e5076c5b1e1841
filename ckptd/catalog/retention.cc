// Catalog reads for retention: rules, pins, dead space, live extents.
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
                if (at) {
                  pins.push_back({at->lineage, at->step});
                } else {
                  impl_->damaged(Family::kCommits, "a pin");
                }
                return true;
              });
  return pins;
}

void Catalog::visit_dead_space(ckpt::RunId run, uint64_t from_sequence,
                               const std::function<bool(DeadSpace)>& visit) const {
  const Status scanned = impl_->store->scan_on(
      Family::kCommits, keys::dead(run, from_sequence), keys::commits(run, CommitIndex::kDead),
      [&](std::string_view key, std::string_view value) {
        const auto sequence = keys::u64_at(key, key.size() - sizeof(uint64_t));
        auto ranges = values::decode_ranges(value);
        if (sequence && ranges) return visit({*sequence, std::move(*ranges)});
        impl_->damaged(Family::kCommits, "dead space");
        return true;
      });
  if (!scanned.ok() && impl_->health.ok()) impl_->health = scanned;
}

std::vector<DeadSpace> Catalog::dead_space(ckpt::RunId run) const {
  std::vector<DeadSpace> all;
  visit_dead_space(run, 0, [&](DeadSpace dead) {
    all.push_back(std::move(dead));
    return true;
  });
  return all;
}

std::optional<DeadSpace> Catalog::dead_space(ckpt::RunId run, uint64_t sequence) const {
  const auto value = impl_->get(Family::kCommits, keys::dead(run, sequence));
  if (!value) return std::nullopt;
  auto ranges = values::decode_ranges(*value);
  if (ranges) return DeadSpace{sequence, std::move(*ranges)};
  impl_->damaged(Family::kCommits, "dead space");
  return std::nullopt;
}

std::vector<ViewPoint> Catalog::holders(ckpt::RunId run, ckpt::SegmentId segment, uint64_t offset,
                                        size_t most) const {
  std::vector<ViewPoint> points;
  if (most == 0) return points;
  impl_->scan(Family::kCommits, keys::holding(run, segment, offset), KvStore::Order::kAscending,
              [&](std::string_view key, std::string_view) {
                const auto at = keys::lineage_step_at_end(key);
                if (!at) {
                  impl_->damaged(Family::kCommits, "space of a commit");
                } else {
                  points.push_back({at->lineage, at->step});
                }
                return points.size() < most;
              });
  return points;
}

bool Catalog::Impl::others_hold(ckpt::RunId run, ckpt::SegmentId segment, uint64_t offset,
                                ViewPoint own) const {
  bool found = false;
  scan(Family::kCommits, keys::holding(run, segment, offset), KvStore::Order::kAscending,
       [&](std::string_view key, std::string_view) {
         const auto at = keys::lineage_step_at_end(key);
         found = !at || ViewPoint{at->lineage, at->step} != own;
         return !found;
       });
  return found;
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

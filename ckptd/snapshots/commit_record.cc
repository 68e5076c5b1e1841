#include "ckptd/snapshots/commit_record.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::SnapshotKey;

fb::CommittedT commit_record(const Ingest::CommitAction& action, const ckpt::AlarmList& alarms,
                             OpenSnapshotState& open) {
  std::sort(open.extents.begin(), open.extents.end(),
            [](const WrittenExtent& a, const WrittenExtent& b) {
              return std::tie(a.rank, a.segment, a.offset) < std::tie(b.rank, b.segment, b.offset);
            });
  fb::CommittedT commit;
  ckpt::set_key(commit, action.snapshot);
  commit.plan = ckpt::wire::to_fb(action.plan);
  commit.full = action.full;
  for (const auto& [name, value] : action.metrics) {
    auto metric = std::make_unique<fb::MetricT>();
    metric->name = name;
    metric->value = value;
    commit.metrics.push_back(std::move(metric));
  }
  commit.expert_tokens = ckpt::tokens_to_fb(action.expert_tokens);
  commit.expert_lost = ckpt::lost_to_fb(action.expert_tokens);
  commit.alarms = ckpt::to_fb(alarms);
  commit.alarms_left_out = alarms.left_out;
  for (const auto& [id, spec] : action.blobs) {
    auto blob = std::make_unique<fb::BlobT>();
    blob->id = id;
    blob->name = spec.name;
    blob->bytes = spec.bytes;
    blob->global = spec.global;
    commit.blobs.push_back(std::move(blob));
  }
  for (size_t i = 0; i < action.grown.size(); ++i) {
    const auto id = static_cast<ckpt::UnitId>(action.first_grown + i);
    commit.grown.push_back(std::make_unique<fb::UnitT>(ckpt::wire::to_fb(action.grown[i], id)));
  }
  ckpt::fill_extents(open.extents, commit, open.shared.bases());
  return commit;
}

fb::SnapshotRefusedT refusal_record(const SnapshotKey& key, const ckpt::AlarmList& alarms) {
  fb::SnapshotRefusedT refused;
  ckpt::set_key(refused, key);
  refused.alarms = ckpt::to_fb(alarms);
  refused.alarms_left_out = alarms.left_out;
  return refused;
}

}  // namespace ckptd

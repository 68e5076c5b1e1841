#include "ckptd/snapshots/commit_record.h"

#include <algorithm>
#include <memory>
#include <set>
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
  commit.run = action.snapshot.run;
  commit.lineage = action.snapshot.lineage;
  commit.epoch = action.snapshot.epoch;
  commit.step = action.snapshot.step;
  commit.attempt = action.snapshot.attempt;
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
  fill_extents(open.extents, commit, open.same.bases());
  return commit;
}

fb::SnapshotRefusedT refusal_record(const SnapshotKey& key, const ckpt::AlarmList& alarms) {
  fb::SnapshotRefusedT refused;
  refused.run = key.run;
  refused.lineage = key.lineage;
  refused.epoch = key.epoch;
  refused.step = key.step;
  refused.attempt = key.attempt;
  refused.alarms = ckpt::to_fb(alarms);
  refused.alarms_left_out = alarms.left_out;
  return refused;
}

CommitInfo info_of(const fb::CommittedT& record) {
  CommitInfo info;
  info.snapshot = {record.run, record.lineage, record.epoch, record.step, record.attempt};
  info.time_ns = record.time_ns;
  std::set<ckpt::UnitId> units;
  for (const fb::Fragment& fragment : record.fragments) units.insert(fragment.unit());
  info.units.assign(units.begin(), units.end());
  for (const auto& metric : record.metrics) info.metrics[metric->name] = metric->value;
  const auto tokens = ckpt::expert_token_counts(record.expert_tokens, record.expert_lost);
  if (tokens.ok()) info.lost_tokens = ckpt::lost_tokens(*tokens);
  return info;
}

}  // namespace ckptd

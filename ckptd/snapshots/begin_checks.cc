#include "ckptd/snapshots/begin_checks.h"

#include <algorithm>

#include "ckptd/limits.h"
#include "ckptd/staging/arena_quota.h"
#include "formats/step.h"
#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::SnapshotKey;

namespace {

bool is_ascii(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

Status check_metrics(const fb::BeginSnapshotT& message) {
  if (message.metrics.size() > limits::kMetricsPerSnapshotMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} metrics, the most is {}",
                      message.metrics.size(), limits::kMetricsPerSnapshotMax);
  }
  for (const auto& metric : message.metrics) {
    if (metric == nullptr || metric->name.empty() ||
        metric->name.size() > limits::kMetricNameBytesMax || !is_ascii(metric->name)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "a metric's name has 1 to {} printable ASCII characters",
                        limits::kMetricNameBytesMax);
    }
  }
  return {};
}

Result<std::vector<ckpt::BlobSpec>> checked_blobs(const fb::BeginSnapshotT& message) {
  std::vector<ckpt::BlobSpec> blobs;
  blobs.reserve(message.blobs.size());
  for (const auto& blob : message.blobs) {
    if (blob == nullptr) return make_error(ErrorCode::kInvalidArgument, "a blob without a name");
    blobs.push_back({.name = blob->name, .bytes = blob->bytes, .global = blob->global});
  }
  CKPT_TRY(ckpt::check_blobs(blobs));
  return blobs;
}

}  // namespace

Result<SnapshotKey> BeginChecks::member_key(const Session& session, ckpt::Epoch epoch,
                                            ckpt::Step step, uint32_t attempt) const {
  const auto member = needs_.member(session.id);
  if (!member || member->epoch != epoch) {
    return make_error(ErrorCode::kAborted, "run {} step {}: not a member of epoch {}",
                      session.run_name, step, epoch);
  }
  return SnapshotKey{.run = member->run,
                     .lineage = member->lineage,
                     .epoch = epoch,
                     .step = step,
                     .attempt = attempt};
}

// Growth that the journal has must not be missing in the run's list: the next commit would
// contradict it.
Result<BeginChecks::Units> BeginChecks::units(const SnapshotKey& key,
                                              const fb::BeginSnapshotT& message) const {
  const Catalog& catalog = needs_.history.catalog();
  Units units;
  CKPT_ASSIGN(units.growth, read_growth(message.grown));
  auto known = needs_.history.read([&] { return catalog.units(key.run); });
  if (!known.ok()) return known.error();
  units.known = (*known)->size();
  units.base = catalog.base_units(key.run);
  CKPT_ASSIGN(units.all, grown_units(*known, units.base, units.growth));
  for (const SnapshotKey& other : ingest_.open(key.run)) {
    if (other == key || units.all->size() == units.known) continue;
    CKPT_TRY(check_growths_agree(*units.all, *ingest_.units(other), units.known, other.step));
  }
  return units;
}

Status BeginChecks::check(const Session& session, const SnapshotKey& key, const Units& units,
                          const fb::BeginSnapshotT& message) const {
  CKPT_TRY(ckpt::check_step(key.step));
  // An unreadable catalog must not count as "no commit of this step": the new commit would replace
  // the existing one, whose space would be reclaimed.
  CKPT_ASSIGN(const auto existing, needs_.history.commit_at(key));
  if (existing && !existing->damaged && !existing->deleted) {
    return make_error(ErrorCode::kAlreadyExists, "lineage {} has a commit of this step already",
                      key.lineage);
  }
  if (existing && existing->deleted && !existing->units.empty()) {
    return make_error(ErrorCode::kAlreadyExists,
                      "lineage {} had a commit of this step, and views of later commits need {} of "
                      "its units",
                      key.lineage, existing->units.size());
  }
  for (const SnapshotKey& other : ingest_.open(key.run)) {
    if (other.lineage == key.lineage && other.step == key.step && other != key) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "attempt {} of this step, of epoch {}, is still open", other.attempt,
                        other.epoch);
    }
  }
  CKPT_ASSIGN(const auto lineages, needs_.history.catalog().lineages(key.run));
  for (const Lineage& lineage : lineages) {
    if (lineage.id != key.lineage || lineage.parent == 0 || key.step >= lineage.fork_step) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "lineage {} begins at step {}: it has no earlier steps", key.lineage,
                      lineage.fork_step);
  }
  const uint32_t leasable = session.arena ? needs_.staging.leasable(*session.arena) : 0;
  if (message.slabs_wanted > leasable) {
    return snapshot_too_large(
        "this rank's part of the snapshot", message.slabs_wanted, leasable,
        session.arena ? needs_.staging.layout(*session.arena) : ckpt::ArenaLayout());
  }
  CKPT_TRY(check_metrics(message));
  CKPT_TRY(checked_blobs(message));
  return check_tokens(key, units, message);
}

// Counts that contradict an older commit of the view's line of history.
Status BeginChecks::check_tokens(const SnapshotKey& key, const Units& units,
                                 const fb::BeginSnapshotT& message) const {
  CKPT_ASSIGN(const auto counts,
              ckpt::check_expert_tokens(message.expert_tokens, message.expert_lost, *units.all));
  if (counts.empty()) return {};
  CKPT_ASSIGN(const auto earlier, needs_.history.read([&] {
    return Result(needs_.history.catalog().newest_expert_tokens(key.run, {key.lineage, key.step}));
  }));
  if (!earlier) return {};
  return check_not_less(earlier->counts, earlier->commit.step, counts);
}

// Grown units that the plan leaves out, and no view of the snapshot's line of history has. They
// matter only to a plan that holds all of the base, so that most partial snapshots seek nothing.
std::vector<ckpt::UnitId> BeginChecks::absent(const SnapshotKey& key, const Units& units,
                                              const fb::BeginSnapshotT& message) const {
  std::vector<bool> planned(units.all->size(), false);
  for (const ckpt::UnitId unit : message.units) {
    if (unit < planned.size()) planned[unit] = true;
  }
  const auto base_end = planned.begin() + static_cast<ptrdiff_t>(units.base);
  if (std::find(planned.begin(), base_end, false) != base_end) return {};
  std::vector<ckpt::UnitId> absent;
  for (size_t i = units.base; i < units.known; ++i) {
    const auto unit = static_cast<ckpt::UnitId>(i);
    if (planned[unit]) continue;
    if (needs_.history.catalog().belongs(key.run, unit, {key.lineage, key.step})) return {};
    absent.push_back(unit);
  }
  return absent;
}

Result<Ingest::Begin> BeginChecks::make_begin(const Session& session, const SnapshotKey& key,
                                              const Units& units,
                                              const fb::BeginSnapshotT& message) const {
  const auto member = needs_.member(session.id);
  Ingest::Begin begin;
  begin.snapshot = key;
  begin.run_name = session.run_name;
  begin.rank = member->rank;
  begin.group_size = member->size;
  begin.plan = ckpt::wire::from_fb(message.plan);
  begin.units = message.units;
  begin.memory_units = message.memory_units;
  for (const fb::Range& range : message.fragments) {
    begin.fragments.push_back(
        {.unit = range.unit(), .offset = range.offset(), .length = range.length()});
  }
  CKPT_ASSIGN(begin.blobs, checked_blobs(message));
  for (const auto& metric : message.metrics) begin.metrics[metric->name] = metric->value;
  CKPT_ASSIGN(begin.expert_tokens,
              ckpt::check_expert_tokens(message.expert_tokens, message.expert_lost, *units.all));
  begin.known_units = units.known;
  if (!ingest_.is_open(key)) begin.absent = absent(key, units, message);
  begin.deadline = needs_.turn.now() + needs_.options.deadline;
  return begin;
}

}  // namespace ckptd

#include "client/src/snapshot.h"

#include <algorithm>
#include <string_view>

#include "formats/step.h"
#include "formats/wire/convert.h"
#include "formats/wire/snapshot_timings.h"

namespace ckpt::lib {
namespace {

std::vector<std::unique_ptr<fb::MetricT>> to_fb(
    const std::vector<std::pair<std::string, double>>& metrics) {
  std::vector<std::unique_ptr<fb::MetricT>> bodies;
  bodies.reserve(metrics.size());
  for (const auto& [name, value] : metrics) {
    auto body = std::make_unique<fb::MetricT>();
    body->name = name;
    body->value = value;
    bodies.push_back(std::move(body));
  }
  return bodies;
}

}  // namespace

Snapshot::Snapshot(Session& session, SnapshotOptions options)
    : session_(&session), options_(std::move(options)) {}

std::string Snapshot::name() const {
  return fmt::format("run {} step {}", session_ != nullptr ? session_->options().run : "?",
                     options_.step);
}

Result<std::shared_ptr<Snapshot>> Snapshot::begin(Session& session, SnapshotOptions options) {
  std::shared_ptr<Snapshot> snapshot(new Snapshot(session, std::move(options)));
  Info& info = snapshot->info_;
  info.stall_ns = info.timings.plan_ns = snapshot->options_.plan_ns;
  const Timed stall(info.stall_ns);
  CKPT_TRY(session.group().check_alive(session.options().run));
  if (session.arena().mapping() == nullptr) {
    return make_error(ErrorCode::kFailedPrecondition, "{}: a control session has no arena",
                      snapshot->name());
  }
  if (const Status step = check_step(snapshot->options_.step); !step.ok()) {
    return make_error(step.error().code, "{}: {}", snapshot->name(), step.error().message);
  }
  {
    const Timed planning(info.timings.plan_ns);
    CKPT_TRY(snapshot->prepare());
    CKPT_TRY(snapshot->prepare_growth());
  }
  // Register with the session before asking the daemon: slabs may come with the answer.
  session.add_snapshot(snapshot);
  const Status asked = snapshot->ask();
  if (!asked.ok()) {
    session.remove_snapshot(snapshot.get());
    return asked.error();
  }
  return snapshot;
}

// Checks the plan and builds the message. The daemon checks coverage, over all ranks; this checks
// only what would make this rank write outside its own state.
Status Snapshot::prepare() {
  const std::vector<UnitSpec>& specs = session_->units();
  const fb::EpochStartedT& epoch = session_->group().epoch();
  std::vector<UnitId>& units = options_.plan.units;
  std::sort(units.begin(), units.end());
  units.erase(std::unique(units.begin(), units.end()), units.end());
  if (!units.empty() && units.back() >= specs.size()) {
    return make_error(ErrorCode::kInvalidArgument, "{}: unit number {}, but {} are registered",
                      name(), units.back(), specs.size());
  }
  std::vector<PlannedFragment>& fragments = options_.plan.fragments;
  std::erase_if(fragments, [](const PlannedFragment& f) { return f.range.length == 0; });
  CKPT_TRY(prepare_memory_units());
  std::array<std::vector<uint64_t>, 2> lengths;  // by Share::memory_only
  const std::vector<UnitId>& memory = options_.memory_units;
  for (const PlannedFragment& fragment : fragments) {
    const auto [unit, offset, length] = fragment.range;
    if (!std::binary_search(units.begin(), units.end(), unit)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}: a fragment of unit number {}, which is not in the snapshot", name(),
                        unit);
    }
    if (fragment.rank >= epoch.size) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} unit {}: a fragment of rank {}, but the group has {}", name(),
                        specs[unit].name, fragment.rank, epoch.size);
    }
    if (!base::range_fits(offset, length, specs[unit].bytes)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} unit {}: a fragment of {} bytes at {}, but the unit has {}", name(),
                        specs[unit].name, length, offset, specs[unit].bytes);
    }
    if (fragment.rank != epoch.rank) continue;
    const bool memory_only = std::binary_search(memory.begin(), memory.end(), unit);
    shares_.push_back({fragment.range, 0, memory_only});
    lengths[memory_only].push_back(length);
    begin_.fragments.emplace_back(unit, 0, offset, length);
  }
  CKPT_TRY(prepare_blobs(lengths[0]));
  std::sort(shares_.begin(), shares_.end(),
            [](const Share& a, const Share& b) { return a.range < b.range; });
  begin_.epoch = epoch.epoch;
  begin_.step = options_.step;
  begin_.attempt = options_.attempt;
  begin_.units = units;
  begin_.out_of_slabs = options_.out_of_slabs;
  plan_slabs(lengths);
  options_.plan.memory_units = options_.memory_units;
  begin_.memory_units = std::move(options_.memory_units);
  begin_.plan = wire::to_fb(plan_hash(std::move(options_.plan)));
  options_.plan = {};
  begin_.metrics = to_fb(options_.metrics);
  begin_.expert_tokens = std::move(options_.expert_tokens);
  begin_.expert_lost = std::move(options_.expert_lost);
  begin_.staleness_max = options_.staleness_max;
  return ok_status();
}

// How many slabs begin() asks for. `lengths`: of this rank's fragments, by Share::memory_only.
void Snapshot::plan_slabs(const std::array<std::vector<uint64_t>, 2>& lengths) {
  const uint64_t slab_bytes = session_->arena().mapping()->layout().slab_bytes;
  const uint32_t slabs_leasable = session_->arena().snapshot_slabs();
  uint64_t at_most = 0;
  for (const auto& of_kind : lengths) {
    begin_.slabs_wanted += slabs_needed(of_kind, slab_bytes);
    at_most += slabs_at_most(of_kind, slab_bytes);
  }
  // A fragment that is written in parts, between those of others, may take more room.
  const uint32_t margin = std::max(1u, slabs_leasable / 16);
  begin_.streams = options_.streams && at_most + margin > slabs_leasable;
  if (!begin_.streams) return;
  const uint32_t at_first = std::min({begin_.slabs_wanted, kSlabsAhead, slabs_leasable});
  slabs_to_request_ = begin_.slabs_wanted - at_first;
  begin_.slabs_wanted = at_first;
}

// Checks and sorts the memory units; the plan's units are sorted. A snapshot of memory units only
// would leave nothing to commit.
Status Snapshot::prepare_memory_units() {
  const std::vector<UnitId>& units = options_.plan.units;
  std::vector<UnitId>& memory = options_.memory_units;
  std::sort(memory.begin(), memory.end());
  memory.erase(std::unique(memory.begin(), memory.end()), memory.end());
  if (!std::includes(units.begin(), units.end(), memory.begin(), memory.end())) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: memory_units names a unit that is not in the snapshot", name());
  }
  if (memory.empty() || memory.size() < units.size()) return ok_status();
  return make_error(ErrorCode::kInvalidArgument,
                    "{}: all of its units are to stay in memory: nothing would be durable", name());
}

Status Snapshot::ask() {
  const Timed waiting(info_.wait_ns);
  const Timed beginning(info_.timings.begin_ns);
  slabs_expected_ = begin_.slabs_wanted;
  uint64_t request = 0;
  if (options_.no_wait && session_->post(begin_, &request)) {
    requests_.push_back(request);
    acknowledged_ = true;  // reopen() tells a daemon that does not know it
    return ok_status();
  }
  const CallOptions call{deadline(), name() + ": beginning a snapshot",
                         [this]() -> std::optional<Error> {
                           Status open = check_open();
                           if (open.ok()) open = session_->group().check_alive(name());
                           // The next daemon may be older.
                           if (open.ok() && session_->ready()) open = check_daemon_takes_all();
                           if (open.ok()) return std::nullopt;
                           return open.error();
                         }};
  const Result<fb::MessageT> reply = session_->call(begin_, call);
  if (!reply.ok()) {
    // The daemon may have received the request anyway.
    const ErrorCode code = reply.error().code;
    if (code == ErrorCode::kDeadlineExceeded || code == ErrorCode::kVersionMismatch) {
      send_abort(reply.error().message);
    }
    return reply.error();
  }
  acknowledged_ = true;
  return check_open();
}

Status Snapshot::check_open() const {
  if (session_ == nullptr) {
    return make_error(ErrorCode::kFailedPrecondition, "{}: its session was closed", name());
  }
  if (info_.level != fb::SnapshotLevel::Failed) return ok_status();
  // Avoid the name twice: the daemon's message may begin with it.
  const std::string named = name() + ": ";
  std::string_view why = info_.failure->message;
  if (why.starts_with(named)) why.remove_prefix(named.size());
  return with_detail(make_error(ErrorCode::kAborted, "{}the snapshot failed: {}", named, why),
                     info_.failure->detail);
}

Status Snapshot::wait(fb::SnapshotLevel level, const Deadline& deadline) {
  const Timed stall(info_.stall_ns);
  for (;;) {
    CKPT_TRY(check_open());
    if (info_.level >= level) return ok_status();
    if (session_->interrupted()) {
      return make_error(ErrorCode::kAborted, "{}: waiting for it to be {}: interrupted", name(),
                        level == fb::SnapshotLevel::Staged ? "staged" : "durable");
    }
    if (deadline.expired()) {
      return make_error(session_->ready() ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
                        "{}: not {} yet{}", name(),
                        level == fb::SnapshotLevel::Staged ? "staged" : "durable",
                        session_->ready() ? "" : "; not connected to ckptd");
    }
    session_->pump(deadline);
  }
}

void Snapshot::abort(const std::string& reason) {
  if (session_ == nullptr || info_.level >= fb::SnapshotLevel::Durable) return;
  send_abort(reason);
  fail(make_error(ErrorCode::kAborted, "{}", reason));
}

void Snapshot::send_abort(const std::string& reason) {
  fb::AbortSnapshotT body;
  body.epoch = begin_.epoch;
  body.step = begin_.step;
  body.attempt = begin_.attempt;
  body.reason = reason;
  session_->post(std::move(body));
}

void Snapshot::fail(Error error) {
  info_.level = fb::SnapshotLevel::Failed;
  info_.failure = std::move(error);
  filling_ = {};
  closed_.clear();
  free_slabs_.clear();
  seals_.clear();
  session_->remove_snapshot(this);  // last: this may be the only reference to the snapshot
}

void Snapshot::session_closes() {
  if (!ended_ && info_.level < fb::SnapshotLevel::Durable) send_abort("the session was closed");
  session_ = nullptr;
}

void Snapshot::take_state(const fb::SnapshotStateT& state) {
  if (state.epoch != begin_.epoch || state.step != begin_.step || state.attempt != begin_.attempt) {
    return;
  }
  const SnapshotTimings reported = wire::from_fb(state.timings);
  info_.timings.write_ns = reported.write_ns;
  info_.timings.sync_ns = reported.sync_ns;
  info_.timings.journal_ns = reported.journal_ns;
  if (state.level == fb::SnapshotLevel::Failed) {
    return fail(error_from(state.code, state.reason, state.detail));
  }
  info_.level = std::max(info_.level, state.level);
  if (state.level == fb::SnapshotLevel::Durable) {
    info_.durable_ns = ns_since(began_at_);
    info_.alarms = state.alarms;
    seals_.clear();
    session_->run_units().committed(begin_.grown);
    session_->remove_snapshot(this);
  }
}

void Snapshot::take_error(const fb::ErrorReplyT& error) {
  if (std::find(requests_.begin(), requests_.end(), error.request) == requests_.end()) return;
  fail(error_from(error));
}

// Tells a restarted daemon everything that the previous one knew of this snapshot.
void Snapshot::reopen() {
  if (!acknowledged_) return;  // begin() is still asking, and asks again
  // An older daemon would commit the units without the blobs, and refuse the growth: so abort.
  if (const Status takes = check_daemon_takes_all(); !takes.ok()) {
    send_abort(takes.error().message);
    return fail(takes.error());
  }
  if (!seals_complete_) {
    const char* reason =
        "the daemon restarted, and slabs of the snapshot had been used a second time: the arena "
        "is smaller than the snapshot";
    send_abort(reason);
    return fail(make_error(ErrorCode::kAborted, "{}", reason));
  }
  requests_.clear();
  slabs_expected_ = 0;  // requested again when needed
  fb::ReopenSnapshotT body;
  body.begin = std::make_unique<fb::BeginSnapshotT>(begin_);
  body.begin->slabs_wanted = 0;
  body.leased.assign(free_slabs_.begin(), free_slabs_.end());
  for (const auto& filling : filling_) {
    if (filling) body.leased.push_back(filling->slab);
  }
  for (const Filling& filling : closed_) body.leased.push_back(filling.slab);
  uint64_t request = 0;
  if (!session_->post(std::move(body), &request)) return;
  requests_.push_back(request);
  for (const Seal& seal : seals_) post_seal(seal);
}

}  // namespace ckpt::lib

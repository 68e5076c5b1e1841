// Tags, pins, rules, prunes and removals: changes of history that users request. Executed one after
// the other: each sees the result of the one before, and an acknowledged change is never undone by
// an earlier decision.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ckptd/daemon_impl.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/retention/prune.h"
#include "formats/base/counted.h"
#include "formats/base/json_dump.h"

namespace ckptd {

namespace {

template <typename BodyT>
fb::RecordT record_at(const RunInfo& run, ViewPoint point, uint64_t time_ns, BodyT body = {}) {
  body.run = run.id;
  body.lineage = point.lineage;
  body.step = point.step;
  body.time_ns = time_ns;
  return make_record(std::move(body));
}

// Records of the removal, and of the removal of tags and pins that would point at nothing. Highest
// step first: no view needs later commits, so all listed commits stay complete meanwhile.
std::vector<fb::RecordT> prune_records(const RunInfo& run, PrunePlan plan, uint64_t time_ns) {
  std::ranges::sort(plan.removed, [](const auto& a, const auto& b) {
    return std::pair(a.point.step, a.point.lineage) > std::pair(b.point.step, b.point.lineage);
  });
  std::vector<fb::RecordT> records;
  for (const PrunePlan::Removed& removed : plan.removed) {
    for (const std::string& tag : removed.tags) {
      fb::UntaggedT untagged;
      untagged.run = run.id;
      untagged.tag = tag;
      untagged.time_ns = time_ns;
      records.push_back(make_record(std::move(untagged)));
    }
    if (removed.pinned) records.push_back(record_at<fb::UnpinnedT>(run, removed.point, time_ns));
    fb::DeletedT deleted;
    deleted.reason = removed.reason;
    deleted.kept = removed.kept_units;
    deleted.kept_tokens = removed.kept_tokens;
    records.push_back(record_at(run, removed.point, time_ns, std::move(deleted)));
  }
  return records;
}

void log_prune(const RunInfo& run, const PrunePlan& plan) {
  for (const PrunePlan::Removed& removed : plan.removed) {
    log_event(spdlog::level::info, "commit_deleted",
              {{"run", run.name},
               {"lineage", removed.point.lineage},
               {"step", removed.point.step},
               {"kept_units", removed.kept_units.size()},
               {"reason", removed.reason}},
              "run {} lineage {} step {}: deleted: {}; {} of its units stay for other views",
              run.name, removed.point.lineage, removed.point.step, removed.reason,
              removed.kept_units.size());
  }
}

}  // namespace

bool Daemon::Impl::is_administration(std::string_view verb) {
  return verb == "tag" || verb == "pin" || verb == "keep" || verb == "prune" || verb == "rm" ||
         verb == "grant";
}

void Daemon::Impl::administer(const Session& session, const fb::QueryT& message) {
  if (administrations.size() >= limits::kAdministrationsWaitingMax) {
    return replies.answer(session.id, message.request,
                          error_answer(make_error(ErrorCode::kResourceExhausted,
                                                  "{} changes of history wait already, the most",
                                                  administrations.size())));
  }
  administrations.push_back({session.id, message.request, message.verb, message.args});
  next_administration();
}

void Daemon::Impl::next_administration() {
  while (!administering && !history.applies() && !administrations.empty()) {
    const Administration task = std::move(administrations.front());
    administrations.pop_front();
    Session* session = sessions.find(task.session);
    if (session == nullptr) continue;
    administering = true;
    if (task.registration) {
      register_units(*session, *task.registration, /*may_replace=*/true);
      administering = removing.has_value();  // until the run is replaced
    } else if (task.verb == "tag") {
      change_tag(*session, task);
    } else if (task.verb == "pin") {
      change_pin(*session, task);
    } else if (task.verb == "keep") {
      change_rules(*session, task);
    } else if (task.verb == "grant") {
      change_grant(*session, task);
    } else if (task.verb == "rm") {
      remove(*session, task);
    } else {
      prune(*session, task);
    }
  }
}

// Called exactly once for each task.
void Daemon::Impl::administered(const Administration& task, const QueryAnswer& answer_to_it) {
  replies.answer(task.session, task.request, answer_to_it);
  administering = false;
  turn.defer([this] { next_administration(); });
}

void Daemon::Impl::write_administration(const Administration& task,
                                        std::vector<fb::RecordT> records,
                                        std::function<QueryAnswer()> then) {
  history.record(std::move(records), [this, task, then = std::move(then)](const Status& status) {
    administered(task, status.ok() ? then() : error_answer(status.error()));
  });
}

void Daemon::Impl::change_tag(const Session& session, const Administration& task) {
  std::optional<ViewPoint> moved_from;  // the commit that the tag named until now
  const auto change = history.read([&] {
    auto parsed = parse_tag_args(query_context(session), task.args);
    if (parsed.ok()) {
      const auto tags = history.catalog().tags(parsed->target.run.id);
      if (const auto tag = tags.find(parsed->tag); tag != tags.end()) moved_from = tag->second;
    }
    return parsed;
  });
  if (!change.ok()) return administered(task, error_answer(change.error()));
  const RunInfo& run = change->target.run;
  // Users who train a run tag its results; users who prune a run tag what is to stay.
  const bool trains = may(session, run, ckpt::Right::kCommit);
  const Status allowed =
      check_may(session, run, trains ? ckpt::Right::kCommit : ckpt::Right::kPrune);
  if (!allowed.ok()) return administered(task, error_answer(allowed.error()));
  nlohmann::json document = {{"run", run.name}, {"tag", change->tag}};
  std::vector<fb::RecordT> records;
  if (change->remove) {
    fb::UntaggedT untagged;
    untagged.run = run.id;
    untagged.tag = change->tag;
    untagged.time_ns = turn.wall_clock_ns();
    records.push_back(make_record(std::move(untagged)));
    document["removed"] = true;
  } else {
    fb::TaggedT tagged;
    tagged.tag = change->tag;
    if (moved_from && *moved_from != change->target.point) {
      document["moved_from"] = {{"step", moved_from->step}, {"lineage", moved_from->lineage}};
    }
    document["step"] = change->target.point.step;
    document["lineage"] = change->target.point.lineage;
    records.push_back(
        record_at(run, change->target.point, turn.wall_clock_ns(), std::move(tagged)));
  }
  write_administration(task, std::move(records), [json = ckpt::base::dump_json(document)] {
    return QueryAnswer{0, json};
  });
}

void Daemon::Impl::change_pin(const Session& session, const Administration& task) {
  const auto change =
      history.read([&] { return parse_pin_args(query_context(session), task.args); });
  if (!change.ok()) return administered(task, error_answer(change.error()));
  const auto& [run, point] = change->target;
  const Status allowed = check_may(session, run, ckpt::Right::kPrune);
  if (!allowed.ok()) return administered(task, error_answer(allowed.error()));
  const nlohmann::json document = {{"run", run.name},
                                   {"step", point.step},
                                   {"lineage", point.lineage},
                                   {"pinned", !change->remove}};
  std::vector<fb::RecordT> records;
  records.push_back(change->remove ? record_at<fb::UnpinnedT>(run, point, turn.wall_clock_ns())
                                   : record_at<fb::PinnedT>(run, point, turn.wall_clock_ns()));
  write_administration(task, std::move(records), [json = ckpt::base::dump_json(document)] {
    return QueryAnswer{0, json};
  });
}

QueryAnswer Daemon::Impl::rules_answer(const QueryContext& context, const RunInfo& run) {
  const auto answer = history.read([&] { return Result(keep_answer(context, run)); });
  return answer.ok() ? *answer : error_answer(answer.error());
}

void Daemon::Impl::change_rules(const Session& session, const Administration& task) {
  const QueryContext context = query_context(session);
  const auto keep = history.read([&] { return parse_keep_args(context, task.args); });
  if (!keep.ok()) return administered(task, error_answer(keep.error()));
  if (!keep->rules) return administered(task, rules_answer(context, keep->run));
  const Status allowed = check_may(session, keep->run, ckpt::Right::kPrune);
  if (!allowed.ok()) return administered(task, error_answer(allowed.error()));
  // `{}` removes the rules.
  if (!keep->rules->empty()) {
    const Status useful =
        history.read([&] { return check_rules(history.catalog(), keep->run.id, *keep->rules); });
    if (!useful.ok()) return administered(task, error_answer(useful.error()));
  }
  fb::RulesSetT rules = ckpt::to_fb(*keep->rules);
  rules.run = keep->run.id;
  rules.time_ns = turn.wall_clock_ns();
  std::vector<fb::RecordT> records;
  records.push_back(make_record(std::move(rules)));
  write_administration(task, std::move(records), [this, run = keep->run] {
    return rules_answer({.catalog = history.catalog()}, run);
  });
}

// Does not affect work in progress: a revoked grant only prevents the session from joining
// again.
void Daemon::Impl::change_grant(const Session& session, const Administration& task) {
  const QueryContext context = query_context(session);
  const auto grant = history.read([&] { return parse_grant_args(context, task.args); });
  if (!grant.ok()) return administered(task, error_answer(grant.error()));
  if (!grant->user) return administered(task, grant_answer(context, grant->run));
  const Status allowed = check_owner(session, grant->run);
  if (!allowed.ok()) return administered(task, error_answer(allowed.error()));
  fb::GrantedT granted = ckpt::to_fb(*grant->user, grant->rights);
  granted.run = grant->run.id;
  granted.time_ns = turn.wall_clock_ns();
  spdlog::info("run {}: user {} may {}, says user {}", grant->run.name, *grant->user,
               grant->rights.any() ? fmt::format("{}", fmt::join(right_names(grant->rights), ", "))
                                   : "do nothing",
               session.uid);
  std::vector<fb::RecordT> records;
  records.push_back(make_record(std::move(granted)));
  write_administration(task, std::move(records), [this, run = grant->run] {
    return grant_answer({.catalog = history.catalog()}, run);
  });
}

// The index must be complete, and no resume point may be on its way into the journal: the commit
// that the next epoch resumes from would look like any other.
Status Daemon::Impl::may_prune(const RunInfo& run) const {
  CKPT_TRY(history.catalog().health());
  if (epochs_being_written.contains(run.id)) {
    return make_error(ErrorCode::kUnavailable, "run {}: an epoch is being opened; try again",
                      run.name);
  }
  return {};
}

Result<PrunePlan> Daemon::Impl::make_prune_plan(const Session& session,
                                                const PruneArgs& args) const {
  CKPT_TRY(may_prune(args.run));
  if (args.force && !may_use(session, ::geteuid())) {
    return make_error(ErrorCode::kPermissionDenied,
                      "prune --force: only root and the daemon's own user end what readers hold");
  }
  PruneRequest request;
  request.run = args.run.id;
  request.rules = args.rules ? *args.rules : history.catalog().keep_rules(args.run.id);
  request.now_ns = turn.wall_clock_ns();
  request.busy = points_being_taken(args.run.id);
  request.held = snapshots->versions_held(args.run.id);
  if (!args.force) request.held_views = readers.held_views(args.run.id);
  return plan_prune(history.catalog(), request);
}

std::vector<ViewPoint> Daemon::Impl::points_being_taken(ckpt::RunId run) const {
  std::vector<ViewPoint> points;
  for (const SnapshotKey& open : snapshots->open(run)) points.push_back({open.lineage, open.step});
  return points;
}

// Appends the records; background/space.h later reclaims the space that they make dead.
void Daemon::Impl::prune(const Session& session, const Administration& task) {
  const auto args =
      history.read([&] { return parse_prune_args(query_context(session), task.args); });
  if (!args.ok()) return administered(task, error_answer(args.error()));
  const Status allowed = check_may(session, args->run, ckpt::Right::kPrune);
  if (!allowed.ok()) return administered(task, error_answer(allowed.error()));
  const auto plan = history.read([&] { return make_prune_plan(session, *args); });
  if (!plan.ok()) return administered(task, error_answer(plan.error()));
  const QueryAnswer document = prune_answer(args->run, *plan, args->dry_run, args->page);
  if (args->dry_run || plan->removed.empty()) return administered(task, document);
  if (args->force) {
    // Readers of kept commits keep their holds.
    std::set<ViewPoint> kept;
    for (const PrunePlan::Kept& one : plan->kept) kept.insert(one.point);
    readers.end_holds_by_force(session, [&](const Hold& hold) {
      return hold.run == args->run.id && !kept.contains(hold.view);
    });
  }
  delete_planned(task, args->run, *plan, args->page,
                 prune_records(args->run, *plan, turn.wall_clock_ns()));
}

// Takes effect completely or not at all. Meanwhile no epoch resumes from the run.
void Daemon::Impl::delete_planned(const Administration& task, const RunInfo& run,
                                  const PrunePlan& plan, const PlanPage& page,
                                  std::vector<fb::RecordT> records) {
  pruning = run.id;
  history.record(std::move(records), [this, task, run, plan, page](const Status& status) {
    pruning.reset();
    snapshot_ended = true;  // an epoch may be waiting for this
    const bool whole_run = std::exchange(removing, std::nullopt) == run.id;
    if (!status.ok()) return administered(task, error_answer(status.error()));
    counters.commits_deleted +=
        static_cast<uint64_t>(std::count_if(plan.removed.begin(), plan.removed.end(),
                                            [](const auto& removed) { return !removed.again; }));
    log_prune(run, plan);
    scrub.deleted(run, plan.removed_points());
    if (whole_run) run_gone(run);
    administered(task, prune_answer(run, plan, /*dry_run=*/false, page));
  });
}

// Drops the state of a removed run outside of the catalog.
void Daemon::Impl::run_gone(const RunInfo& run) {
  staging->drop_cached(run.id);
  staging->unpin_memory(run.id);
  snapshots->versions_lost(run.id);
  persist->forget_shortage(run.id);
  health_watch.run_removed(run.name);
  snapshots->forget_registration(run.name);
}

// Pending writes to the run, and their waiters, would be lost.
Status Daemon::Impl::may_remove(const RunInfo& run) const {
  CKPT_TRY(may_prune(run));
  const auto in_use = [&](const std::string& by) {
    return make_error(ErrorCode::kFailedPrecondition, "run {}: it is in use: {}", run.name, by);
  };
  for (const auto& [id, session] : sessions.all()) {
    if (session.run != run.id || !may(session, run, ckpt::Right::kCommit)) continue;
    return in_use(fmt::format("session {}, process {}, trains it", id, session.pid));
  }
  if (creating_runs.contains(run.name)) return in_use("its units are being registered");
  if (!snapshots->open(run.id).empty()) return in_use("a snapshot of it is being taken");
  if (!epochs.groups().in_use(run.id)) return {};
  return in_use(epochs.rejoins_over()
                    ? std::string("an epoch of it goes on")
                    : fmt::format("ranks of its last epoch have {} s from the daemon's start to "
                                  "come back",
                                  limits::kReopenDeadline / std::chrono::seconds(1)));
}

void Daemon::Impl::remove(const Session& session, const Administration& task) {
  const auto args =
      history.read([&] { return parse_remove_args(query_context(session), task.args); });
  if (!args.ok()) return administered(task, error_answer(args.error()));
  const RunInfo& run = args->run;
  const Status allowed =
      args->point ? check_may(session, run, ckpt::Right::kPrune) : check_owner(session, run);
  if (!allowed.ok()) return administered(task, error_answer(allowed.error()));
  const Status unused = may_remove(run);
  const Status possible = args->point ? may_prune(run) : unused;
  if (!possible.ok()) return administered(task, error_answer(possible.error()));
  RemovalRequest request{
      .run = run.id,
      .point = args->point,
      .reason = fmt::format("{}removed by user {}", args->dry_run ? "to be " : "", session.uid),
      .force = args->force,
      .in_use = !unused.ok(),
      .busy = points_being_taken(run.id),
      .held = snapshots->versions_held(run.id),
      .held_views = readers.held_views(run.id)};
  // Root's force ends readers' holds on exactly the commits to remove.
  const bool ends_holds = args->force && may_use(session, ::geteuid());
  if (ends_holds) {
    std::erase_if(request.held_views,
                  [&](const HeldView& held) { return !args->point || held.view == *args->point; });
  }
  const auto plan = history.read([&] { return plan_removal(history.catalog(), request); });
  if (!plan.ok()) return administered(task, error_answer(plan.error()));
  if (args->dry_run)
    return administered(task, prune_answer(run, *plan, /*dry_run=*/true, args->page));
  if (ends_holds) {
    readers.end_holds_by_force(session, [&](const Hold& hold) {
      return hold.run == run.id && (!args->point || hold.view == *args->point);
    });
  }
  std::vector<fb::RecordT> records;
  if (args->point) {
    records = prune_records(run, *plan, turn.wall_clock_ns());
  } else {
    log_event(spdlog::level::info, "run_removed",
              {{"run", run.name},
               {"commits", run.commits},
               {"bytes", run.bytes},
               {"reason", request.reason}},
              "run {}: {}: {}, {} bytes", run.name, request.reason,
              ckpt::base::counted(run.commits, "commit"), run.bytes);
    fb::RunRemovedT removed;
    removed.run = run.id;
    removed.time_ns = turn.wall_clock_ns();
    removed.reason = request.reason;
    removed.commits = run.commits;
    removed.bytes = run.bytes;
    records.push_back(make_record(std::move(removed)));
    removing = run.id;
  }
  delete_planned(task, run, *plan, args->page, std::move(records));
}

}  // namespace ckptd

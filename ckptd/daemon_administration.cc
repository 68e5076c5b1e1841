// Tags, pins, rules and prunes: what people change about history. One after the other: each sees
// what the one before it has written, and what was acknowledged is never undone by something that
// was decided before.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ckptd/daemon_impl.h"
#include "ckptd/retention/prune.h"

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

// What it removes, and the tags that would point at nothing.
std::vector<fb::RecordT> prune_records(const RunInfo& run, const PrunePlan& plan,
                                       uint64_t time_ns) {
  std::vector<fb::RecordT> records;
  for (const PrunePlan::Removed& removed : plan.removed) {
    for (const std::string& tag : removed.tags) {
      fb::UntaggedT untagged;
      untagged.run = run.id;
      untagged.tag = tag;
      untagged.time_ns = time_ns;
      records.push_back(make_record(std::move(untagged)));
    }
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
    spdlog::info("run {} lineage {} step {}: deleted: {}; {} of its units stay for other views",
                 run.name, removed.point.lineage, removed.point.step, removed.reason,
                 removed.kept_units.size());
  }
}

}  // namespace

bool Daemon::Impl::is_administration(std::string_view verb) {
  return verb == "tag" || verb == "pin" || verb == "keep" || verb == "prune";
}

void Daemon::Impl::administer(const Session& session, const fb::QueryT& message) {
  if (administrations.size() >= limits::kAdministrationsWaitingMax) {
    return answer(session.id, message.request,
                  error_answer(make_error(ErrorCode::kResourceExhausted,
                                          "{} changes of history wait already, the most",
                                          administrations.size())));
  }
  administrations.push_back({session.id, message.request, message.verb, message.args});
  next_administration();
}

void Daemon::Impl::next_administration() {
  while (!administering && !administrations.empty()) {
    const Administration task = std::move(administrations.front());
    administrations.pop_front();
    const auto session = sessions.find(task.session);
    if (session == sessions.end()) continue;
    administering = true;
    if (task.verb == "tag") {
      change_tag(session->second, task);
    } else if (task.verb == "pin") {
      change_pin(session->second, task);
    } else if (task.verb == "keep") {
      change_rules(session->second, task);
    } else {
      prune(session->second, task);
    }
  }
}

// Exactly once for each.
void Daemon::Impl::administered(const Administration& task, const QueryAnswer& answer_to_it) {
  answer(task.session, task.request, answer_to_it);
  administering = false;
  deferred.push_back([this] { next_administration(); });
}

void Daemon::Impl::write_administration(const Administration& task,
                                        std::vector<fb::RecordT> records,
                                        std::function<QueryAnswer()> then) {
  record(std::move(records), [this, task, then = std::move(then)](const Status& status) {
    administered(task, status.ok() ? then() : error_answer(status.error()));
  });
}

void Daemon::Impl::change_tag(const Session& session, const Administration& task) {
  const auto change = parse_tag_args(query_context(session), task.args);
  if (!change.ok()) return administered(task, error_answer(change.error()));
  const RunInfo& run = change->target.run;
  nlohmann::json document = {{"run", run.name}, {"tag", change->tag}};
  std::vector<fb::RecordT> records;
  if (change->remove) {
    fb::UntaggedT untagged;
    untagged.run = run.id;
    untagged.tag = change->tag;
    untagged.time_ns = wall_clock_ns();
    records.push_back(make_record(std::move(untagged)));
    document["removed"] = true;
  } else {
    fb::TaggedT tagged;
    tagged.tag = change->tag;
    document["step"] = change->target.point.step;
    document["lineage"] = change->target.point.lineage;
    records.push_back(record_at(run, change->target.point, wall_clock_ns(), std::move(tagged)));
  }
  write_administration(task, std::move(records), [json = document.dump()] {
    return QueryAnswer{0, json};
  });
}

void Daemon::Impl::change_pin(const Session& session, const Administration& task) {
  const auto change = parse_pin_args(query_context(session), task.args);
  if (!change.ok()) return administered(task, error_answer(change.error()));
  const auto& [run, point] = change->target;
  const nlohmann::json document = {{"run", run.name},
                                   {"step", point.step},
                                   {"lineage", point.lineage},
                                   {"pinned", !change->remove}};
  std::vector<fb::RecordT> records;
  records.push_back(change->remove ? record_at<fb::UnpinnedT>(run, point, wall_clock_ns())
                                   : record_at<fb::PinnedT>(run, point, wall_clock_ns()));
  write_administration(task, std::move(records), [json = document.dump()] {
    return QueryAnswer{0, json};
  });
}

void Daemon::Impl::change_rules(const Session& session, const Administration& task) {
  const QueryContext context = query_context(session);
  const auto keep = parse_keep_args(context, task.args);
  if (!keep.ok()) return administered(task, error_answer(keep.error()));
  if (!keep->rules) return administered(task, keep_answer(context, keep->run));
  fb::RulesSetT rules = ckpt::to_fb(*keep->rules);
  rules.run = keep->run.id;
  rules.time_ns = wall_clock_ns();
  std::vector<fb::RecordT> records;
  records.push_back(make_record(std::move(rules)));
  write_administration(task, std::move(records),
                       [this, run = keep->run] { return keep_answer({.catalog = *catalog}, run); });
}

// The index must have every record, and no resume point be on its way into the journal: a commit
// that the next epoch resumes from would look like any other.
Status Daemon::Impl::may_prune(const RunInfo& run) const {
  CKPT_TRY(catalog->health());
  if (catalog->applied_sequence() < last_sequence) {
    return make_error(ErrorCode::kUnavailable,
                      "run {}: the catalog lacks journal records; try again", run.name);
  }
  if (epochs_being_written.contains(run.id)) {
    return make_error(ErrorCode::kUnavailable, "run {}: an epoch is being opened; try again",
                      run.name);
  }
  return {};
}

Result<PrunePlan> Daemon::Impl::make_prune_plan(const PruneArgs& args) const {
  CKPT_TRY(may_prune(args.run));
  PruneRequest request;
  request.run = args.run.id;
  request.rules = args.rules ? *args.rules : catalog->keep_rules(args.run.id);
  for (const SnapshotKey& open : ingest.open(args.run.id)) {
    request.busy.push_back({open.lineage, open.step});
  }
  return plan_prune(*catalog, request);
}

// The records say everything; what they make dead is given back afterwards (daemon_gc.cc).
void Daemon::Impl::prune(const Session& session, const Administration& task) {
  const auto args = parse_prune_args(query_context(session), task.args);
  if (!args.ok()) return administered(task, error_answer(args.error()));
  const auto plan = make_prune_plan(*args);
  if (!plan.ok()) return administered(task, error_answer(plan.error()));
  const QueryAnswer document = prune_answer(args->run, *plan, args->dry_run);
  if (args->dry_run || plan->removed.empty()) return administered(task, document);
  pruning = args->run.id;
  record(prune_records(args->run, *plan, wall_clock_ns()), [this, task, document, run = args->run,
                                                            plan = *plan](const Status& status) {
    pruning.reset();
    snapshot_ended = true;  // an epoch may have waited for this
    if (!status.ok()) return administered(task, error_answer(status.error()));
    counters.commits_deleted +=
        static_cast<uint64_t>(std::count_if(plan.removed.begin(), plan.removed.end(),
                                            [](const auto& removed) { return !removed.again; }));
    log_prune(run, plan);
    administered(task, document);
  });
}

}  // namespace ckptd

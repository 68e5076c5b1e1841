#include "ckptd/reports/status.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "ckptd/limits.h"
#include "ckptd/observe/health_text.h"
#include "ckptd/query/documents.h"
#include "ckptd/reports/slab_states.h"
#include "ckptd/sessions/access.h"
#include "formats/base/json_dump.h"

namespace ckptd {

namespace fb = ckpt::fb;

namespace {

using Document = nlohmann::json;

// `ckptctl scrub --status` has the details.
Document scrub_summary(const ScrubReport& report, uint64_t now_ns) {
  const uint64_t ended_ns = report.state.last.ended_ns;
  Document summary = {
      {"state", report.doing},
      {"damaged_units", report.state.damages.size() + report.state.damages_left_out},
      {"commits_waiting", report.commits_waiting},
      {"seconds_since_last_pass", nullptr}};
  if (ended_ns > 0 && ended_ns <= now_ns) {
    summary["seconds_since_last_pass"] = (now_ns - ended_ns) / 1'000'000'000;
  }
  return summary;
}

// Holds of readers, for runs that the client may read.
Document holds_document(const Holds& holds, Time now,
                        const std::function<std::string(ckpt::RunId)>& readable_name) {
  Document document = Document::array();
  for (const auto& [id, hold] : holds.all()) {
    const std::string run = readable_name(hold.run);
    if (run.empty()) continue;
    document.push_back(
        {{"run", run},
         {"lineage", hold.view.lineage},
         {"step", hold.view.step},
         {"session", hold.holder.session},
         {"client", hold.holder.client},
         {"process", hold.holder.pid},
         {"user", hold.holder.uid},
         {"since", iso_time(hold.since_ns)},
         {"idle_seconds",
          hold.of_job ? 0
                      : std::chrono::floor<std::chrono::seconds>(now - hold.progress_at).count()}});
  }
  return document;
}

// Age in seconds since `since_ns`; 0 if the clock was set back.
double seconds_since(uint64_t since_ns, uint64_t now_ns) {
  return now_ns > since_ns ? static_cast<double>(now_ns - since_ns) / 1e9 : 0;
}

// `runs_seen` is false for users who may not read every run: causes that name runs are omitted.
Document conditions_document(const Health& health, uint64_t now_ns, bool runs_seen) {
  Document document = Document::array();
  for (size_t i = 0; i < kConditions; ++i) {
    const auto condition = static_cast<Condition>(i);
    const Health::Held* held = health.held(condition);
    if (held == nullptr) continue;
    const bool names_runs = condition == Condition::kSnapshotsFailing;
    document.push_back({{"name", condition_name(condition)},
                        {"since", iso_time(held->since_ns)},
                        {"seconds", seconds_since(held->since_ns, now_ns)},
                        {"stops_saving", stops_saving(condition)},
                        {"reason", names_runs && !runs_seen ? "snapshots of a run fail in a row"
                                                            : held->fault.cause},
                        {"remedy", held->fault.remedy}});
  }
  return document;
}

// Sealed snapshots that are not written to disk yet.
Document waiting_document(const std::optional<RunProgress::Waiting>& waiting) {
  if (!waiting) return nullptr;
  return {{"snapshots", waiting->count},
          {"first_step", waiting->first_step},
          {"seconds", static_cast<double>(waiting->longest_ns) / 1e9}};
}

// The last durable step of each run, the snapshots that wait for the disk, and those that failed
// since. `awaited`: true if ranks of the run may rejoin after a daemon restart.
Document durable_document(const RunProgress& progress, uint64_t now_ns,
                          const std::function<bool(const std::string&)>& may_read,
                          const std::function<bool(const std::string&)>& awaited) {
  Document document = Document::array();
  for (const auto& [name, run] : progress.latest(progress.runs().size())) {
    if (!may_read(name)) continue;
    if (document.size() >= limits::kRunsInMetricsMax) break;
    Document row = {{"run", name},
                    {"trained", run->trained},
                    {"awaited", awaited(name)},
                    {"lineage", nullptr},
                    {"step", nullptr},
                    {"time", nullptr},
                    {"age_seconds", nullptr},
                    {"waiting", waiting_document(run->waiting)},
                    {"failing", nullptr}};
    if (run->durable) {
      row["lineage"] = run->durable->lineage;
      row["step"] = run->durable->step;
      row["time"] = iso_time(run->durable->time_ns);
      row["age_seconds"] = static_cast<double>(age_ns(*run->durable, now_ns)) / 1e9;
    }
    if (run->failing) {
      row["failing"] = {{"snapshots", run->failing->count},
                        {"first_step", run->failing->first_step},
                        {"last_step", run->failing->last_step},
                        {"seconds", seconds_since(run->failing->since_ns, now_ns)},
                        {"reason", run->failing->cause}};
    }
    document.push_back(std::move(row));
  }
  return document;
}

Document session_document(const Session& session, const std::optional<Groups::Member>& member,
                          const Staging& staging) {
  Document document = {{"session", session.id},
                       {"process", session.pid},
                       {"user", session.uid},
                       {"client", session.client},
                       {"kind", session.kind == fb::SessionKind::Trainer ? "trainer" : "control"},
                       {"run", session.run_name}};
  if (session.arena) document["arena_bytes"] = staging.layout(*session.arena).arena_bytes();
  if (member) {
    document["rank"] = member->rank;
    document["epoch"] = member->epoch;
  }
  return document;
}

// Sessions that the asker may see: its user's own, and those of runs that it may read.
Document sessions_document(const StatusViews& views, const Session& asker) {
  const Catalog& catalog = views.history.catalog();
  Document listed = Document::array();
  for (const auto& [id, session] : views.sessions.all()) {
    if (!may_use(asker, session.uid) && !may_read(asker, session.run_name, catalog)) continue;
    listed.push_back(session_document(session, views.epochs.groups().member(id), views.staging));
  }
  return listed;
}

Document slabs_document(const Staging::Stats& stats) {
  Document slabs;
  for (const auto& [state, name] : kSlabStates) slabs[std::string(name)] = slabs_in(stats, state);
  return slabs;
}

Document disk_document(const DiskRoom& room) {
  return {{"free_bytes", room.space.free_bytes}, {"total_bytes", room.space.total_bytes},
          {"reserve_bytes", room.reserve_bytes}, {"available_bytes", room.available_bytes()},
          {"directory", room.space.directory},   {"mount_point", room.space.mount_point}};
}

}  // namespace

QueryAnswer status_answer(const StatusViews& views, const Session& asker) {
  const Catalog& catalog = views.history.catalog();
  const Groups& groups = views.epochs.groups();
  const auto readable_run = [&catalog, &asker](const std::string& run) {
    return may_read(asker, run, catalog);
  };
  const auto awaited = [&](const std::string& name) {
    const auto run = catalog.run(name);
    return run.ok() && !views.epochs.rejoins_over() && groups.awaited(run->id);
  };
  const auto readable_name = [&](ckpt::RunId id) {
    const auto run = catalog.run(id);
    return run.ok() && may(asker, *run, ckpt::Right::kRead) ? run->name : std::string();
  };
  const std::vector<RunInfo> runs = catalog.runs();
  const auto readable = std::count_if(runs.begin(), runs.end(), [&](const RunInfo& run) {
    return may(asker, run, ckpt::Right::kRead);
  });
  const Health& health = views.health.health();
  const RunProgress& progress = views.health.progress();
  const uint64_t now_ns = views.turn.wall_clock_ns();
  const bool all_seen = may_use(asker, ::geteuid());
  const Staging::Stats stats = views.staging.stats();
  Document document = {
      {"store", ckpt::base::to_hex(views.history.store_id())},
      {"state", views.is_draining ? "draining" : "ready"},
      {"can_save", !views.is_draining && health.can_save()},
      {"conditions", conditions_document(health, now_ns, all_seen)},
      {"durable", durable_document(progress, now_ns, readable_run, awaited)},
      {"uptime_seconds", std::chrono::duration<double>(views.turn.now()).count()},
      {"engine", views.disk.engine_name()},
      {"io_shape", to_text(views.io_shape)},
      {"zero_copy", stats.zero_copy},
      {"runs", readable},
      {"sessions", sessions_document(views, asker)},
      {"holds", holds_document(views.holds.held(), views.turn.now(), readable_name)},
      {"snapshots_open", views.snapshots.open_count()},
      {"arena_bytes", stats.arena_bytes},
      {"arena_bytes_max", views.arena_bytes_max},
      {"warm_pool_bytes", stats.warm_pool_bytes},
      {"slabs", slabs_document(stats)},
      {"scrub", scrub_summary(views.scrub.report(), now_ns)},
      {"journal_bytes", views.history.journal().bytes()},
      {"segment_bytes_written", views.persist.stats().bytes_written}};
  if (const auto room = views.persist.room(); room.ok()) document["disk"] = disk_document(*room);
  return {.exit_code = 0, .json = ckpt::base::dump_json(document)};
}

}  // namespace ckptd

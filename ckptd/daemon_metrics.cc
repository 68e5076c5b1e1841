// Metrics for Prometheus.
#include <chrono>
#include <string>
#include <utility>

#include "ckptd/daemon_impl.h"
#include "ckptd/daemon_slab_states.h"
#include "ckptd/observe/health_text.h"
#include "ckptd/observe/metrics_text.h"
#include "ckptd/query/documents.h"

namespace ckptd {

namespace {

void add_space(MetricsText& text, const Space::Counters& counters) {
  text.counter("ckptd_freed_bytes_total", "Bytes of segments given back to the disk.",
               counters.freed_bytes);
  text.counter("ckptd_segments_removed_total", "Segment files removed, nothing in them being live.",
               counters.segments_removed);
  text.counter("ckptd_space_errors_total", "Rounds of giving space back that failed.",
               counters.errors);
}

void add_snapshots(MetricsText& text, const Snapshots::Counters& counters) {
  text.counter("ckptd_commits_total", "Snapshots made durable.", counters.commits);
  text.counter("ckptd_commit_bytes_total", "Bytes of units in them.", counters.commit_bytes);
  text.counter("ckptd_same_bytes_total",
               "Bytes of units that were not written, since the disk had them.",
               counters.same_bytes);
  text.counter("ckptd_snapshots_failed_total", "Snapshots that were given up.", counters.failed);
  text.counter("ckptd_snapshots_skipped_total", "Snapshots refused for want of slabs or places.",
               counters.skipped);
  text.counter("ckptd_lease_waits_total", "Times a trainer had to wait for slabs.",
               counters.lease_waits);
  text.seconds("ckptd_lease_wait_seconds_total", "How long, of those that got them.",
               counters.lease_wait_time);
  text.seconds("ckptd_level_lag_seconds_total", "From staged to durable, of all commits together.",
               counters.level_lag);
}

void add_sources(MetricsText& text, const Sources& sources, const Restores::Counters& restores) {
  for (const auto& source : sources.in_order()) {
    text.counter("ckptd_restore_bytes_total", "Bytes given to trainers, by source.",
                 restores.bytes[source->id()], {{"source", source->name()}});
  }
  text.counter("ckptd_restore_bytes_total", "", restores.bytes_located, {{"source", "located"}});
  for (const auto& source : sources.in_order()) {
    const auto add = [&](std::string_view cause, uint64_t count) {
      text.counter("ckptd_restore_source_failures_total",
                   "Fragments that a source did not serve, by cause.", count,
                   {{"source", source->name()}, {"cause", cause}});
    };
    add("wrong_bytes", source->failures().wrong_bytes);
    add("failed", source->failures().failed);
    add("cancelled", source->failures().cancelled);
  }
}

void add_counters(MetricsText& text, const Counters& counters, const Epochs::Counters& epochs,
                  const Administration::Counters& changes, const Space::Counters& space,
                  const Readers& readers) {
  const Restores::Counters& restores = readers.restores().counters();
  text.counter("ckptd_epochs_opened_total", "Group epochs opened.", epochs.opened);
  text.counter("ckptd_epochs_ended_total", "Group epochs ended by a loss or a change of members.",
               epochs.ended);
  text.counter("ckptd_members_lost_total",
               "Group members that ended without leaving in good order.", epochs.members_lost);
  text.counter("ckptd_restores_total", "Restores opened.", restores.opened);
  text.seconds("ckptd_restore_seconds_total",
               "From the request to its last bytes, of all restores.", restores.time);
  add_sources(text, readers.sources(), restores);
  text.counter("ckptd_restore_fallbacks_total",
               "Ranges served from another source or an older version.", restores.fallbacks);
  text.counter("ckptd_verify_errors_total", "Damage found by verify.",
               readers.verifies().counters().errors);
  text.counter("ckptd_commits_deleted_total", "Commits that prunes removed.",
               changes.commits_deleted);
  add_space(text, space);
  text.counter("ckptd_arenas_adopted_total", "Arenas taken back after a restart.",
               counters.arenas_adopted);
  text.counter("ckptd_slabs_taken_back_total", "Slabs that the last daemon had left in memory.",
               counters.slabs_taken_back);
  text.counter("ckptd_slabs_not_taken_back_total", "Those, and whole arenas, not believed.",
               counters.slabs_not_taken_back);
  text.counter("ckptd_protocol_errors_total", "Sessions ended for messages that make no sense.",
               counters.protocol_errors);
}

void add_staging(MetricsText& text, const Staging::Stats& stats) {
  for (const auto& [state, name] : kSlabStates) {
    text.gauge("ckptd_slabs", "Slabs of all arenas, by state.",
               static_cast<double>(slabs_in(stats, state)), {{"state", name}});
  }
  text.gauge("ckptd_arena_bytes", "Shared memory of all arenas.",
             static_cast<double>(stats.arena_bytes));
  text.gauge("ckptd_warm_pool_bytes", "Memory that is faulted in for sessions to come.",
             static_cast<double>(stats.warm_pool_bytes));
  text.gauge("ckptd_memory_versions", "Versions of units that are in memory only.",
             static_cast<double>(stats.memory_versions));
  text.counter("ckptd_memory_evictions_total", "Those that gave way to something else.",
               stats.evicted_versions);
  text.gauge("ckptd_zero_copy", "1 while every arena is registered with the disk.",
             stats.zero_copy ? 1 : 0);
}

void add_timings(MetricsText& text, const SnapshotHistograms& histograms) {
  const char* help = "Time of durable snapshots, by part; of several ranks the slowest.";
  for (size_t i = 0; i < ckpt::kSnapshotParts.size(); ++i) {
    text.histogram("ckptd_snapshot_seconds", help, histograms.of_part(i), "part",
                   ckpt::kSnapshotParts[i].name);
  }
}

void add_holds(MetricsText& text, const ReaderHolds& holds) {
  text.gauge("ckptd_holds", "Views that readers hold: no prune removes them.",
             static_cast<double>(holds.held().all().size()));
  text.counter("ckptd_holds_overdue_total",
               "Holds that ended since their readers made no progress.", holds.counters().overdue);
  text.counter("ckptd_holds_forced_total", "Holds that root ended by force.",
               holds.counters().forced);
}

void add_alarms(MetricsText& text, const Snapshots::Counters& counters) {
  const char* help = "What looked wrong with units of snapshots, by kind.";
  for (size_t kind = 0; kind < counters.alarms.size(); ++kind) {
    const auto name = ckpt::alarm_kind_name(static_cast<fb::AlarmKind>(kind));
    text.counter("ckptd_alarms_total", std::exchange(help, ""), counters.alarms[kind],
                 {{"kind", std::string(name)}});
  }
}

void add_scrub(MetricsText& text, const Scrub& scrub) {
  text.counter("ckptd_scrub_bytes_total", "Bytes that scrub read back.", scrub.counters().bytes);
  text.counter("ckptd_scrub_passes_total", "Passes over the whole store that came to their end.",
               scrub.counters().passes);
  text.counter("ckptd_scrub_errors_total", "Damage found by scrub, by each pass again.",
               scrub.counters().errors);
  text.gauge("ckptd_scrub_damaged_units", "Units of commits that scrub knows to be damaged.",
             static_cast<double>(scrub.state().damages.size() + scrub.state().damages_left_out));
  text.gauge("ckptd_scrub_commits_waiting", "New commits that were not read back yet.",
             static_cast<double>(scrub.commits_waiting()));
  text.gauge("ckptd_scrub_last_pass_seconds",
             "When the last pass ended, in seconds since 1970; 0: never.",
             static_cast<double>(scrub.state().last.ended_ns) / 1e9);
}

void add_persist(MetricsText& text, const Persist::Stats& stats) {
  text.counter("ckptd_written_bytes_total", "Bytes written into segments.", stats.bytes_written);
  text.counter("ckptd_extents_total", "Extents written.", stats.extents_written);
  text.counter("ckptd_syncs_total", "Syncs of segments.", stats.syncs);
  text.counter("ckptd_payload_mismatches_total", "Slabs that changed while they were written.",
               stats.payload_mismatches);
  text.counter("ckptd_fragment_bytes_total", "Bytes of units written into segments, by codec.",
               stats.raw_bytes, {{"codec", "none"}});
  text.counter("ckptd_fragment_bytes_total", "", stats.encoded_raw_bytes, {{"codec", "zstd"}});
  text.counter("ckptd_fragment_bytes_total", "", stats.delta_raw_bytes, {{"codec", "delta"}});
  text.counter("ckptd_fragment_stored_bytes_total", "What they take there.", stats.raw_bytes,
               {{"codec", "none"}});
  text.counter("ckptd_fragment_stored_bytes_total", "", stats.encoded_stored_bytes,
               {{"codec", "zstd"}});
  text.counter("ckptd_fragment_stored_bytes_total", "", stats.delta_stored_bytes,
               {{"codec", "delta"}});
  text.seconds("ckptd_encode_seconds_total",
               "Time of threads that encoded, what did not get smaller included.",
               std::chrono::nanoseconds(static_cast<int64_t>(stats.encode_seconds * 1e9)));
  text.gauge("ckptd_disk_write_bytes_per_second",
             "What the disk takes while it has something to write, as of late; 0: not known yet.",
             stats.disk_bytes_per_second);
  text.gauge("ckptd_queued_bytes", "Bytes waiting to be written.",
             static_cast<double>(stats.bytes_queued));
  text.gauge("ckptd_in_flight_bytes", "Bytes being written.",
             static_cast<double>(stats.bytes_in_flight));
}

}  // namespace

RunProgress::Durable durable_of(const CommitInfo& commit) {
  const auto plt = commit.metrics.find("plt");
  RunProgress::Durable durable{.lineage = commit.snapshot.lineage,
                               .step = commit.snapshot.step,
                               .time_ns = commit.time_ns,
                               .lost_tokens = {},
                               .plt = {}};
  if (losses_told(commit)) durable.lost_tokens = commit.lost_tokens;
  if (plt != commit.metrics.end()) durable.plt = plt->second;
  return durable;
}

std::string Daemon::metrics_text() {
  impl_->look_at_health();
  const Impl& impl = *impl_;
  MetricsText text;
  add_snapshots(text, impl.snapshots->counters());
  add_counters(text, impl.counters, impl.epochs.counters(), impl.administration.counters(),
               impl.space.counters(), impl.readers);
  add_timings(text, impl.snapshots->counters().parts);
  add_holds(text, impl.readers.holds());
  add_alarms(text, impl.snapshots->counters());
  text.counter("ckptd_write_errors_total",
               "Writes or syncs that failed: of segments, journal, catalog and ledgers.",
               impl.disk.write_errors() + impl.history.catalog().write_errors() +
                   impl.staging->stats().ledger_errors);
  add_persist(text, impl.persist->stats());
  text.gauge("ckptd_io_depth", "Writes in flight at most.", impl.io_shape.depth);
  text.gauge("ckptd_io_request_bytes", "Size of a write.",
             static_cast<double>(impl.io_shape.bytes));
  text.counter("ckptd_same_read_bytes_total", "Bytes read back to compare them.",
               impl.snapshots->same_read_bytes());
  text.counter("ckptd_base_read_bytes_total", "Bytes read back to make deltas of new ones.",
               impl.snapshots->base_read_bytes());
  text.counter("ckptd_decoded_bytes_total", "Bytes that restores got out of encoded fragments.",
               impl.readers.decoded().raw_bytes);
  text.seconds("ckptd_decode_seconds_total", "Time of threads that decoded them.",
               std::chrono::nanoseconds(impl.readers.decoded().nanoseconds));
  add_scrub(text, impl.scrub.scrub());
  add_progress(text, impl.health_watch.progress(), impl.turn.wall_clock_ns(),
               limits::kRunsInMetricsMax);
  add_health(text, impl.health_watch.health());
  add_staging(text, impl.staging->stats());
  text.gauge("ckptd_sessions", "Connected sessions.", static_cast<double>(impl.sessions.size()));
  text.gauge("ckptd_snapshots_open", "Snapshots begun and not settled.",
             static_cast<double>(impl.snapshots->open_count()));
  text.gauge("ckptd_journal_bytes", "Size of the journal.",
             static_cast<double>(impl.history.journal().bytes()));
  text.gauge("ckptd_journal_open", "0 once a failed write or sync has closed the journal.",
             impl.history.journal().health().ok() ? 1 : 0);
  text.gauge("ckptd_catalog_ok", "0 while the catalog cannot be read or written.",
             impl.history.catalog().health().ok() ? 1 : 0);
  text.gauge("ckptd_runs", "Runs in the store.",
             static_cast<double>(impl.history.catalog().runs().size()));
  if (const auto space = impl.disk.space(); space.ok()) {
    text.gauge("ckptd_disk_free_bytes", "Free space of the data directory's file system.",
               static_cast<double>(space->free_bytes));
  }
  return text.text();
}

}  // namespace ckptd

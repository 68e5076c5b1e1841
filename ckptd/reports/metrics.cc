#include "ckptd/reports/metrics.h"

#include <chrono>
#include <utility>

#include "ckptd/limits.h"
#include "ckptd/observe/health_text.h"
#include "ckptd/observe/metrics_text.h"
#include "ckptd/reports/slab_states.h"

namespace ckptd {

namespace fb = ckpt::fb;

namespace {

void add_space(MetricsText& text, const Space::Counters& counters) {
  text.counter("ckptd_freed_bytes_total", "Bytes of segments returned to the disk.",
               counters.freed_bytes);
  text.counter("ckptd_segments_removed_total", "Segment files removed, without live data.",
               counters.segments_removed);
  text.counter("ckptd_space_errors_total", "Failed rounds of garbage collection.", counters.errors);
}

void add_snapshots(MetricsText& text, const Snapshots::Counters& counters) {
  text.counter("ckptd_commits_total", "Snapshots made durable.", counters.commits);
  text.counter("ckptd_commit_bytes_total", "Bytes of units in durable snapshots.",
               counters.commit_bytes);
  text.counter("ckptd_same_bytes_total", "Deduplicated bytes of units: the disk has them already.",
               counters.dedup_bytes);
  text.counter("ckptd_snapshots_failed_total", "Failed snapshots, skipped ones included.",
               counters.failed);
  text.counter("ckptd_snapshots_skipped_total", "Snapshots refused for lack of slabs or places.",
               counters.skipped);
  text.counter("ckptd_lease_waits_total", "Waits of trainers for slabs, counted when they begin.",
               counters.lease_waits);
  text.seconds("ckptd_lease_wait_seconds_total", "Time of waits that got slabs.",
               counters.lease_wait_time);
  text.seconds("ckptd_level_lag_seconds_total",
               "Sum over commits of the time from staged to durable.", counters.level_lag);
  text.seconds(
      "ckptd_late_rank_seconds_total",
      "Sum over commits of the time between the last seals of the last rank and the others.",
      counters.late_ranks);
}

void add_sources(MetricsText& text, const Sources& sources, const Restores::Counters& restores) {
  for (const auto& source : sources.in_order()) {
    text.counter("ckptd_restore_bytes_total", "Bytes restored, by source.",
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

void add_counters(MetricsText& text, const DaemonCounters& counters, const Epochs::Counters& epochs,
                  const Administration::Counters& changes, const Space::Counters& space,
                  const Readers& readers) {
  const Restores::Counters& restores = readers.restores().counters();
  text.counter("ckptd_epochs_opened_total", "Group epochs opened.", epochs.opened);
  text.counter("ckptd_epochs_ended_total", "Group epochs ended by a loss or a membership change.",
               epochs.ended);
  text.counter("ckptd_members_lost_total", "Group members that ended without leaving the group.",
               epochs.members_lost);
  text.counter("ckptd_restores_total", "Restores opened.", restores.opened);
  text.seconds("ckptd_restore_seconds_total",
               "Sum over restores of the time from request to last byte.", restores.time);
  add_sources(text, readers.sources(), restores);
  text.counter("ckptd_restore_fallbacks_total",
               "Ranges served from another source or an older version.", restores.fallbacks);
  text.counter("ckptd_verify_errors_total", "Damages found by verify.",
               readers.verifies().counters().errors);
  text.counter("ckptd_commits_deleted_total", "Commits removed by prunes.",
               changes.commits_deleted);
  add_space(text, space);
  text.counter("ckptd_arenas_adopted_total", "Arenas that trainers brought back after a restart.",
               counters.arenas_adopted);
  text.counter("ckptd_slabs_taken_back_total",
               "Slabs of the previous daemon recovered from the service manager.",
               counters.slabs_taken_back);
  text.counter("ckptd_slabs_not_taken_back_total",
               "Slabs and whole arenas of the previous daemon that failed a check.",
               counters.slabs_not_taken_back);
  text.counter("ckptd_protocol_errors_total", "Sessions ended for invalid messages.",
               counters.protocol_errors);
}

void add_staging(MetricsText& text, const Staging::Stats& stats) {
  for (const auto& [state, name] : kSlabStates) {
    text.gauge("ckptd_slabs", "Slabs of all arenas, by state.",
               static_cast<double>(slabs_in(stats, state)), {{"state", name}});
  }
  text.gauge("ckptd_arena_bytes", "Shared memory of all arenas.",
             static_cast<double>(stats.arena_bytes));
  text.gauge("ckptd_warm_pool_bytes", "Memory prepared for new sessions.",
             static_cast<double>(stats.warm_pool_bytes));
  text.gauge("ckptd_memory_versions", "Versions of units that are only in memory.",
             static_cast<double>(stats.memory_versions));
  text.counter("ckptd_memory_evictions_total",
               "Evicted versions of units that were only in memory.", stats.evicted_versions);
  text.gauge("ckptd_zero_copy", "1 while every arena is registered with the disk.",
             stats.zero_copy ? 1 : 0);
}

void add_timings(MetricsText& text, const SnapshotHistograms& histograms) {
  const char* help = "Time of durable snapshots by part, of the slowest rank.";
  for (size_t i = 0; i < ckpt::kSnapshotParts.size(); ++i) {
    text.histogram("ckptd_snapshot_seconds", help, histograms.of_part(i), "part",
                   ckpt::kSnapshotParts[i].name);
  }
}

void add_holds(MetricsText& text, const ReaderHolds& holds) {
  text.gauge("ckptd_holds", "Views that readers hold against prunes.",
             static_cast<double>(holds.held().all().size()));
  text.counter("ckptd_holds_overdue_total", "Holds ended because their readers made no progress.",
               holds.counters().overdue);
  text.counter("ckptd_holds_forced_total", "Holds ended by force.", holds.counters().forced);
}

void add_alarms(MetricsText& text, const Snapshots::Counters& counters) {
  const char* help = "Alarms about units of snapshots, by kind.";
  for (size_t kind = 0; kind < counters.alarms.size(); ++kind) {
    const auto name = ckpt::alarm_kind_name(static_cast<fb::AlarmKind>(kind));
    text.counter("ckptd_alarms_total", std::exchange(help, ""), counters.alarms[kind],
                 {{"kind", std::string(name)}});
  }
}

void add_scrub(MetricsText& text, const Scrub& scrub) {
  text.counter("ckptd_scrub_bytes_total", "Bytes of segments read back by scrub.",
               scrub.counters().bytes);
  text.counter("ckptd_scrub_passes_total", "Completed passes of scrub over the store.",
               scrub.counters().passes);
  text.counter("ckptd_scrub_errors_total", "Damages found by scrub, counted again by each pass.",
               scrub.counters().errors);
  text.gauge("ckptd_scrub_damaged_units", "Units known to be damaged.",
             static_cast<double>(scrub.state().damages.size() + scrub.state().damages_left_out));
  text.gauge("ckptd_scrub_commits_waiting", "New commits that scrub has not read back yet.",
             static_cast<double>(scrub.commits_waiting()));
  text.gauge("ckptd_scrub_last_pass_seconds",
             "End of the last pass of scrub, in seconds since 1970; 0: never.",
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
  text.counter("ckptd_fragment_stored_bytes_total",
               "Size on disk of the units written into segments, by codec.", stats.raw_bytes,
               {{"codec", "none"}});
  text.counter("ckptd_fragment_stored_bytes_total", "", stats.encoded_stored_bytes,
               {{"codec", "zstd"}});
  text.counter("ckptd_fragment_stored_bytes_total", "", stats.delta_stored_bytes,
               {{"codec", "delta"}});
  text.seconds("ckptd_encode_seconds_total",
               "Thread time of encoding, attempts without gain included.",
               std::chrono::nanoseconds(static_cast<int64_t>(stats.encode_seconds * 1e9)));
  text.gauge("ckptd_disk_write_bytes_per_second",
             "Recent write rate while the disk is busy; 0: unknown.", stats.disk_bytes_per_second);
  text.gauge("ckptd_queued_bytes", "Bytes waiting to be written.",
             static_cast<double>(stats.bytes_queued));
  text.gauge("ckptd_in_flight_bytes", "Bytes being written.",
             static_cast<double>(stats.bytes_in_flight));
}

// The shape of disk writes, and the bytes read back other than for restores.
void add_reads(MetricsText& text, const MetricViews& views) {
  text.gauge("ckptd_io_depth", "Most writes in flight.", views.io_shape.depth);
  text.gauge("ckptd_io_request_bytes", "Size of a write.",
             static_cast<double>(views.io_shape.bytes));
  text.counter("ckptd_same_read_bytes_total", "Bytes read back to compare them for deduplication.",
               views.snapshots.dedup_read_bytes());
  text.counter("ckptd_base_read_bytes_total", "Bytes read back as bases of deltas.",
               views.snapshots.base_read_bytes());
  text.counter("ckptd_decoded_bytes_total", "Bytes that restores decoded.",
               views.readers.decoded().raw_bytes);
  text.seconds("ckptd_decode_seconds_total", "Thread time of decoding.",
               std::chrono::nanoseconds(views.readers.decoded().nanoseconds));
}

void add_store(MetricsText& text, const History& history) {
  text.gauge("ckptd_journal_bytes", "Size of the journal.",
             static_cast<double>(history.journal().bytes()));
  text.gauge("ckptd_journal_open", "0 once a failed write or sync has closed the journal.",
             history.journal().health().ok() ? 1 : 0);
  text.gauge("ckptd_catalog_ok", "0 while the catalog cannot be read or written.",
             history.catalog().health().ok() ? 1 : 0);
  text.gauge("ckptd_runs", "Runs in the store.",
             static_cast<double>(history.catalog().runs().size()));
}

}  // namespace

std::string write_metrics(const MetricViews& views) {
  MetricsText text;
  add_snapshots(text, views.snapshots.counters());
  add_counters(text, views.counters, views.epochs.counters(), views.administration.counters(),
               views.space.counters(), views.readers);
  add_timings(text, views.snapshots.counters().parts);
  add_holds(text, views.readers.holds());
  add_alarms(text, views.snapshots.counters());
  text.counter("ckptd_write_errors_total",
               "Failed writes and syncs of segments, journal, catalog and ledgers.",
               views.disk.write_errors() + views.history.catalog().write_errors() +
                   views.staging.stats().ledger_errors);
  add_persist(text, views.persist.stats());
  add_reads(text, views);
  add_scrub(text, views.scrub);
  add_progress(text, views.health.progress(), views.turn.wall_clock_ns(),
               limits::kRunsInMetricsMax);
  add_health(text, views.health.health());
  add_staging(text, views.staging.stats());
  text.gauge("ckptd_sessions", "Connected sessions.", static_cast<double>(views.sessions.size()));
  text.gauge("ckptd_snapshots_open", "Snapshots that have begun and not ended.",
             static_cast<double>(views.snapshots.open_count()));
  text.gauge("ckptd_begins_waiting", "Ranks that wait until a snapshot of their run has ended.",
             static_cast<double>(views.snapshots.begins_waiting()));
  text.gauge("ckptd_leases_waiting", "Requests of ranks that wait for slabs.",
             static_cast<double>(views.snapshots.leases_waiting()));
  add_store(text, views.history);
  if (views.disk_space.ok()) {
    text.gauge("ckptd_disk_free_bytes", "Free space of the data directory's file system.",
               static_cast<double>(views.disk_space->free_bytes));
  }
  return text.text();
}

}  // namespace ckptd

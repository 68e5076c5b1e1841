// Fields of events as their JSON lines name them.
//
// fields(visit, part) calls visit(name, member) for each field of a header, a kind or a part of
// kinds. Writer and reader use the same description, and differ in `visit` alone. A field of fp32
// bits goes to visit.hex(name, member).
#pragma once

#include <type_traits>

#include "trainer/elastic/event_kinds.h"

namespace moetrain {

// `Part`, constant for the writer and not for the reader.
template <typename Self, typename Part>
concept Is = std::same_as<std::remove_const_t<Self>, Part>;

void fields(auto& visit, Is<EventHeader> auto& header) {
  visit("rank", header.rank);
  visit("time_ns", header.time_ns);
  visit("epoch", header.epoch);
  visit("step", header.step);
}

void fields(auto& visit, Is<RestoredState> auto& restored) {
  visit("bytes_memory", restored.bytes_memory);
  visit("bytes_disk", restored.bytes_disk);
  visit("stale_units", restored.stale_units);
  visit("lost_tokens", restored.lost_tokens);
  visit("experts_from_seed", restored.experts_from_seed);
}

void fields(auto& visit, Is<Relayout> auto& relayout) {
  visit("bytes_moved", relayout.bytes_moved);
  visit("plan_ms", relayout.plan_ms);
  visit("migrate_ms", relayout.migrate_ms);
  visit("recut_memory_bytes", relayout.memory_bytes);
  visit("recut_memory_bound", relayout.memory_bound);
  visit("plt", relayout.plt);
  visit("plt_rollback", relayout.plt_rollback);
  visit("lost", relayout.lost);
}

void fields(auto& visit, Is<CheckpointPace> auto& pace) {
  visit("checkpoint_every", pace.checkpoint_every);
  visit("experts_per_checkpoint", pace.experts_per_checkpoint);
  visit("experts_per_snapshot", pace.experts_per_snapshot);
}

void fields(auto& visit, Is<JoiningEvent> auto& joining) { visit("pid", joining.pid); }

void fields(auto& visit, Is<TrainingEvent> auto& training) {
  visit("resumed", training.resumed);
  visit("view_lineage", training.view_lineage);
  visit("goes_on", training.survivors_continue);
  visit("joins", training.joins);
  visit("lineage", training.lineage);
  visit("group", training.group);
  visit("effective_replicas", training.effective_replicas);
  visit("collectives", training.collectives);
  visit("regroup_ms", training.regroup_ms);
  fields(visit, training.restored);
  fields(visit, training.relayout);
  fields(visit, training.pace);
  visit("failures", training.failures);
  visit("training_ms", training.training_ms);
}

void fields(auto& visit, Is<GroupLostEvent> auto& lost) { visit("text", lost.reason); }

void fields(auto& visit, Is<RegroupingEvent> auto& regrouping) {
  visit("text", regrouping.reason);
  fields(visit, regrouping.relayout);
}

void fields(auto& visit, Is<DrainedEvent> auto& drained) { fields(visit, drained.relayout); }

void fields(auto& visit, Is<ReplannedEvent> auto& replanned) {
  visit("moved", replanned.moved);
  visit("balance_before", replanned.balance_before);
  visit("balance_after", replanned.balance_after);
  visit("gain_ms", replanned.gain_ms);
  visit("cost_ms", replanned.cost_ms);
  fields(visit, replanned.relayout);
  visit("layer", replanned.layer);
  visit("slots_before", replanned.slots_before);
  visit("slots_after", replanned.slots_after);
  visit("routed", replanned.routed);
}

void fields(auto& visit, Is<DyingEvent> auto& dying) { visit("text", dying.phase); }

void fields(auto& visit, Is<FatalEvent> auto& fatal) {
  visit("text", fatal.reason);
  visit("code", fatal.code);
}

void fields(auto& visit, Is<LogEvent> auto& log) { visit("text", log.text); }

void fields(auto& visit, Is<ExpertExchange> auto& experts) {
  visit("token_bytes", experts.token_bytes);
  visit("restore_bytes", experts.restore_bytes);
  visit("reshard_bytes", experts.reshard_bytes);
  visit("exposed_ms", experts.exposed_ms);
  visit("hidden_ms", experts.hidden_ms);
  visit("plan_waits", experts.plan_waits);
  visit("plan_wait_ms", experts.plan_wait_ms);
  visit("expert_memory_bytes", experts.memory_bytes);
  visit("expert_memory_bound", experts.memory_bound);
}

void fields(auto& visit, Is<ScheduleEvent> auto& schedule) {
  visit("spans", schedule.spans);
  visit("left_out", schedule.left_out);
}

void fields(auto& visit, Is<StepEvent> auto& step) {
  visit.hex("loss_bits", step.loss_bits);
  visit("applied", step.applied);
  visit("ms", step.ms);
  visit("waited_ms", step.waited_ms);
  visit("stall_ms", step.stall_ms);
  visit("room_ms", step.room_ms);
  visit("slabs_ms", step.slabs_ms);
  visit("snapshots_open", step.snapshots_open);
  visit("learning_rate", step.learning_rate);
  visit("gradient_norm", step.gradient_norm);
  visit("busiest_rows", step.busiest_rows);
  visit("max_over_mean", step.max_over_mean);
  fields(visit, step.experts);
  visit("plt", step.plt);
  visit("plt_rollback", step.plt_rollback);
  visit("routed", step.routed);
  visit("resumed_at", step.resumed_at);
  visit("resumed_versions", step.resumed_versions);
  visit("rolled_back", step.rolled_back);
  visit("rolled_back_to", step.rolled_back_to);
}

void fields(auto& visit, Is<TakingEvent> auto& taking) {
  visit("bytes", taking.bytes);
  visit("bytes_kept", taking.bytes_kept);
  visit("rank_bytes_max", taking.rank_bytes_max);
  visit("rank_bytes_mean", taking.rank_bytes_mean);
  visit("experts", taking.experts);
  visit("memory_experts", taking.memory_experts);
}

void fields(auto& visit, Is<ckpt::SnapshotTimings> auto& timings) {
  visit("plan_ns", timings.plan_ns);
  visit("begin_ns", timings.begin_ns);
  visit("slab_wait_ns", timings.slab_wait_ns);
  visit("copy_ns", timings.copy_ns);
  visit("seal_ns", timings.seal_ns);
  visit("write_ns", timings.write_ns);
  visit("sync_ns", timings.sync_ns);
  visit("journal_ns", timings.journal_ns);
}

void fields(auto& visit, Is<SnapshotEvent> auto& snapshot) {
  visit("durable", snapshot.durable);
  visit("text", snapshot.reason);
  visit("detail", snapshot.detail);
  visit("no_answer", snapshot.no_answer);
  visit("taken_in", snapshot.taken_in);
  visit("bytes", snapshot.bytes);
  visit("stall_ms", snapshot.stall_ms);
  visit("durable_ms", snapshot.durable_ms);
  fields(visit, snapshot.timings);
}

void fields(auto& visit, Is<StallingEvent> auto& stalling) {
  visit("waited_ms", stalling.waited_ms);
  visit("snapshots_open", stalling.snapshots_open);
}

void fields(auto& visit, Is<PacingEvent> auto& pacing) {
  visit("text", pacing.reason);
  fields(visit, pacing.pace);
}

void fields(auto& visit, Is<SavedEvent> auto& saved) { visit("text", saved.reason); }

void fields(auto& visit, Is<NoticeEvent> auto& notice) { visit("text", notice.text); }

// Kinds that have nothing but their header.
template <OneOf<ConnectingEvent, RestoringEvent, AliveEvent, PostponedEvent, SavingEvent> Event>
void fields(auto& /*visit*/, const Event& /*event*/) {}

}  // namespace moetrain

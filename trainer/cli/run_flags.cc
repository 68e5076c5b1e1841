#include "trainer/cli/run_flags.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <iterator>

#include "trainer/cli/values.h"
#include "trainer/model/presets.h"

namespace moetrain {

namespace {

void add_main_flags(CLI::App& command, RunSpec& spec) {
  command.add_option("--ranks", spec.ranks, "Start N rank processes")->capture_default_str();
  command.add_option("--steps", spec.steps, "Train up to this step")->capture_default_str();
  command.add_option("--data", spec.data,
                     "Train on these files and folders (default: the project's own sources)");
  command.add_option("--run", spec.run_name, "Name the run")
      ->envname("CKPTD_RUN")
      ->capture_default_str();
  command
      .add_option("--socket", spec.socket,
                  "Use the ckptd at unix:PATH (default: start one for this run)")
      ->envname("CKPTD_SOCKET");
  command
      .add_option("--device", spec.device,
                  "Compute on cpu, cuda (rank R on GPU R, modulo their number) or cuda:N (all "
                  "ranks on GPU N)")
      ->capture_default_str();
  command.add_flag("--pin", spec.pin,
                   "Pin each rank and its communication thread to one CPU, for measurements");
  command.add_option("--resume", spec.resume,
                     "Resume from a commit of the run: latest, STEP, ~LINEAGE@STEP or TAG; the "
                     "run's name may precede it, as `ckptctl log` prints it");
  command.add_flag("--new-data", spec.new_data,
                   "With --resume: allow other data than the run was trained on");
}

void add_checkpoint_flags(CLI::App& command, RunSpec::Checkpoints& checkpoints) {
  const char* group = "Checkpoints";
  command
      .add_option("--checkpoint-every", checkpoints.every,
                  "Save a checkpoint every N steps (0: only after the last step; auto: choose from "
                  "measured cost, stalls and failure rate)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--checkpoint-turns", checkpoints.turns,
                  "Alternate N steps without checkpoints and N steps with them, to measure what "
                  "they cost a step (0: always save)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--checkpoint-wait", checkpoints.wait,
                  "Train on when a checkpoint is copied, or only when it is durable")
      ->check(CLI::IsMember({"copied", "durable"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--out-of-slabs", checkpoints.out_of_slabs,
                  "When no slab is free: wait for one, or skip the snapshot")
      ->check(CLI::IsMember({"wait", "skip"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--dense-sharding", checkpoints.dense_sharding,
          "Divide dense state among the ranks: equal (whole units in turn), adaptive (whole "
          "units, the largest first, to the rank with the fewest bytes), or bytes (units "
          "are cut, for equal bytes per rank)")
      ->check(CLI::IsMember({"equal", "adaptive", "bytes"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--unsaved-max", checkpoints.unsaved_max,
                  "Act when more than N steps (100), or more than a time (10m), are in no "
                  "checkpoint (default: never)")
      ->group(group);
  command
      .add_option("--on-unsaved", checkpoints.on_unsaved,
                  "Beyond --unsaved-max: warn and train on, or stop: save if ckptd answers within "
                  "60 s, then exit with 1")
      ->check(CLI::IsMember({"warn", "stop"}))
      ->capture_default_str()
      ->group(group);
}

void add_partial_flags(CLI::App& command, RunSpec::Checkpoints& checkpoints) {
  const char* group = "Partial checkpoints";
  command
      .add_option(
          "--experts-per-checkpoint", checkpoints.experts,
          "Write N experts per layer and checkpoint: a number, all, or auto (as many as the "
          "disk sustains)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--experts-per-snapshot", checkpoints.experts_in_snapshot,
          "Copy N experts per layer and snapshot, and keep those that are not written in "
          "ckptd's memory: a number, all, or auto (as many as can be copied beside a step). "
          "Default: as many as are written")
      ->group(group);
  command
      .add_option("--selector", checkpoints.selector,
                  "Choose the experts of a partial checkpoint by this rule")
      ->check(refuse_removed_selector)
      ->check(CLI::IsMember({"sequential", "load-aware", "risk-aware"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--partial-parts", checkpoints.parts,
                  "Leave out this part of the experts that are not chosen")
      ->check(CLI::IsMember({"weights", "optimizer", "both"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--staleness-max", checkpoints.staleness_max,
                  "Save every expert at least once in N checkpoints (0: 4 x experts of a layer / "
                  "--experts-per-checkpoint)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--plt-budget", checkpoints.plt_budget,
                  "Save more experts once recoveries may lose more than this part of all tokens (0 "
                  "to 1)")
      ->capture_default_str()
      ->group(group);
}

void add_expert_flags(CLI::App& command, RunSpec::Placement& placement) {
  const char* group = "Placement";
  command
      .add_option("--expert-state", placement.expert_state,
                  "Keep an expert's weights and moments whole on the ranks that compute it "
                  "(replicated), or a part of every expert on each rank (sharded)")
      ->check(CLI::IsMember({"replicated", "sharded"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--prefetch", placement.prefetch,
          "Restore the sharded experts of the next N layers while a layer computes (0 to 2)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--reshard", placement.reshard,
          "Send gradients of sharded experts to their owners at once (inline), or while the "
          "layer before computes (delayed)")
      ->check(CLI::IsMember({"inline", "delayed"}))
      ->capture_default_str()
      ->group(group);
}

void add_placement_flags(CLI::App& command, RunSpec::Placement& placement) {
  std::vector<std::string> policies;
  policies.reserve(std::size(kPolicies));
  for (const PolicyName each : kPolicies) policies.emplace_back(policy_name(each));
  const char* group = "Placement";
  command
      .add_option("--placement", placement.policy,
                  "Place experts on ranks by this policy; all but static replicate experts by how "
                  "many tokens the run has routed to them")
      ->check(CLI::IsMember(policies))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--slots", placement.slots,
                  "Give each rank N expert slots per layer: experts that it computes, and holds "
                  "if they are replicated (0: as many as static needs, twice as many for other "
                  "policies)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--slots-max", placement.slots_max,
                  "Limit the expert slots per rank and layer by its memory, at least --slots; a "
                  "loss that leaves too few ranks to hold every expert ends the run (0: no limit)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--min-replicas", placement.replicas_min,
          "Hold each expert on at least N ranks, or nodes with --domains (0: 2 with lazarus "
          "and frontier where that fits, 1 with other policies)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--domains", placement.domains_file,
          "Read from this CSV (rank,node) which ranks fail together. With sharded experts it keeps "
          "tokens on nodes that have a replica of their expert (default: all ranks are one node). "
          "Joining ranks have the numbers after the first ones; a rank that the file does not "
          "name is a node by itself")
      ->group(group);
}

void add_replan_flags(CLI::App& command, RunSpec::Placement& placement) {
  const char* group = "Placement";
  command
      .add_option("--replan-every", placement.replan_every,
                  "Plan the placement anew every N steps from the tokens routed since (0: never). "
                  "Default: 1 with sharded experts and 200 on the CPU with --on-loss continue, "
                  "with a policy other than static; else 0")
      ->group(group);
  command
      .add_option("--replan-if", placement.replan_if,
                  "Move experts to the new placement if that pays, or whenever the balance gets "
                  "better")
      ->check(CLI::IsMember({"pays", "better"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--check-replicas", placement.check_replicas_every,
                  "Compare replicas every N steps and fail if they differ (0: never)")
      ->capture_default_str()
      ->group(group);
}

void add_change_flags(CLI::App& command, RunSpec::Changes& changes) {
  const char* group = "Losses and membership changes";
  command
      .add_option("--on-loss", changes.on_loss,
                  "After the loss of a rank, restart: start the rank again, and all ranks resume "
                  "from the newest checkpoint; continue: the survivors train on, and experts that "
                  "only the lost rank held come back from an older version; with sharded experts "
                  "all survivors return to the newest checkpoint (default: continue)")
      ->check(CLI::IsMember({"restart", "continue"}))
      ->group(group);
  command
      .add_option("--restarts-max", changes.restarts_max,
                  "Fail after more than N restarts in a row without a completed step")
      ->capture_default_str()
      ->group(group);
  command.add_option("--join", changes.joins, "COUNT@STEP: start COUNT more ranks after this step")
      ->group(group);
  command
      .add_option("--leave", changes.leaves,
                  "RANK@STEP: ask this rank to leave after this step, as SIGTERM does")
      ->group(group);
  command
      .add_option(
          "--loss-grace-ms", changes.grace_ms,
          "With --on-loss continue: wait N ms for survivors to enter the next epoch, then go "
          "on without those that have not (1 to 120000)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--collective-timeout-ms", changes.collective_timeout_ms,
                  "Abort a collective that waits for a rank for N ms, and leave the group")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--heartbeat-timeout-ms", changes.heartbeat_timeout_ms,
                  "Kill a rank whose process, hung or stopped, sends no heartbeat for N ms (at "
                  "least 1000; 0: never)")
      ->capture_default_str()
      ->group(group);
}

void add_fault_flags(CLI::App& command, RunSpec::Changes& changes) {
  const char* group = "Fault injection, for tests";
  command.add_option("--kill", changes.kills, "RANK@STEP: kill this rank in this step")
      ->group(group);
  command
      .add_option("--kill-in", changes.kills_in,
                  fmt::format("RANK@PHASE: kill this rank in a phase of a membership change: {}",
                              fmt::join(kPhases, ", ")))
      ->group(group);
  command
      .add_option("--kill-daemon", changes.daemon_kills,
                  "STEP: kill the run's own ckptd after this step")
      ->group(group);
}

void add_own_daemon_flags(CLI::App& command, RunSpec::OwnDaemon& daemon) {
  const char* group = "The run's own ckptd (without --socket)";
  command
      .add_option("--data-dir", daemon.data_dir,
                  "Keep its data in this folder (default: a temporary one)")
      ->group(group);
  command.add_flag("--keep", daemon.keep, "Keep its temporary folder")->group(group);
  command.add_option("--io", daemon.io, "Choose its I/O engine: uring or pwritev")
      ->check(CLI::IsMember({"uring", "pwritev"}))
      ->group(group);
  command
      .add_option("--daemon-timeout-ms", daemon.timeout_ms,
                  "Kill and restart it if it does not answer for N ms (at least 1000; 0: never)")
      ->capture_default_str()
      ->group(group);
}

void add_output_flags(CLI::App& command, OutputFlags& outputs) {
  const char* group = "Output";
  command.add_option("--report", outputs.report, "Write the report (JSON) to this file")
      ->group(group);
  command
      .add_option("--metrics", outputs.metrics,
                  "Write a JSON line per step to this file; a step that is done again gets another "
                  "line")
      ->group(group);
  command
      .add_option("--events", outputs.events,
                  "Write every event of the ranks to this file, a JSON line each")
      ->group(group);
  command
      .add_option("--schedule-trace", outputs.schedule_trace,
                  "Write what sharded experts exchanged and computed when, in the first 3 steps of "
                  "every rank, to this file (Chrome trace format)")
      ->group(group);
  command.add_flag("--json", outputs.report_on_stdout, "Print the report on stdout")->group(group);
}

void add_model_flags(CLI::App& command, ConfigSpec& config) {
  const char* group = "Model of a new run (default: the values of the preset)";
  const auto add = [&](const char* flag, auto& field, const char* help) {
    return command.add_option(flag, field, help)->group(group);
  };
  const auto presets = fmt::format("Take the sizes of {}", fmt::join(preset_names(), " or "));
  add("--preset", config.preset, presets.c_str())->default_str("tiny");
  add("--layers", config.layers, "Decoder layers");
  add("--hidden", config.hidden, "Width of the residual stream");
  add("--heads", config.heads, "Query heads");
  add("--kv-heads", config.kv_heads, "Key and value heads");
  add("--head-dim", config.head_dim, "Width of a head");
  add("--intermediate", config.intermediate, "Width inside an expert");
  add("--experts", config.experts, "Experts per layer");
  add("--top-k", config.top_k, "Experts per token");
  add("--seq", config.seq_len, "Tokens per sequence");
}

void add_training_flags(CLI::App& command, RunSpec& spec) {
  ConfigSpec& config = spec.config;
  const char* group = "Training of a new run (a resumed run keeps its own values)";
  const TrainConfig none = default_config();
  const auto add = [&](const char* flag, auto& field, const auto& value, const char* help) {
    return command.add_option(flag, field, help)
        ->default_str(fmt::format("{}", value))
        ->group(group);
  };
  add("--micro-batches", config.micro_batches, none.micro_batches, "Micro-batches per step");
  add("--batch", config.batch, none.batch, "Sequences per micro-batch, divided among all ranks");
  add("--seed", config.seed, none.seed, "Seed of the parameters and of the order of the data");
  add("--lr", config.learning_rate, none.schedule.learning_rate, "Peak learning rate");
  add("--warmup", config.warmup_steps, none.schedule.warmup_steps,
      "Steps until the peak learning rate");
  add("--lr-steps", config.schedule_steps, none.schedule.total_steps,
      "Steps until the learning rate has fallen to its end");
  add("--weight-decay", config.weight_decay, none.adamw.weight_decay,
      "Decoupled weight decay of AdamW");
  add("--clip", config.clip_norm, none.adamw.clip_norm, "Clip gradients at this norm (0: never)");
  add("--aux", config.aux_coef, none.model.aux_coef, "Weight of the load-balancing loss");
  add("--router-skew", config.router_skew, none.model.router_skew,
      "Route by Zipf's law with this exponent, for benches (0: as the router has learnt)");
  add("--router-skew-order", config.router_skew_order, none.model.router_skew_order,
      "With --router-skew: number of the order in which experts are popular");
  command
      .add_option("--router-trace", spec.router_trace,
                  "Route by this trace of token counts, for benches: CSV lines "
                  "iteration,layer,e0,... (unpack a .gz first). Every rank reads the file when it "
                  "starts, so it must stay as it is until the run ends, and for a resume")
      ->group(group);
  add("--router-trace-hold", config.router_trace_hold, 1,
      "With --router-trace: steps that each of its samples lasts; the last one stays");
  add("--idle-experts", config.idle_experts, "update",
      "Update experts that got no token in a step, or skip them")
      ->check(CLI::IsMember({"update", "skip"}));
  add("--precision", config.precision, "fp32",
      "Compute matrix products in fp32, or in bf16 (only with --device cuda)")
      ->check(CLI::IsMember({"fp32", "bf16"}));
}

}  // namespace

void add_run_flags(CLI::App& command, RunSpec& spec) {
  add_main_flags(command, spec);
  add_checkpoint_flags(command, spec.checkpoints);
  add_partial_flags(command, spec.checkpoints);
  add_expert_flags(command, spec.placement);
  add_placement_flags(command, spec.placement);
  add_replan_flags(command, spec.placement);
  add_change_flags(command, spec.changes);
  add_fault_flags(command, spec.changes);
  add_own_daemon_flags(command, spec.own_daemon);
  add_output_flags(command, spec.outputs);
  add_model_flags(command, spec.config);
  add_training_flags(command, spec);
}

void record_given_flags(const CLI::App& command, RunSpec& spec) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    const bool is_switch = option->get_items_expected_max() == 0;
    spec.given.emplace(option->get_name(), is_switch ? "" : option->results().front());
  }
}

}  // namespace moetrain

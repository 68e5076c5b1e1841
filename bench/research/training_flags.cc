#include "bench/research/training_flags.h"

#include "bench/service/flags.h"

namespace bench {

namespace {

void set_shapes(ShardedOptions& sharded, const std::vector<std::string>& texts) {
  sharded.shapes.clear();
  for (const std::string& text : texts) {
    const auto shape = parse_shape(text);
    if (!shape.ok()) throw CLI::ValidationError("--shapes", shape.error().message);
    sharded.shapes.push_back(*shape);
  }
}

}  // namespace

CLI::App* add_placement(CLI::App& app, PlacementBenchOptions& options, bool& as_json) {
  CLI::App* command = app.add_subcommand(
      "placement", "what replicas are worth under skewed load, in runs of moetrain");
  command->add_option("--skew", options.skew, "Zipf's exponent")->capture_default_str();
  command->add_option("--ranks", options.ranks, "ranks, each pinned")->capture_default_str();
  command->add_option("--slots", options.slots, "of each rank, of 16 experts a layer")
      ->capture_default_str();
  command->add_option("--min-replicas", options.replicas_min, "of every expert")
      ->capture_default_str();
  command->add_option("--sequences", options.sequences, "of 64 tokens, in each step")
      ->check(CLI::Range(32, 256))
      ->capture_default_str();
  command->add_option("--policies", options.policies, "compared with static")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--orders", options.orders, "of popular experts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--rounds", options.rounds, "runs of each arm with each order")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  command->add_option("--dir", options.directory, "a directory for the runs' data")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory);
  command->add_flag("--json", as_json, "one JSON document on stdout");
  return command;
}

CLI::App* add_kills(CLI::App& app, KillsOptions& kills, bool& as_json) {
  CLI::App* command = app.add_subcommand(
      "kills", "from a kill -9 of ranks to the next completed step, in runs of moetrain");
  command->add_option("--rounds", kills.rounds, "runs of each arm")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--seconds", kills.seconds_max, "begin no round later")
      ->capture_default_str()
      ->check(CLI::Range(1, 86'400));
  command
      ->add_option_function<std::string>(
          "--expert-state",
          [&kills](const std::string& state) { kills.sharded = state == "sharded"; },
          "replicated or sharded (replicated)")
      ->check(CLI::IsMember({"replicated", "sharded"}));
  command
      ->add_option("--arms", kills.arms,
                   "which of them (all; with sharded experts all but taken and ladder)")
      ->delimiter(',')
      ->check(CLI::IsMember({"one", "two", "taken", "restart", "hang", "ladder"}));
  command
      ->add_option("--checkpoint-every", kills.checkpoint_every,
                   "steps, at least 4 with replicated experts (8; with sharded experts 1)")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--collective-timeout-ms", kills.collective_timeout_ms,
                   "of the arm whose rank hangs")
      ->capture_default_str()
      ->check(CLI::Range(500, 60'000));
  add_place(command, kills, &kills.engine, &as_json);
  command->final_callback([&kills] {
    if (kills.sharded || kills.checkpoint_every == 0 || kills.checkpoint_every >= 4) return;
    throw CLI::ValidationError("--checkpoint-every",
                               "with replicated experts a kill comes half an interval after a "
                               "checkpoint; give at least 4");
  });
  return command;
}

CLI::App* add_sharded(CLI::App& app, ShardedOptions& sharded, bool& as_json) {
  CLI::App* command = app.add_subcommand(
      "sharded", "what fully sharded experts are worth under skewed load, in runs of moetrain");
  command
      ->add_option_function<std::vector<std::string>>(
          "--shapes",
          [&sharded](const std::vector<std::string>& texts) { set_shapes(sharded, texts); },
          "RANKSxSLOTS: ranks, and slots of each of them for 16 experts (2x12,4x8)")
      ->delimiter(',');
  command->add_option("--arms", sharded.arms, "compared with laer (all)")->delimiter(',');
  command->add_option("--skew", sharded.skew, "Zipf's exponent")
      ->check(CLI::Range(0.1, 10.0))
      ->capture_default_str();
  command->add_option("--orders", sharded.orders, "of popular experts, which rounds take in turn")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--trace", sharded.trace,
                      "route by this CSV, too: iteration,layer,e0,e1,...; may be gzipped");
  command->add_option("--trace-hold", sharded.trace_hold, "steps that a sample of it lasts")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--sequences", sharded.sequences, "of 64 tokens, in each step")
      ->check(CLI::Range(8, 256))
      ->capture_default_str();
  command->add_option("--steps", sharded.steps, "of each run that are measured")
      ->check(CLI::Range(6, 1000))
      ->capture_default_str();
  command->add_option("--rounds", sharded.rounds, "runs of each arm, at most")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  command
      ->add_option("--budget", sharded.budget_seconds,
                   "seconds: begin no round that will not end within them, but two")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  add_place(command, sharded, &sharded.engine, &as_json);
  return command;
}

CLI::App* add_step(CLI::App& app, StepOptions& step, bool& as_json) {
  CLI::App* command = app.add_subcommand(
      "step", "what a checkpoint after every step adds to it, in runs of moetrain");
  command->add_option("--rounds", step.rounds, "runs of partial; the other arms have two")
      ->capture_default_str()
      ->check(CLI::Range(2, 1000));
  command->add_option("--sequences", step.sequences, "of 64 tokens, in each step")
      ->capture_default_str()
      ->check(CLI::Range(32, 256));
  command->add_option("--seconds", step.seconds_max, "begin no round later, if there were two")
      ->capture_default_str()
      ->check(CLI::Range(1, 86'400));
  add_place(command, step, &step.engine, &as_json);
  return command;
}

}  // namespace bench

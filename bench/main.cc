// ckptbench: measurements for users, each against a physical limit measured in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "bench/common/report.h"
#include "bench/common/scratch.h"
#include "bench/research/pec.h"
#include "bench/research/plan.h"
#include "bench/research/plt.h"
#include "bench/research/relayout.h"
#include "bench/research/routing_flags.h"
#include "bench/research/training_flags.h"
#include "bench/service/catalog.h"
#include "bench/service/codecs.h"
#include "bench/service/export.h"
#include "bench/service/flags.h"
#include "bench/service/restore.h"
#include "bench/service/save.h"
#include "bench/service/stall.h"
#include "formats/base/cli_errors.h"
#include "formats/base/cli_flags.h"
#include "formats/base/cli_numbers.h"
#include "formats/base/console.h"
#include "formats/base/ids.h"
#include "formats/base/json_dump.h"
#include "formats/base/parse.h"
#include "formats/base/program.h"
#include "formats/base/version.h"

namespace {

using bench::add_common;
using bench::add_place;
using bench::add_saves_per_sample;
using bench::add_shape;
using bench::add_size;

int finish(const ckpt::Result<nlohmann::json>& document, bool json,
           std::string (*to_text)(const nlohmann::json&)) {
  if (!document.ok()) {
    ckpt::base::print_stderr("ckptbench: {}\n", document.error().message);
    return ckpt::exit_code_for(document.error().code);
  }
  if (json) {
    ckpt::base::write_stdout_exactly(ckpt::base::dump_json(*document, 2) + "\n");
  } else {
    ckpt::base::write_stdout(to_text(*document));
  }
  return 0;
}

// Values of the command line: the options of each bench, and flags that several share.
struct Flags {
  bool json = false;
  bench::SaveOptions save;
  bench::SaveOptions fragments;
  bench::RestoreBenchOptions restore;
  bench::StallOptions stall;
  bench::StepOptions step;
  bench::PlacementBenchOptions placement;
  bench::KillsOptions kills;
  bench::ShardedOptions sharded;
  bench::ExportOptions exports;
  bench::CatalogOptions catalog;
  bench::PltOptions plt;
  bench::PlanOptions plan;
  bench::RelayoutOptions relayout;
  bench::PecOptions pec;
  bench::CodecsOptions codecs;
};

struct Command {
  const CLI::App* app;
  std::function<ckpt::Result<nlohmann::json>()> run;
  std::string (*to_text)(const nlohmann::json&);
};

CLI::App* add_save(CLI::App& app, Flags& flags) {
  CLI::App* command =
      app.add_subcommand("save", "from begin to durable, against the raw speed of the disk");
  add_shape(command, flags.save.shape);
  add_saves_per_sample(command, flags.save);
  command->add_flag("--engine-only", flags.save.engine_only,
                    "staging and persist alone: no daemon, no client, no copy");
  add_common(command, flags.save, &flags.save.shape.engine, &flags.json);
  return command;
}

CLI::App* add_fragments(CLI::App& app, Flags& flags) {
  CLI::App* command = app.add_subcommand("fragments", "the same with 10,000 fragments of 64 KiB");
  bench::SaveOptions& options = flags.fragments;
  options.bench = "fragments";
  options.pass_ratio = bench::kFragmentsPassRatio;
  options.shape.fragment_bytes = bench::kFragmentBytes;
  options.shape.bytes = bench::kFragments * bench::kFragmentBytes;
  options.saves_per_sample = bench::kFragmentSavesPerSample;
  add_saves_per_sample(command, options);
  add_common(command, options, &options.shape.engine, &flags.json);
  return command;
}

CLI::App* add_restore(CLI::App& app, Flags& flags) {
  CLI::App* command = app.add_subcommand(
      "restore", "a whole view back into trainers, against the raw speed of the disk");
  add_shape(command, flags.restore.shape);
  add_common(command, flags.restore, &flags.restore.shape.engine, &flags.json);
  return command;
}

CLI::App* add_stall(CLI::App& app, Flags& flags) {
  CLI::App* command =
      app.add_subcommand("stall", "how long a trainer is blocked, against a plain memcpy");
  bench::StallOptions& stall = flags.stall;
  add_size(command, "--bytes", &stall.bytes, "bytes of the snapshot (512MiB)");
  add_size(command, "--slab", &stall.slab_bytes, "slab size (64MiB)");
  add_size(command, "--fragment", &stall.fragment_bytes, "size of each unit (16MiB)");
  add_common(command, stall, &stall.engine, &flags.json);
  command->final_callback([&stall] {
    if (stall.bytes % stall.fragment_bytes != 0) {
      throw CLI::ValidationError("--bytes", "not a multiple of --fragment");
    }
    if (stall.bytes % stall.slab_bytes != 0) {
      throw CLI::ValidationError("--bytes", "not a multiple of --slab");
    }
  });
  return command;
}

CLI::App* add_pec(CLI::App& app, Flags& flags) {
  CLI::App* command = app.add_subcommand(
      "pec", "bytes, balance, stall and time to durable of partial snapshots, by real saves");
  bench::PecOptions& pec = flags.pec;
  command->add_option("--model", pec.models, "gpt-125m-8e, gpt-350m-16e (both)");
  command->add_option("--k", pec.ks, "experts of each layer per snapshot (N, N/2, ..., 1)");
  command->add_option("--repeats", pec.repeats, "saves of each row; the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  add_size(command, "--rank-arena", &pec.rank_arena_bytes,
           "arena of each rank (640MiB); a larger part is saved in several commits");
  command->add_option_function<std::string>(
      "--dense-sharding",
      [&pec](const std::string& name) {
        const auto parsed = moetrain::parse_dense_sharding(name);
        if (!parsed.ok()) throw CLI::ValidationError("--dense-sharding", parsed.error().message);
        pec.sharding = *parsed;
      },
      "equal, adaptive or bytes (bytes)");
  command
      ->add_option_function<std::string>(
          "--alarms",
          [&pec](const std::string& name) {
            pec.alarms = name == "off" ? CKPT_ALARMS_OFF : CKPT_ALARMS_WARN;
          },
          "off or warn: whether floats and checksums are looked at (warn)")
      ->check(CLI::IsMember({"off", "warn"}));
  add_place(command, pec, &pec.engine, &flags.json);
  return command;
}

CLI::App* add_export(CLI::App& app, Flags& flags) {
  CLI::App* command = app.add_subcommand(
      "export", "export, import and export again: time, and memory whatever the size");
  bench::ExportOptions& exports = flags.exports;
  add_size(command, "--bytes", &exports.bytes, "bytes of the run (4GiB)");
  add_size(command, "--small", &exports.small_bytes, "of the one to compare with (256MiB)");
  add_size(command, "--shard", &exports.shard_bytes, "size of the files (1GiB)");
  add_place(command, exports, &exports.engine, &flags.json);
  command->final_callback([&exports] {
    for (const uint64_t bytes : {exports.bytes, exports.small_bytes}) {
      if (bytes % exports.unit_bytes == 0) continue;
      throw CLI::ValidationError("--bytes, --small", "not multiples of 16 MiB");
    }
  });
  return command;
}

CLI::App* add_catalog(CLI::App& app, Flags& flags) {
  CLI::App* command = app.add_subcommand(
      "catalog", "questions, start and rebuild with the history of a large model");
  bench::CatalogOptions& catalog = flags.catalog;
  command->add_option("--units", catalog.units, "units of the model")
      ->capture_default_str()
      ->check(CLI::Range(2, 60'000));
  command->add_option("--commits", catalog.commits, "full commits")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000));
  command
      ->add_option("--small-commits", catalog.small_commits,
                   "of two units each, after one full commit, in a run of their own; 0: none")
      ->capture_default_str();
  command->add_option("--repeats", catalog.repeats, "of each question; the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  add_place(command, catalog, &catalog.engine, &flags.json);
  return command;
}

CLI::App* add_codecs(CLI::App& app, Flags& flags) {
  CLI::App* command = app.add_subcommand(
      "codecs", "how much smaller codecs make real training state, and how fast");
  bench::CodecsOptions& codecs = flags.codecs;
  command->add_option("--steps", codecs.steps, "of training")
      ->capture_default_str()
      ->check(CLI::Range(2, 100'000));
  command->add_option("--apart", codecs.apart, "deltas: to so many steps earlier (1 10)");
  command->add_option("--seconds", codecs.seconds_min, "of processor time for each figure")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 60.0));
  command->add_option("--data", codecs.data, "a text to learn from (that of moetrain)");
  add_size(command, "--disk-bytes", &codecs.disk_bytes, "written to see how fast it is (1GiB)");
  command->add_option("--dir", codecs.directory, "a directory on the disk to measure")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory);
  command->add_flag("--json", flags.json, "one JSON document on stdout");
  return command;
}

std::vector<Command> add_commands(CLI::App& app, Flags& flags) {
  return {
      {add_save(app, flags), [&flags] { return bench::bench_save(flags.save); }, bench::save_text},
      {add_fragments(app, flags), [&flags] { return bench::bench_save(flags.fragments); },
       bench::save_text},
      {add_restore(app, flags), [&flags] { return bench::bench_restore(flags.restore); },
       bench::to_text},
      {add_stall(app, flags), [&flags] { return bench::bench_stall(flags.stall); },
       bench::stall_text},
      {bench::add_plt(app, flags.plt, flags.json), [&flags] { return bench::bench_plt(flags.plt); },
       bench::plt_text},
      {bench::add_plan(app, flags.plan, flags.json),
       [&flags] { return bench::bench_plan(flags.plan); }, bench::plan_text},
      {bench::add_relayout(app, flags.relayout, flags.json),
       [&flags] { return bench::bench_relayout(flags.relayout); }, bench::relayout_text},
      {add_pec(app, flags), [&flags] { return bench::bench_pec(flags.pec); }, bench::pec_text},
      {bench::add_step(app, flags.step, flags.json),
       [&flags] { return bench::bench_step(flags.step); }, bench::step_text},
      {bench::add_placement(app, flags.placement, flags.json),
       [&flags] { return bench::bench_placement(flags.placement); }, bench::placement_text},
      {bench::add_sharded(app, flags.sharded, flags.json),
       [&flags] { return bench::bench_sharded(flags.sharded); }, bench::sharded_text},
      {bench::add_kills(app, flags.kills, flags.json),
       [&flags] { return bench::bench_kills(flags.kills); }, bench::kills_text},
      {add_export(app, flags), [&flags] { return bench::bench_export(flags.exports); },
       bench::export_text},
      {add_catalog(app, flags), [&flags] { return bench::bench_catalog(flags.catalog); },
       bench::catalog_text},
      {add_codecs(app, flags), [&flags] { return bench::bench_codecs(flags.codecs); },
       bench::codecs_text}};
}

int run(int argc, char** argv) {
  CLI::App app("Benchmarks of ckptd, each against a limit measured in the same run.", "ckptbench");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  ckptbench save --bytes 2GiB --dir /data\n"
      "  ckptbench fragments --dir /data\n"
      "  ckptbench restore --json --dir /data > restore.json\n"
      "  ckptbench stall --json > stall.json\n"
      "  ckptbench pec --json --model gpt-125m-8e --dir /data\n"
      "  ckptbench step --dir /data\n"
      "  ckptbench export --bytes 4GiB --dir /data\n"
      "  ckptbench catalog --dir /data\n"
      "  ckptbench codecs --dir /data\n"
      "  ckptbench kills --rounds 5 --arms one,taken\n"
      "  ckptbench sharded --budget 900 --trace routing.csv.gz\n"
      "  ckptbench plan --loads-file routing.csv.gz --every 1\n"
      "  ckptbench relayout --loads-file routing.csv.gz\n"
      "  ckptbench plt --trace routing.csv.gz --k 1 2 4\n"
      "Exit codes: 0 measured, whatever the verdict; 1 failed; 2 bad usage; 3 not found; 4 bad "
      "data.");
  Flags flags;
  const std::vector<Command> commands = add_commands(app, flags);
  ckpt::base::add_version_flag(app, ckpt::base::version_text("ckptbench"));
  ckpt::base::refuse_wrapped_numbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ckpt::base::report_usage(app, error);
  }
  bench::remove_scratch_when_stopped();
  const auto chosen = std::find_if(commands.begin(), commands.end(),
                                   [](const Command& command) { return command.app->parsed(); });
  return finish(chosen->run(), flags.json, chosen->to_text);
}

}  // namespace

int main(int argc, char** argv) {
  return ckpt::base::run_program("ckptbench", [&] { return run(argc, argv); });
}

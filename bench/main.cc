// ckptbench: what a user would measure, each against a physical limit measured in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/report.h"
#include "bench/save.h"
#include "bench/stall.h"
#include "formats/base/parse.h"

namespace {

int finish(const ckpt::Result<nlohmann::json>& document, bool json) {
  if (!document.ok()) {
    fmt::print(stderr, "ckptbench: {}\n", document.error().message);
    return ckpt::exit_code_for(document.error().code);
  }
  fmt::print("{}", json ? document.value().dump(2) + "\n" : bench::to_text(*document));
  return 0;
}

bool size(const std::string& text, uint64_t* to) {
  const auto parsed = ckpt::base::parse_size(text);
  if (parsed.ok()) *to = *parsed;
  if (!parsed.ok()) fmt::print(stderr, "ckptbench: {}\n", parsed.error().message);
  return parsed.ok();
}

// What the command line says; sizes still as text.
struct Flags {
  bool json = false;
  std::string bytes;
  std::string slab = "64MiB";
  std::string fragment = "16MiB";
  std::string directory = ".";
  std::string engine = "uring";
  bench::SaveOptions save;
  bench::StallOptions stall;
};

void add_common(CLI::App* command, Flags& flags, int* pairs) {
  command->add_option("--slab", flags.slab, "slab size")->capture_default_str();
  command->add_option("--fragment", flags.fragment, "size of each unit")->capture_default_str();
  command->add_option("--pairs", *pairs, "measured pairs, at least 11")->capture_default_str();
  command->add_option("--dir", flags.directory, "a directory on the disk to measure")
      ->capture_default_str();
  command->add_option("--io", flags.engine, "uring or pwritev")->capture_default_str();
  command->add_flag("--json", flags.json, "one JSON document on stdout");
}

CLI::App* add_save(CLI::App& app, Flags& flags) {
  CLI::App* command =
      app.add_subcommand("save", "from begin to durable, against the raw speed of the disk");
  command->add_option("--bytes", flags.bytes, "bytes of the snapshot (2GiB)");
  command->add_option("--sessions", flags.save.shape.sessions, "trainer ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->add_flag("--engine-only", flags.save.engine_only,
                    "staging and persist alone: no daemon, no client, no copy");
  add_common(command, flags, &flags.save.pairs);
  return command;
}

CLI::App* add_stall(CLI::App& app, Flags& flags) {
  CLI::App* command =
      app.add_subcommand("stall", "how long a trainer is blocked, against a plain memcpy");
  command->add_option("--bytes", flags.bytes, "bytes of the snapshot (512MiB)");
  add_common(command, flags, &flags.stall.pairs);
  return command;
}

int run_save(Flags& flags) {
  bench::SaveOptions& save = flags.save;
  if (!flags.bytes.empty() && !size(flags.bytes, &save.shape.bytes)) return 2;
  if (!size(flags.slab, &save.shape.slab_bytes)) return 2;
  if (!size(flags.fragment, &save.shape.fragment_bytes)) return 2;
  save.shape.engine = flags.engine;
  save.directory = flags.directory;
  return finish(bench::bench_save(save), flags.json);
}

int run_stall(Flags& flags) {
  bench::StallOptions& stall = flags.stall;
  if (!flags.bytes.empty() && !size(flags.bytes, &stall.bytes)) return 2;
  if (!size(flags.slab, &stall.slab_bytes)) return 2;
  if (!size(flags.fragment, &stall.fragment_bytes)) return 2;
  stall.engine = flags.engine;
  stall.directory = flags.directory;
  return finish(bench::bench_stall(stall), flags.json);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Benchmarks of ckptd, each against a limit measured in the same run.");
  app.require_subcommand(1);
  Flags flags;
  const CLI::App* save = add_save(app, flags);
  add_stall(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return save->parsed() ? run_save(flags) : run_stall(flags);
}

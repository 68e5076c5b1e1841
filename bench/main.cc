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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Benchmarks of ckptd, each against a limit measured in the same run.");
  app.require_subcommand(1);
  bool json = false;

  std::string bytes;
  std::string slab = "64MiB";
  std::string fragment = "16MiB";
  std::string directory = ".";
  std::string engine = "uring";

  const auto common = [&](CLI::App* command, int* pairs) {
    command->add_option("--slab", slab, "slab size")->capture_default_str();
    command->add_option("--fragment", fragment, "size of each unit")->capture_default_str();
    command->add_option("--pairs", *pairs, "measured pairs, at least 11")->capture_default_str();
    command->add_option("--dir", directory, "a directory on the disk to measure")
        ->capture_default_str();
    command->add_option("--io", engine, "uring or pwritev")->capture_default_str();
    command->add_flag("--json", json, "one JSON document on stdout");
  };
  bench::SaveOptions save;
  CLI::App* save_command =
      app.add_subcommand("save", "from begin to durable, against the raw speed of the disk");
  save_command->add_option("--bytes", bytes, "bytes of the snapshot (2GiB)");
  save_command->add_option("--sessions", save.shape.sessions, "trainer ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  save_command->add_flag("--engine-only", save.engine_only,
                         "staging and persist alone: no daemon, no client, no copy");
  common(save_command, &save.pairs);
  bench::StallOptions stall;
  CLI::App* stall_command =
      app.add_subcommand("stall", "how long a trainer is blocked, against a plain memcpy");
  stall_command->add_option("--bytes", bytes, "bytes of the snapshot (512MiB)");
  common(stall_command, &stall.pairs);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  if (save_command->parsed()) {
    if (!bytes.empty() && !size(bytes, &save.shape.bytes)) return 2;
    if (!size(slab, &save.shape.slab_bytes) || !size(fragment, &save.shape.fragment_bytes))
      return 2;
    save.shape.engine = engine;
    save.directory = directory;
    return finish(bench::bench_save(save), json);
  }
  if (!bytes.empty() && !size(bytes, &stall.bytes)) return 2;
  if (!size(slab, &stall.slab_bytes) || !size(fragment, &stall.fragment_bytes)) return 2;
  stall.engine = engine;
  stall.directory = directory;
  return finish(bench::bench_stall(stall), json);
}

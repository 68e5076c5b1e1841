// ckptbench: what a user would measure, each against a physical limit measured in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/report.h"
#include "bench/save.h"
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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Benchmarks of ckptd, each against a limit measured in the same run.");
  app.require_subcommand(1);
  bool json = false;

  bench::SaveOptions save;
  std::string bytes = "2GiB";
  std::string slab = "64MiB";
  CLI::App* save_command = app.add_subcommand("save", "begin to durable against the raw disk");
  save_command->add_option("--bytes", bytes, "bytes of the snapshot")->capture_default_str();
  save_command->add_option("--sessions", save.shape.sessions, "trainer ranks")
      ->capture_default_str();
  save_command->add_option("--slab", slab, "slab size")->capture_default_str();
  save_command->add_option("--pairs", save.pairs, "measured pairs")->capture_default_str();
  save_command->add_option("--dir", save.directory, "where to write")->capture_default_str();
  save_command->add_option("--io", save.shape.engine, "uring or pwritev")->capture_default_str();
  save_command->add_flag("--engine-only", save.engine_only, "persist alone, without daemon");
  save_command->add_flag("--json", json, "one JSON document");
  CLI11_PARSE(app, argc, argv);
  auto parsed = ckpt::base::parse_size(bytes);
  auto parsed_slab = ckpt::base::parse_size(slab);
  if (!parsed.ok() || !parsed_slab.ok()) return 2;
  save.shape.bytes = *parsed;
  save.shape.slab_bytes = *parsed_slab;
  return finish(bench::bench_save(save), json);
}

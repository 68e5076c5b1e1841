// Fuzzes one parser (or the canary) for some seconds.
//
//   formats_fuzz --parser NAME [--seconds N] [--seed S]     environment: CKPT_FUZZ_SECONDS, _SEED
//   formats_fuzz --parser NAME --seed S --iteration I [--dump FILE]
//
// Parser, seed and iteration determine every input. Any end of the program (an assertion, a
// signal, a sanitizer) prints the line that repeats it. Exit codes: 0 nothing found, 1 found
// something, 2 bad usage.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>

#include "formats/base/printable.h"
#include "tests/fuzz/mutate.h"

namespace ckpt::fuzz {
namespace {

struct Options {
  std::string parser;
  uint64_t seconds = 1;
  uint64_t seed = 1;
  std::optional<uint64_t> iteration;
  std::string dump;
};

// Text that the signal handler prints; set before each input is parsed.
char reproduction[256];

void print_repeat_command() {
  const ssize_t written = ::write(STDERR_FILENO, reproduction, std::strlen(reproduction));
  static_cast<void>(written);
}
void on_signal(int) {
  print_repeat_command();
  ::_exit(1);
}

bool run_one(const Target& target, const Mutator& mutator, const Options& options,
             uint64_t iteration) {
  std::snprintf(reproduction, sizeof(reproduction),
                "repeat with: formats_fuzz --parser %s --seed %llu --iteration %llu\n",
                std::string(target.name).c_str(), static_cast<unsigned long long>(options.seed),
                static_cast<unsigned long long>(iteration));
  // The allocation has the exact size, so that AddressSanitizer sees a read of one byte too many.
  const Bytes input = mutator.input(iteration);
  if (!options.dump.empty()) {
    std::ofstream(options.dump, std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()), static_cast<ptrdiff_t>(input.size()));
  }
  return target.parse(input);
}

int fuzz(const Target& target, const Options& options) {
  const Mutator mutator(target, options.seed);
  if (options.iteration) {
    const bool accepted = run_one(target, mutator, options, *options.iteration);
    std::cout << target.name << ": " << (accepted ? "accepted" : "refused") << '\n';
    return 0;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  uint64_t iteration = 0;
  uint64_t accepted = 0;
  while (std::chrono::steady_clock::now() < end) {
    if (run_one(target, mutator, options, iteration++)) ++accepted;
  }
  std::cout << target.name << ": seed " << options.seed << ", " << iteration << " inputs, "
            << accepted << " accepted, nothing found\n";
  return 0;
}

}  // namespace
}  // namespace ckpt::fuzz

// The sanitizers call these before they end the program; they look for them among the exported
// symbols.
extern "C" {
__attribute__((visibility("default"))) void __asan_on_error() {
  ckpt::fuzz::print_repeat_command();
}
__attribute__((visibility("default"))) void __ubsan_on_report() {
  ckpt::fuzz::print_repeat_command();
}
}

int main(int argc, char** argv) {
  using namespace ckpt::fuzz;
  Options options;
  CLI::App app("Fuzzes one parser.");
  app.add_option("--parser", options.parser, "frame, record, journal, ... or canary")->required();
  app.add_option("--seconds", options.seconds)->envname("CKPT_FUZZ_SECONDS");
  app.add_option("--seed", options.seed)->envname("CKPT_FUZZ_SEED");
  app.add_option("--iteration", options.iteration, "only this input");
  app.add_option("--dump", options.dump, "write the input to this file before it is parsed");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const Target* target = find_target(options.parser);
  if (target == nullptr) {
    std::cerr << "formats_fuzz: no parser " << ckpt::base::printable(options.parser) << '\n';
    return 2;
  }
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(number, on_signal);
  return fuzz(*target, options);
}

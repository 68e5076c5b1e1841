#include "tests/kernels/check_program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>

#include "tests/kernels/test_device.h"

namespace ckpt::kernels {

namespace {

// Timeout of each wait for the device: under compute-sanitizer a kernel takes minutes.
constexpr uint32_t kTimeoutMs = 600'000;

constexpr const char* kUsage =
    "usage: %s [--seed N] [--filter TEXT] [--without TEXT] [--group NAME]\n"
    "       [--tiny] [--list | --groups | --device]\n"
    "\n"
    "  --seed N       random numbers as in the run that printed this seed\n"
    "  --filter TEXT  only checks with TEXT in their name\n"
    "  --without TEXT no checks with TEXT in their name\n"
    "  --group NAME   only checks of this group\n"
    "  --tiny         sizes for an emulated device, or to run under another tool\n"
    "  --list         their names\n"
    "  --groups       the names of their groups\n"
    "  --device       only says whether there is a GPU for them\n"
    "\n"
    "Exit code: 0; 1 if a check found something; 77 if none did, but there is no GPU to ask.\n";

struct Options {
  uint64_t seed = std::random_device()();
  std::string filter;
  std::string without;  // empty: no check is left out
  std::string group;
  bool tiny = false;
  bool list = false;
  bool groups = false;
  bool device = false;
};

std::optional<Options> parse(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& name = words[i];
    if (name == "--list") {
      options.list = true;
    } else if (name == "--groups") {
      options.groups = true;
    } else if (name == "--device") {
      options.device = true;
    } else if (name == "--tiny") {
      options.tiny = true;
    } else if (name == "--filter" && i + 1 < words.size()) {
      options.filter = words[++i];
    } else if (name == "--without" && i + 1 < words.size()) {
      options.without = words[++i];
    } else if (name == "--group" && i + 1 < words.size()) {
      options.group = words[++i];
    } else if (name == "--seed" && i + 1 < words.size()) {
      const std::string& value = words[++i];
      char* end = nullptr;
      options.seed = std::strtoull(value.c_str(), &end, 10);
      if (value.empty() || *end != 0) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return options;
}

struct Outcome {
  size_t run = 0;
  size_t wrong = 0;  // checks with findings, which have been printed
};

// `queue`: null on the CPU. Stops when the device is lost: later checks would be blamed for that
// loss.
Outcome run(const std::vector<Check>& checks, CudaQueue* queue, uint64_t seed) {
  Outcome outcome;
  for (const Check& check : checks) {
    std::vector<std::string> notes;
    const std::vector<std::string> findings = findings_of(check, queue, seed, &notes);
    for (const std::string& note : notes) {
      std::printf("note %s: %s\n", check.name.c_str(), note.c_str());
    }
    for (const std::string& finding : findings) {
      std::printf("FAILED %s: %s\n", check.name.c_str(), finding.c_str());
    }
    ++outcome.run;
    outcome.wrong += findings.empty() ? 0 : 1;
    const bool lost = !findings.empty() && queue != nullptr && device_is_lost();
    if (lost) {
      std::printf("FAILED the device is lost since %s; %zu checks are not run\n",
                  check.name.c_str(), checks.size() - outcome.run);
    }
    (void)std::fflush(stdout);  // the next check may kill the program
    if (lost) break;
  }
  return outcome;
}

int run_all(const std::string& name, const Options& options, const std::vector<Check>& on_cpu,
            const std::vector<Check>& on_gpu) {
  std::printf("%s: seed %llu\n", name.c_str(), static_cast<unsigned long long>(options.seed));
  Outcome of_cpu;
  if (!on_cpu.empty()) {
    of_cpu = run(on_cpu, nullptr, options.seed);
    std::printf("%s: %zu checks on the CPU, %zu found something\n", name.c_str(), of_cpu.run,
                of_cpu.wrong);
  }
  if (on_gpu.empty()) return of_cpu.wrong == 0 ? 0 : 1;  // no device was asked for
  const std::string why_not = why_no_test_device();
  if (!why_not.empty()) {
    std::printf("%s: %zu checks skipped: %s\n", name.c_str(), on_gpu.size(), why_not.c_str());
    return of_cpu.wrong == 0 ? kSkippedExitCode : 1;
  }
  auto queue = make_cuda_queue({.timeout_ms = kTimeoutMs});
  if (!queue.ok()) {
    std::printf("FAILED %s: %s\n", name.c_str(), queue.error().message.c_str());
    return 1;
  }
  const Outcome of_gpu = run(on_gpu, queue.value().get(), options.seed);
  std::printf("%s: %zu checks on the GPU, %zu found something\n", name.c_str(), of_gpu.run,
              of_gpu.wrong);
  return of_cpu.wrong + of_gpu.wrong == 0 ? 0 : 1;
}

bool is_wanted(const Check& check, const Options& options) {
  const auto has = [&](const std::string& text) {
    return check.name.find(text) != std::string::npos;
  };
  if (!has(options.filter)) return false;
  if (!options.without.empty() && has(options.without)) return false;
  return options.group.empty() || options.group == group_of(check);
}

int check(const CheckProgram& program, const Options& options) {
  std::vector<Check> on_cpu, on_gpu;
  std::vector<std::string> groups;
  for (const Check& one : program.checks(options.tiny)) {
    if (!is_wanted(one, options)) continue;
    (one.backend == Backend::kCpu ? on_cpu : on_gpu).push_back(one);
    const bool is_new = std::find(groups.begin(), groups.end(), group_of(one)) == groups.end();
    if (is_new) groups.push_back(group_of(one));
    if (options.list) std::printf("%s\n", one.name.c_str());
  }
  if (options.groups) {
    for (const std::string& group : groups) std::printf("%s\n", group.c_str());
  }
  if (options.list || options.groups) return 0;
  if (!groups.empty()) return run_all(program.name, options, on_cpu, on_gpu);
  std::fprintf(stderr, "%s: no check has '%s' in its name and is of group '%s'\n",
               program.name.c_str(), options.filter.c_str(), options.group.c_str());
  return 2;
}

int say_device(const std::string& name) {
  const std::string why_not = why_no_test_device();
  const std::string said = why_not.empty() ? test_device_name() : "skipped: " + why_not;
  std::printf("%s: %s\n", name.c_str(), said.c_str());
  return why_not.empty() ? 0 : kSkippedExitCode;
}

}  // namespace

int run_check_program(const CheckProgram& program, const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments) {
    if (word != "--help") continue;
    std::printf(kUsage, program.name.c_str());
    return 0;
  }
  const std::optional<Options> options = parse(arguments);
  if (!options) {
    std::fprintf(stderr, kUsage, program.name.c_str());
    return 2;
  }
  return options->device ? say_device(program.name) : check(program, *options);
}

}  // namespace ckpt::kernels

#include "tests/kernels/check_program.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>

namespace ckpt::kernels {

namespace {

// Of each wait for the device: under compute-sanitizer a kernel takes minutes.
constexpr uint32_t kTimeoutMs = 600'000;

constexpr const char* kUsage =
    "usage: %s [--seed N] [--filter TEXT] [--tiny] [--list]\n"
    "\n"
    "  --seed N       random numbers as in the run that printed this seed\n"
    "  --filter TEXT  only checks with TEXT in their name\n"
    "  --tiny         sizes for an emulated device, or to run under another tool\n"
    "  --list         their names\n";

struct Options {
  uint64_t seed = std::random_device()();
  std::string filter;
  bool tiny = false;
  bool list = false;
};

std::optional<Options> parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--list") {
      options.list = true;
    } else if (name == "--tiny") {
      options.tiny = true;
    } else if (name == "--filter" && i + 1 < count) {
      options.filter = arguments[++i];
    } else if (name == "--seed" && i + 1 < count) {
      char* end = nullptr;
      options.seed = std::strtoull(arguments[++i], &end, 10);
      if (end == arguments[i] || *end != 0) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return options;
}

// How many of the checks found something; each says what.
size_t run(const std::vector<Check>& checks, CudaQueue* queue, uint64_t seed) {
  size_t wrong = 0;
  for (const Check& check : checks) {
    const std::vector<std::string> findings = findings_of(check, queue, seed);
    for (const std::string& finding : findings) {
      std::printf("FAILED %s: %s\n", check.name.c_str(), finding.c_str());
    }
    (void)std::fflush(stdout);  // should the next one take the program with it
    wrong += findings.empty() ? 0 : 1;
  }
  return wrong;
}

int check(const CheckProgram& program, const Options& options) {
  const char* const name = program.name.c_str();
  std::vector<Check> on_cpu, on_gpu;
  for (const Check& one : program.checks(options.tiny)) {
    if (one.name.find(options.filter) == std::string::npos) continue;
    (one.backend == Backend::kCpu ? on_cpu : on_gpu).push_back(one);
    if (options.list) std::printf("%s\n", one.name.c_str());
  }
  if (options.list) return 0;
  if (on_cpu.empty() && on_gpu.empty()) {
    std::fprintf(stderr, "%s: no check has '%s' in its name\n", name, options.filter.c_str());
    return 2;
  }
  std::printf("%s: seed %llu\n", name, static_cast<unsigned long long>(options.seed));
  const size_t wrong = run(on_cpu, nullptr, options.seed);
  if (!on_cpu.empty()) {
    std::printf("%s: %zu checks on the CPU, %zu found something\n", name, on_cpu.size(), wrong);
  }
  std::string reason;
  if (cuda_device_count(&reason) == 0) {
    std::printf("%s: %zu checks skipped: no CUDA device (%s)\n", name, on_gpu.size(),
                reason.c_str());
    return wrong == 0 ? 0 : 1;
  }
  auto queue = make_cuda_queue({.timeout_ms = kTimeoutMs});
  if (!queue.ok()) {
    std::fprintf(stderr, "%s: %s\n", name, queue.error().message.c_str());
    return 1;
  }
  const size_t wrong_on_gpu = run(on_gpu, queue.value().get(), options.seed);
  std::printf("%s: %zu checks on the GPU, %zu found something\n", name, on_gpu.size(),
              wrong_on_gpu);
  return wrong + wrong_on_gpu == 0 ? 0 : 1;
}

}  // namespace

int run_check_program(const CheckProgram& program, int count, char** arguments) {
  const std::optional<Options> options = parse(count, arguments);
  if (options) return check(program, *options);
  std::fprintf(stderr, kUsage, program.name.c_str());
  return 2;
}

}  // namespace ckpt::kernels

// gpu_check: every check of kernels on the CPU and on the GPU, without a test framework, on fresh
// random numbers. Exit code 0: nothing is wrong, or there is no device, and it says so; 1
// otherwise.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "tests/kernels/checker.h"

namespace {

using ckpt::kernels::Backend;
using ckpt::kernels::Check;

constexpr const char* kUsage =
    "usage: gpu_check [--seed N] [--filter TEXT] [--list]\n"
    "\n"
    "  --seed N       random numbers as in the run that printed this seed\n"
    "  --filter TEXT  only checks with TEXT in their name, e.g. --filter pack\n"
    "  --list         their names\n";

struct Options {
  uint64_t seed = std::random_device()();
  std::string filter;
  bool list = false;
};

std::optional<Options> parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--list") {
      options.list = true;
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
size_t run(const std::vector<Check>& checks, ckpt::kernels::CudaQueue* queue, uint64_t seed) {
  size_t wrong = 0;
  for (const Check& check : checks) {
    const std::vector<std::string> findings = ckpt::kernels::findings_of(check, queue, seed);
    for (const std::string& finding : findings) {
      std::printf("FAILED %s: %s\n", check.name.c_str(), finding.c_str());
    }
    wrong += findings.empty() ? 0 : 1;
  }
  return wrong;
}

int check(const Options& options) {
  std::vector<Check> on_cpu, on_gpu;
  for (const Check& one : ckpt::kernels::all_checks()) {
    if (one.name.find(options.filter) == std::string::npos) continue;
    (one.backend == Backend::kCpu ? on_cpu : on_gpu).push_back(one);
    if (options.list) std::printf("%s\n", one.name.c_str());
  }
  if (options.list) return 0;
  if (on_cpu.empty() && on_gpu.empty()) {
    std::fprintf(stderr, "gpu_check: no check has '%s' in its name\n", options.filter.c_str());
    return 2;
  }
  std::printf("gpu_check: seed %llu\n", static_cast<unsigned long long>(options.seed));
  size_t wrong = run(on_cpu, nullptr, options.seed);
  std::printf("gpu_check: %zu checks on the CPU, %zu found something\n", on_cpu.size(), wrong);
  std::string reason;
  if (ckpt::kernels::cuda_device_count(&reason) == 0) {
    std::printf("gpu_check: %zu checks skipped: no CUDA device (%s)\n", on_gpu.size(),
                reason.c_str());
    return wrong == 0 ? 0 : 1;
  }
  auto queue = ckpt::kernels::make_cuda_queue({});
  if (!queue.ok()) {
    std::fprintf(stderr, "gpu_check: %s\n", queue.error().message.c_str());
    return 1;
  }
  const size_t wrong_on_gpu = run(on_gpu, queue.value().get(), options.seed);
  std::printf("gpu_check: %zu checks on the GPU, %zu found something\n", on_gpu.size(),
              wrong_on_gpu);
  return wrong + wrong_on_gpu == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::optional<Options> options = parse(count, arguments);
  if (options) return check(*options);
  std::fputs(kUsage, stderr);
  return 2;
}

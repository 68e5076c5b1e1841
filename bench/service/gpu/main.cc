// gpu_bench: speed of the GPU path, each figure against a limit measured in the same run. Needs no
// library but CUDA's. ./dev gpu runs each of its benches in its own process.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <random>

#include "bench/service/gpu/benches.h"
#include "formats/base/program.h"
#include "tests/kernels/test_device.h"

namespace {

using bench::gpu::Row;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;

constexpr const char* kUsage =
    "usage: gpu_bench [--pairs N] [--only NAME] [--skip ROW]... [--seed N] [--rows] [--tiny]\n"
    "       gpu_bench --list | --facts\n"
    "\n"
    "  --pairs N    how often value and limit take turns, at least 2 (default 11)\n"
    "  --only NAME  one bench of --list\n"
    "  --skip ROW   measures all but the row of this name; may be given again\n"
    "  --seed N     random numbers as in the run that printed this seed\n"
    "  --rows       prints each row for bench/service/gpu/evidence_rows.sh, in place of a table\n"
    "  --tiny       shapes for an emulated device; the figures mean nothing\n"
    "  --list       the names of the benches\n"
    "  --facts      the device and its driver, as members of a JSON document\n"
    "\n"
    "Exit code: 1 if a row says fail; 3 if the device was lost, after which nothing more can be\n"
    "measured in this process; 77 if there is no GPU; else 0.\n";

constexpr int kDeviceLostExitCode = 3;

struct Bench {
  const char* name;
  Status (*run)(const bench::gpu::Context&);
};
// All benches. To add one, write a function that adds rows, and list it here.
constexpr Bench kBenches[] = {
    {"pack", bench::gpu::bench_pack},
    {"staging", bench::gpu::bench_staging},
    {"kernels", bench::gpu::bench_kernels},
    {"training", bench::gpu::bench_training},
};

struct Options {
  bench::gpu::Settings settings{.tiny = false,
                                .pairs = 11,
                                .sample_seconds = 0.02,
                                .payload_bytes = 512 << 20,
                                .seed = std::random_device()(),
                                .warm_up_seconds = 2};
  std::string only;
  bool records = false;
  bool list = false;
  bool facts = false;
};

std::optional<uint64_t> number(const std::string& text) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || text.front() == '-' || *end != 0) return std::nullopt;
  return value;
}

bool is_bench(const std::string& name) {
  return std::any_of(std::begin(kBenches), std::end(kBenches),
                     [&](const Bench& bench) { return name == bench.name; });
}

// Takes an option without a value; false if the name is not such an option.
bool take_word(Options& options, const std::string& name) {
  if (name == "--tiny") {
    options.settings.tiny = true;
    options.settings.sample_seconds = 0;
    options.settings.warm_up_seconds = 0;
    options.settings.payload_bytes = 600 << 10;
  } else if (name == "--rows") {
    options.records = true;
  } else if (name == "--list") {
    options.list = true;
  } else if (name == "--facts") {
    options.facts = true;
  } else {
    return false;
  }
  return true;
}

// Takes an option with a value; false if the name is unknown or the value invalid.
bool take_pair(Options& options, const std::string& name, const std::string& value) {
  const std::optional<uint64_t> count = number(value);
  if (name == "--pairs" && count && *count >= 2 && *count <= 1000) {
    options.settings.pairs = static_cast<int>(*count);
  } else if (name == "--seed" && count) {
    options.settings.seed = *count;
  } else if (name == "--only" && is_bench(value)) {
    options.only = value;
  } else if (name == "--skip") {
    options.settings.skip.insert(value);
  } else {
    return false;
  }
  return true;
}

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number / 10 % 100); }

// Prints facts about the device, one member of the JSON document per line.
int print_facts() {
  const std::string why_not = ckpt::kernels::why_no_test_device();
  if (!why_not.empty()) {
    std::fprintf(stderr, "gpu_bench: skipped: %s\n", why_not.c_str());
    return ckpt::kernels::kSkippedExitCode;
  }
  cudaDeviceProp device{};
  (void)cudaGetDeviceProperties(&device, 0);
  int driver = 0, runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  using bench::gpu::number_member;
  using bench::gpu::text_member;
  for (const std::string& member :
       {text_member("device", device.name),
        text_member("compute_capability", fmt::format("{}.{}", device.major, device.minor)),
        number_member("multiprocessors", static_cast<uint64_t>(device.multiProcessorCount)),
        number_member("device_memory_bytes", device.totalGlobalMem),
        text_member("cuda_of_driver", version(driver)),
        text_member("cuda_of_run_time", version(runtime))}) {
    std::printf("%s\n", member.c_str());
  }
  return 0;
}

// Collects rows and prints each row as soon as it is found.
struct Found {
  bool as_records = false;
  std::vector<Row> rows;

  void add(const Row& row) {
    std::fprintf(stderr, "%s\n", to_line(row).c_str());
    rows.push_back(row);
    if (!as_records) return;
    std::printf("%s\n", to_record(row).c_str());
    (void)std::fflush(stdout);  // the program may hang or die in the next row
  }
  bool failed() const {
    return std::any_of(rows.begin(), rows.end(),
                       [](const Row& row) { return row.verdict == "fail"; });
  }
};

Status run_bench(const Bench& bench, const bench::gpu::Context& context) {
  try {
    return bench.run(context);
  } catch (const ckpt::kernels::NoDeviceMemory& none) {
    return make_error(ErrorCode::kResourceExhausted, "{}", none.what());
  }
}

// Returns false, after a message, if the device was lost. Error: no bench can run. If a single
// bench fails, it adds a row with the reason and the other benches run.
Result<bool> measure(const Options& options, Found& found) {
  constexpr size_t kMemoryMin = 8ull << 30;  // all arrays of the largest bench
  CKPT_ASSIGN(const auto queue, ckpt::kernels::make_cuda_queue({}));
  size_t free = 0, total = 0;
  (void)cudaMemGetInfo(&free, &total);
  if (!options.settings.tiny && free < kMemoryMin) {
    return make_error(ErrorCode::kResourceExhausted,
                      "{} bytes of device memory are free; the benches need {}", free, kMemoryMin);
  }
  const bench::gpu::Context context{
      .settings = options.settings,
      .queue = *queue,
      .found = [&](const Row& row) { found.add(row); },
      .progress = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }};
  for (const Bench& bench : kBenches) {
    if (!options.only.empty() && options.only != bench.name) continue;
    try {
      const Status done = run_bench(bench, context);
      if (done.ok()) continue;
      found.add(
          bench::gpu::text_row(fmt::format("bench {}", bench.name), "fail", done.error().message));
      if (ckpt::kernels::device_is_lost()) return false;
    } catch (const bench::gpu::DeviceLost&) {
      return false;
    }
  }
  return true;
}

int run(const Options& options) {
  const std::string why_not = ckpt::kernels::why_no_test_device();
  if (!why_not.empty()) {
    std::fprintf(stderr, "gpu_bench: skipped: %s\n", why_not.c_str());
    return ckpt::kernels::kSkippedExitCode;
  }
  std::fprintf(stderr, "gpu_bench: seed %llu\n",
               static_cast<unsigned long long>(options.settings.seed));
  Found found{.as_records = options.records, .rows = {}};
  const Result<bool> measured = measure(options, found);
  if (!measured.ok()) {
    // Lack of device memory (a small GPU, or other users of it) is no failure of a bench.
    const bool full = measured.error().code == ErrorCode::kResourceExhausted;
    found.add(bench::gpu::text_row("benches", full ? "skipped" : "fail", measured.error().message));
  }
  if (!options.records) {
    std::printf("%s\n", bench::gpu::table_head().c_str());
    for (const Row& row : found.rows) std::printf("%s\n", to_table_line(row).c_str());
  }
  if (measured.ok() && !*measured) return kDeviceLostExitCode;
  return found.failed() ? 1 : 0;
}

int run_words(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (std::find(words.begin(), words.end(), "--help") != words.end()) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  Options options;
  for (size_t at = 0; at < words.size(); ++at) {
    if (take_word(options, words[at])) continue;
    if (at + 1 < words.size() && take_pair(options, words[at], words[at + 1])) {
      ++at;
      continue;
    }
    std::fprintf(stderr, "gpu_bench: %s: not understood\n%s", words[at].c_str(), kUsage);
    return 2;
  }
  if (options.list) {
    for (const Bench& bench : kBenches) std::printf("%s\n", bench.name);
    return 0;
  }
  if (options.facts) return print_facts();
  return run(options);
}

}  // namespace

int main(int count, char** arguments) {
  return ckpt::base::run_program("gpu_bench", [&] { return run_words(count, arguments); });
}

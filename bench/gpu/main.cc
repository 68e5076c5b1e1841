// gpu_bench: what the GPU path reaches, each figure against a limit measured in the same run. Ends
// with a table, and with a file of all figures where it is told to. Needs no library but CUDA's.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <random>

#include "bench/gpu/benches.h"
#include "formats/base/program.h"
#include "tests/kernels/test_device.h"

namespace {

using bench::gpu::Row;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;

constexpr const char* kUsage =
    "usage: gpu_bench [--pairs N] [--only NAME] [--seed N] [--results FOLDER]\n"
    "                 [--fact NAME=VALUE]... [--row WHAT VERDICT REASON]... [--tiny] [--part]\n"
    "                 [--check-arguments]\n"
    "\n"
    "  --pairs N                  how often value and limit take turns, at least 2; 11 unless "
    "said\n"
    "  --only NAME                one bench: pack, staging, kernels or training\n"
    "  --seed N                   random numbers as in the run that printed this seed\n"
    "  --results FOLDER           writes FOLDER/gpu-DEVICE.json; gpu-DEVICE-part.json with --only, "
    "fewer\n"
    "                             pairs than 11, --part, or if a bench could not run\n"
    "  --fact NAME=VALUE          goes into the file, e.g. commit=$(git rev-parse HEAD)\n"
    "  --row WHAT VERDICT REASON  a line of the table that somebody else found out\n"
    "  --tiny                     shapes for an emulated device; the figures mean nothing\n"
    "  --part                     the rows are not all there are\n"
    "  --check-arguments          only says whether these words make sense: 0, or 2\n"
    "\n"
    "The table is the last thing printed, and each row, too, when it is known. Exit code: 1 if a "
    "row\n"
    "says fail; 77 if none does, but there is no GPU, so that all benches are skipped; else 0.\n";

constexpr int kPairsUsual = 11;

struct Bench {
  const char* name;
  Status (*run)(const bench::gpu::Context&);
};
// What is measured. A bench of something new is a function with its rows, and a line here.
constexpr Bench kBenches[] = {
    {"pack", bench::gpu::bench_pack},
    {"staging", bench::gpu::bench_staging},
    {"kernels", bench::gpu::bench_kernels},
    {"training", bench::gpu::bench_training},
};

std::string row_name(const Bench& bench) { return fmt::format("bench {}", bench.name); }

struct Options {
  bench::gpu::Settings settings{.tiny = false,
                                .pairs = kPairsUsual,
                                .sample_seconds = 0.02,
                                .payload_bytes = 512 << 20,
                                .seed = std::random_device()()};
  std::string only;
  std::string results;
  bench::gpu::Facts facts;
  std::vector<Row> rows;
  bool check_arguments = false;
  bool part = false;
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

// NAME=VALUE; NAME as the document's own names are.
bool take_fact(Options& options, const std::string& text) {
  const size_t end = text.find('=');
  if (end == std::string::npos || end == 0) return false;
  const std::string name = text.substr(0, end);
  const bool plain = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == name.npos;
  if (!plain || name == "results") return false;
  bench::gpu::set_fact(options.facts, {name, text.substr(end + 1)});
  return true;
}

// Takes one option and what follows it; false if it makes no sense.
bool take(Options& options, const std::vector<std::string>& words, size_t& at) {
  const std::string& name = words[at++];
  const auto left = words.size() - at;
  bench::gpu::Settings& settings = options.settings;
  if (name == "--tiny") {
    settings.tiny = true;
    settings.sample_seconds = 0;
    settings.payload_bytes = 600 << 10;
    return true;
  }
  if (name == "--part" || name == "--check-arguments") {
    (name == "--part" ? options.part : options.check_arguments) = true;
    return true;
  }
  if (name == "--row" && left >= 3) {
    options.rows.push_back(bench::gpu::told(words[at], words[at + 1], words[at + 2]));
    at += 3;
    return true;
  }
  if (left == 0) return false;
  const std::string& value = words[at++];
  const std::optional<uint64_t> count = number(value);
  if (name == "--pairs" && count && *count >= 2 && *count <= 1000) {
    settings.pairs = static_cast<int>(*count);
  } else if (name == "--seed" && count) {
    settings.seed = *count;
  } else if (name == "--only" && is_bench(value)) {
    options.only = value;
  } else if (name == "--results") {
    options.results = value;
  } else {
    return name == "--fact" && take_fact(options, value);
  }
  return true;
}

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number / 10 % 100); }

// The device's name, and what is known about it.
std::string add_facts(bench::gpu::Facts& facts, const Options& options) {
  cudaDeviceProp device{};
  (void)cudaGetDeviceProperties(&device, 0);
  int driver = 0, runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  const auto text = [&](const char* name, const std::string& value) {
    bench::gpu::set_fact(facts, {name, value});
  };
  const auto figure = [&](const char* name, uint64_t value) {
    bench::gpu::set_fact(facts, {name, std::to_string(value), /*is_number=*/true});
  };
  text("device", device.name);
  text("compute_capability", fmt::format("{}.{}", device.major, device.minor));
  figure("multiprocessors", static_cast<uint64_t>(device.multiProcessorCount));
  figure("device_memory_bytes", device.totalGlobalMem);
  text("cuda_of_driver", version(driver));
  text("cuda_of_run_time", version(runtime));
  text("seed", std::to_string(options.settings.seed));  // of 64 bits: more than JSON's numbers have
  figure("pairs", static_cast<uint64_t>(options.settings.pairs));
  return device.name;
}

Status run_bench(const Bench& bench, const bench::gpu::Context& context) {
  try {
    return bench.run(context);
  } catch (const ckpt::kernels::NoDeviceMemory& none) {
    return make_error(ErrorCode::kResourceExhausted, "{}", none.what());
  }
}

// An error: no bench can run. One that cannot is a row that says why; the others run all the same.
Status measure(Options& options) {
  constexpr size_t kMemoryMin = 8ull << 30;  // of the largest bench, all arrays together
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
      .rows = options.rows,
      .progress = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }};
  for (const Bench& bench : kBenches) {
    if (!options.only.empty() && options.only != bench.name) continue;
    const Status done = run_bench(bench, context);
    if (done.ok()) continue;
    options.part = true;
    add_row(context, bench::gpu::told(row_name(bench), "fail", done.error().message));
  }
  return {};
}

Status write_results(const Options& options) {
  bench::gpu::Facts facts = options.facts;
  const std::string device = add_facts(facts, options);
  if (options.settings.tiny || device == "emulated") {
    return make_error(ErrorCode::kFailedPrecondition,
                      "{}: figures of an emulated device, or of tiny shapes, are no results",
                      options.results);
  }
  const bool whole = !options.part && options.only.empty() && options.settings.pairs >= kPairsUsual;
  bench::gpu::set_fact(facts, {"whole", whole ? "true" : "false", /*is_number=*/true});
  return bench::gpu::write_file(options.results + "/" + bench::gpu::file_name_for(device, whole),
                                bench::gpu::to_json(facts, options.rows));
}

// Whatever becomes of the benches, the table comes: others have worked for its rows.
Result<int> run(Options& options) {
  const std::string why_not = ckpt::kernels::why_no_test_device();
  if (!why_not.empty()) {
    for (const Bench& bench : kBenches) {
      options.rows.push_back(bench::gpu::told(row_name(bench), "skipped", why_not));
    }
  } else {
    std::fprintf(stderr, "gpu_bench: seed %llu\n",
                 static_cast<unsigned long long>(options.settings.seed));
    const Status measured = measure(options);
    if (!measured.ok()) {
      options.part = true;
      // A GPU that others use, or a small one, is no fault of what would have been measured.
      const bool full = measured.error().code == ErrorCode::kResourceExhausted;
      options.rows.push_back(
          bench::gpu::told("benches", full ? "skipped" : "fail", measured.error().message));
    }
  }
  std::printf("%s", bench::gpu::to_table(options.rows).c_str());
  (void)std::fflush(stdout);  // before anything that goes wrong says so
  if (why_not.empty() && !options.results.empty()) CKPT_TRY(write_results(options));
  const bool failed = std::any_of(options.rows.begin(), options.rows.end(),
                                  [](const Row& row) { return row.verdict == "fail"; });
  if (failed) return 1;
  return why_not.empty() ? 0 : ckpt::kernels::kSkippedExitCode;
}

int run_words(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (std::find(words.begin(), words.end(), "--help") != words.end()) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  Options options;
  for (size_t at = 0; at < words.size();) {
    const std::string& word = words[at];
    if (take(options, words, at)) continue;
    std::fprintf(stderr, "gpu_bench: %s: not understood\n%s", word.c_str(), kUsage);
    return 2;
  }
  if (options.check_arguments) return 0;
  const Result<int> code = run(options);
  if (code.ok()) return *code;
  std::fprintf(stderr, "gpu_bench: %s\n", code.error().message.c_str());
  return ckpt::exit_code_for(code.error().code);
}

}  // namespace

int main(int count, char** arguments) {
  return ckpt::base::run_program("gpu_bench", [&] { return run_words(count, arguments); });
}

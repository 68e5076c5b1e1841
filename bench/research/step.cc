#include "bench/research/step.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <fstream>

#include "bench/common/raw_disk.h"
#include "bench/common/report.h"
#include "bench/common/scratch.h"
#include "bench/common/step_run.h"
#include "ckptd/io/aligned_buffer.h"
#include "formats/base/checked.h"

namespace bench {

using ckpt::Result;
using ckpt::Status;
using nlohmann::json;

namespace {

constexpr double kCopyShareMax = 0.015;  // of a step
constexpr double kStepPassRatio = 1.02;
// Rounds in which all arms run. Later rounds run `partial` only, the arm with the verdict.
constexpr int kRoundsOfAll = 2;
// A measured run saves snapshots in every second turn of this many steps. The first two turns do
// not count: the first snapshots touch the arena for the first time.
constexpr uint64_t kTurnSteps = 5;
constexpr StepWindow kTurnsWindow{2 * kTurnSteps, 18 * kTurnSteps};
constexpr uint64_t kTextBytes = 1u << 20;

enum Arm : size_t { kPartial, kAsynchronous, kBlocking, kArms };
constexpr std::array<const char*, kArms> kArmNames = {"partial", "asynchronous full",
                                                      "blocking full"};

std::vector<std::string> partial_flags(uint32_t k) {
  return {"--checkpoint-every", "1", "--experts-per-checkpoint", std::to_string(k)};
}

class StepBench {
 public:
  explicit StepBench(const StepOptions& options) : options_(options) {}

  Status prepare();
  Status choose_k();
  Status measure();
  json document() const;

 private:
  std::vector<std::string> flags(Arm arm) const;
  Result<bool> fits(uint32_t k);
  Status measure_disk(uint64_t bytes);
  json arm_json(Arm arm) const;

  const StepOptions options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<ScratchDirectory> scratch_;
  StepWorkload workload_;
  double calm_step_seconds_ = 0;  // without checkpoints, measured while K was chosen
  double disk_bytes_per_second_ = 0;
  uint32_t k_ = 0;
  bool k_fits_ = false;
  json calibration_ = json::array();
  std::array<std::vector<StepFigures>, kArms> runs_;
  std::array<std::vector<StepPair>, kArms> pairs_;
};

Status StepBench::prepare() {
  CKPT_ASSIGN(ScratchDirectory made, ScratchDirectory::make(options_.directory));
  scratch_.emplace(std::move(made));
  workload_.directory = scratch_->path();
  workload_.engine = options_.engine;
  workload_.batch = options_.sequences;
  workload_.data = scratch_->path() + "/data";
  std::vector<std::byte> text(kTextBytes);
  fill_random(text, 11);
  std::ofstream file(workload_.data, std::ios::binary);
  file.write(reinterpret_cast<const char*>(text.data()), static_cast<std::streamsize>(text.size()));
  if (file.flush()) return {};
  return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: cannot be written", workload_.data);
}

std::vector<std::string> StepBench::flags(Arm arm) const {
  if (arm == kPartial) return partial_flags(k_);
  if (arm == kAsynchronous) return {"--checkpoint-every", "1"};
  return {"--checkpoint-every", "1", "--checkpoint-wait", "durable"};
}

// Measures the disk alone: new files of the size of a full snapshot, each synced.
Status StepBench::measure_disk(uint64_t bytes) {
  const RawConfig config;
  ckptd::AlignedBuffer pool(64ull << 20);
  fill_random(pool.bytes(), 7);
  LimitFiles files(scratch_->path());
  std::vector<double> speeds;
  for (int i = 0; i < 5; ++i) {
    CKPT_ASSIGN(const double speed,
                raw_write(files.next(), ckpt::base::align_up(bytes, config.request_bytes), config,
                          pool.bytes()));
    speeds.push_back(speed);
  }
  files.clear();
  disk_bytes_per_second_ = median(speeds);
  return {};
}

Result<bool> StepBench::fits(uint32_t k) {
  CKPT_ASSIGN(const StepFigures figures, run_steps(workload_, partial_flags(k)));
  const double share = figures.stall_seconds / calm_step_seconds_;
  const double rate = static_cast<double>(figures.snapshot_bytes) / calm_step_seconds_;
  const bool fit =
      figures.failures == 0 && share <= kCopyShareMax && rate <= disk_bytes_per_second_;
  calibration_.push_back({{"k", k},
                          {"stall_seconds", figures.stall_seconds},
                          {"stall_share", share},
                          {"snapshot_bytes", figures.snapshot_bytes},
                          {"bytes_per_second", rate},
                          {"failures", figures.failures},
                          {"fits", fit}});
  say(fmt::format("K = {}: blocks {:.2f} ms, {:.2f} % of a step; {:.1f} MB/s: {}", k,
                  figures.stall_seconds * 1e3, share * 100, rate / 1e6, fit ? "fits" : "too much"));
  return fit;
}

// Finds the largest K that fits, by bisection: the cost of a snapshot grows with K.
Status StepBench::choose_k() {
  std::vector<double> steps;
  for (int i = 0; i < 2; ++i) {
    CKPT_ASSIGN(const StepFigures none, run_steps(workload_, {"--checkpoint-every", "0"}));
    steps.push_back(none.step_seconds);
  }
  calm_step_seconds_ = median(steps);
  CKPT_ASSIGN(const StepFigures full, run_steps(workload_, flags(kAsynchronous)));
  CKPT_TRY(measure_disk(full.snapshot_bytes));
  uint32_t fitting = 0;
  uint32_t too_many = workload_.experts + 1;
  for (uint32_t k = workload_.experts; fitting + 1 < too_many; k = (fitting + too_many) / 2) {
    CKPT_ASSIGN(const bool fit, fits(k));
    (fit ? fitting : too_many) = k;
  }
  k_fits_ = fitting > 0;
  k_ = std::max(fitting, 1u);  // at least one expert of every layer, even if none fits
  return {};
}

Status StepBench::measure() {
  StepWorkload workload = workload_;
  workload.window = kTurnsWindow;
  for (int round = 0; round < options_.rounds; ++round) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    if (round >= kRoundsOfAll && passed.count() > options_.seconds_max) break;
    const size_t arms = round < kRoundsOfAll ? size_t{kArms} : 1;
    for (size_t i = 0; i < arms; ++i) {
      // A B C C B A: no arm is always first or last in a round.
      const auto arm = static_cast<Arm>(round % 2 == 0 ? i : arms - 1 - i);
      CKPT_ASSIGN(const TurnFigures turns, run_turns(workload, kTurnSteps, flags(arm)));
      runs_[arm].push_back(turns.figures);
      pairs_[arm].insert(pairs_[arm].end(), turns.pairs.begin(), turns.pairs.end());
    }
    std::string line = fmt::format("round {}/{}:", round + 1, options_.rounds);
    for (size_t arm = 0; arm < arms; ++arm) {
      std::vector<double> ratios;
      for (const StepPair& pair : pairs_[arm])
        ratios.push_back(pair.with_seconds / pair.without_seconds);
      line += fmt::format(" {} {:.3f}", kArmNames[arm], median(ratios));
    }
    say(line);
  }
  return {};
}

json StepBench::arm_json(Arm arm) const {
  std::vector<double> none;
  std::vector<double> steps;
  for (const StepPair& pair : pairs_[arm]) {
    none.push_back(pair.without_seconds);
    steps.push_back(pair.with_seconds);
  }
  std::vector<double> stalls;
  std::vector<double> durables;
  uint64_t failures = 0;
  for (const StepFigures& figures : runs_[arm]) {
    stalls.push_back(figures.stall_seconds);
    durables.push_back(figures.durable_seconds);
    failures += figures.failures;
  }
  const Outcome outcome{
      .bench = "step",
      .shape = {{"ranks", workload_.ranks},
                {"tokens_per_step", workload_.tokens_per_step()},
                {"layers", workload_.layers},
                {"experts", workload_.experts},
                {"checkpoint_every", 1},
                {"steps_of_a_turn", kTurnSteps},
                {"io", options_.engine}},
      .unit = "s",
      .limit_name = "a step without checkpoints, in the turn before of the same run",
      .pass_ratio = kStepPassRatio,
      .more_is_better = false};
  json document = to_json(outcome, compared(none, steps), machine(options_.directory));
  const uint64_t bytes = runs_[arm].back().snapshot_bytes;
  const double stall = median(stalls);
  document["arm"] = kArmNames[arm];
  document["snapshot_bytes"] = bytes;
  document["disk_bytes_per_second_needed"] = static_cast<double>(bytes) / median(steps);
  document["stall_seconds"] = stall;
  document["stall_share"] = stall / median(none);
  document["durable_seconds"] = median(durables);
  document["failed_snapshots"] = failures;
  if (failures > 0) document["verdict"] = "fail";  // a step that saves nothing costs nothing
  return document;
}

json StepBench::document() const {
  json document = arm_json(kPartial);
  document["k"] = k_;
  document["k_fits"] = k_fits_;
  document["copy_share_max"] = kCopyShareMax;
  document["calibration"] = calibration_;
  document["disk_bytes_per_second"] = disk_bytes_per_second_;
  for (const Arm arm : {kAsynchronous, kBlocking}) {
    json other = arm_json(arm);
    for (const char* key : {"bench", "machine", "shape", "limit_name"}) other.erase(key);
    document["against"].push_back(std::move(other));
  }
  return document;
}

std::string step_arm_text(const json& arm) {
  const auto number = [&](const char* name) { return arm[name].get<double>(); };
  return fmt::format(
      "{:<18} {:7.1f} ms, without {:7.1f} ms: ratio {:.3f} [{:.3f}, {:.3f}], without against "
      "itself "
      "{:.3f} [{:.3f}, {:.3f}], {} pairs: {}\n"
      "{:<18} {:7.1f} MB, {:.1f} MB/s; blocks {:.2f} ms ({:.2f} %); durable after {:.0f} ms\n",
      arm["arm"].get<std::string>(), number("value") * 1e3, number("limit") * 1e3,
      number("ratio_to_limit"), arm["ratio_interval"][0].get<double>(),
      arm["ratio_interval"][1].get<double>(), number("limit_self_ratio"),
      arm["limit_self_interval"][0].get<double>(), arm["limit_self_interval"][1].get<double>(),
      arm["runs"].size(), arm["verdict"].get<std::string>(), "", number("snapshot_bytes") / 1e6,
      number("disk_bytes_per_second_needed") / 1e6, number("stall_seconds") * 1e3,
      number("stall_share") * 100, number("durable_seconds") * 1e3);
}

}  // namespace

Result<json> bench_step(const StepOptions& options) {
  StepBench bench(options);
  CKPT_TRY(bench.prepare());
  CKPT_TRY(bench.choose_k());
  CKPT_TRY(bench.measure());
  return bench.document();
}

std::string step_text(const json& document) {
  const json& shape = document["shape"];
  std::string text = fmt::format(
      "step: {} ranks, {} tokens; K = {} of {} experts in each of {} layers{}; the disk takes "
      "{:.0f}"
      " MB/s\n",
      shape["ranks"].get<int>(), shape["tokens_per_step"].get<uint64_t>(), document["k"].get<int>(),
      shape["experts"].get<int>(), shape["layers"].get<int>(),
      document["k_fits"].get<bool>() ? "" : " (which does not fit)",
      document["disk_bytes_per_second"].get<double>() / 1e6);
  text += step_arm_text(document);
  for (const json& arm : document["against"]) text += step_arm_text(arm);
  return text;
}

}  // namespace bench

#include "bench/research/placement.h"

#include <fmt/format.h>

#include <fstream>

#include "bench/common/report.h"
#include "bench/common/scratch.h"
#include "bench/common/step_run.h"
#include "formats/base/console.h"

namespace bench {

using ckpt::Result;
using ckpt::Status;
using nlohmann::json;

namespace {

constexpr double kPlacementPassRatio = 1.0;  // no slower than static placement
constexpr uint64_t kHistorySteps = 10;
constexpr uint32_t kIntermediate = 512;  // experts take most of a step, as in large models
constexpr StepWindow kWindow{kHistorySteps + 4, kHistorySteps + 24};

struct Arm {
  std::string policy;
  std::vector<std::string> flags;
  std::vector<StepFigures> runs;  // [orders * rounds], see run_at()
};

class PlacementBench {
 public:
  explicit PlacementBench(const PlacementBenchOptions& options) : options_(options) {}

  Status prepare() {
    CKPT_ASSIGN(ScratchDirectory made, ScratchDirectory::make(options_.directory));
    scratch_.emplace(std::move(made));
    workload_.directory = scratch_->path();
    workload_.engine = "uring";
    workload_.ranks = options_.ranks;
    workload_.batch = options_.sequences;
    workload_.intermediate = kIntermediate;
    workload_.data = scratch_->path() + "/data";
    std::ofstream text(workload_.data);
    for (int i = 0; i < 30'000; ++i)
      text << "line " << i * i % 9973 << " of text " << i % 17 << '\n';
    if (!text.flush()) {
      return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: cannot be written", workload_.data);
    }
    arms_.push_back({.policy = "static", .flags = {"--placement", "static"}});
    for (const std::string& policy : options_.policies) {
      arms_.push_back({.policy = policy,
                       .flags = {"--placement", policy, "--slots", std::to_string(options_.slots),
                                 "--min-replicas", std::to_string(options_.replicas_min)}});
    }
    workload_.window = {2, kHistorySteps};
    for (int order = 0; order < options_.orders; ++order) {
      CKPT_TRY(run_steps(workload_, with_store(order, {})));
    }
    for (Arm& arm : arms_) arm.runs.resize(run_at(options_.orders, 0));
    return {};
  }

  Status measure() {
    workload_.window = kWindow;
    for (int round = 0; round < options_.rounds; ++round) {
      for (int order = 0; order < options_.orders; ++order) CKPT_TRY(measure(round, order));
    }
    return {};
  }

  json document() const {
    json all = arm_json(arms_.front());
    all["verdict"] = "reference";  // only the other arms have a verdict
    for (size_t i = 1; i < arms_.size(); ++i) {
      json other = arm_json(arms_[i]);
      for (const char* key : {"bench", "machine", "shape", "limit_name"}) other.erase(key);
      all["against"].push_back(std::move(other));
    }
    return all;
  }

 private:
  // Index of a run in Arm::runs.
  size_t run_at(int order, int round) const {
    return static_cast<size_t>(order) * static_cast<size_t>(options_.rounds) +
           static_cast<size_t>(round);
  }

  Status measure(int round, int order) {
    std::string line = fmt::format("round {}/{}, order {}:", round + 1, options_.rounds, order);
    for (size_t i = 0; i < arms_.size(); ++i) {
      Arm& arm = arms_[(round + order) % 2 == 0 ? i : arms_.size() - 1 - i];
      std::vector<std::string> flags = {"--resume", std::to_string(kHistorySteps)};
      flags.insert(flags.end(), arm.flags.begin(), arm.flags.end());
      CKPT_ASSIGN(const StepFigures figures, run_steps(workload_, with_store(order, flags)));
      arm.runs[run_at(order, round)] = figures;
      line += fmt::format(" {} {:.1f} ms", arm.policy, figures.step_seconds * 1e3);
    }
    ckpt::base::print_stderr("{}\n", line);
    return {};
  }

  std::vector<std::string> with_store(int order, std::vector<std::string> flags) const {
    flags.insert(flags.end(),
                 {"--data-dir", fmt::format("{}/store-{}", scratch_->path(), order),
                  "--checkpoint-every", "0", "--router-skew", fmt::format("{}", options_.skew),
                  "--router-skew-order", std::to_string(order), "--pin"});
    return flags;
  }

  json arm_json(const Arm& arm) const {
    std::vector<double> fixed, steps;
    for (size_t i = 0; i < arm.runs.size(); ++i) {
      fixed.push_back(arms_.front().runs[i].step_seconds);
      steps.push_back(arm.runs[i].step_seconds);
    }
    const Outcome outcome{.bench = "placement",
                          .shape = {{"ranks", options_.ranks},
                                    {"tokens_per_step", workload_.tokens_per_step()},
                                    {"layers", workload_.layers},
                                    {"experts", workload_.experts},
                                    {"top_k", 2},
                                    {"router_skew", options_.skew},
                                    {"orders", options_.orders},
                                    {"intermediate", workload_.intermediate},
                                    {"slots", options_.slots},
                                    {"replicas_min", options_.replicas_min},
                                    {"steps_of_a_run", kWindow.last - kWindow.first}},
                          .unit = "s",
                          .limit_name = "a step with static placement, in a run of the same round",
                          .pass_ratio = kPlacementPassRatio,
                          .more_is_better = false};
    json document = to_json(outcome, compared(fixed, steps), machine(options_.directory));
    document["policy"] = arm.policy;
    // Loads depend on the order alone: its first round stands for all rounds.
    double tokens = 0;
    double most = 0;
    for (int order = 0; order < options_.orders; ++order) {
      const StepFigures& run = arm.runs[run_at(order, 0)];
      tokens += run.busiest_tokens / options_.orders;
      most += run.max_over_mean / options_.orders;
      document["orders"].push_back(
          {{"busiest_tokens", run.busiest_tokens}, {"max_over_mean", run.max_over_mean}});
    }
    document["busiest_tokens"] = tokens;
    document["max_over_mean"] = most;
    return document;
  }

  const PlacementBenchOptions options_;
  std::optional<ScratchDirectory> scratch_;
  StepWorkload workload_;
  std::vector<Arm> arms_;
};

std::string placement_arm_text(const json& arm) {
  return fmt::format(
      "{:<10} {:7.1f} ms  ratio {:.3f} [{:.3f}, {:.3f}]  busiest rank {:6.0f} tokens a step, "
      "max/mean {:.3f}  {}\n",
      arm["policy"].get<std::string>(), arm["value"].get<double>() * 1e3,
      arm["ratio_to_limit"].get<double>(), arm["ratio_interval"][0].get<double>(),
      arm["ratio_interval"][1].get<double>(), arm["busiest_tokens"].get<double>(),
      arm["max_over_mean"].get<double>(), arm["verdict"].get<std::string>());
}

}  // namespace

Result<json> bench_placement(const PlacementBenchOptions& options) {
  PlacementBench bench(options);
  CKPT_TRY(bench.prepare());
  CKPT_TRY(bench.measure());
  return bench.document();
}

std::string placement_text(const json& document) {
  const json& shape = document["shape"];
  std::string text = fmt::format(
      "placement: {} ranks, {} tokens, {} layers of {} experts, Zipf {} in {} orders; static "
      "against itself {:.3f} [{:.3f}, {:.3f}], {} runs of each\n",
      shape["ranks"].get<int>(), shape["tokens_per_step"].get<uint64_t>(),
      shape["layers"].get<int>(), shape["experts"].get<int>(), shape["router_skew"].get<double>(),
      shape["orders"].get<int>(), document["limit_self_ratio"].get<double>(),
      document["limit_self_interval"][0].get<double>(),
      document["limit_self_interval"][1].get<double>(), document["runs"].size());
  text += placement_arm_text(document);
  for (const json& arm : document["against"]) text += placement_arm_text(arm);
  return text;
}

}  // namespace bench

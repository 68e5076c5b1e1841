#include "bench/placement.h"

#include <fmt/format.h>

#include <fstream>

#include "bench/report.h"
#include "bench/scratch.h"
#include "bench/step_run.h"

namespace bench {

using ckpt::Result;
using ckpt::Status;
using nlohmann::json;

namespace {

constexpr double kPlacementPassRatio = 1.0;  // no slower than static placement
constexpr uint64_t kHistorySteps = 10;
constexpr StepWindow kWindow{kHistorySteps + 4, kHistorySteps + 24};

struct Arm {
  std::string policy;
  std::vector<std::string> flags;
  std::vector<StepFigures> runs;
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
    CKPT_TRY(run_steps(workload_, with_store({})));
    return {};
  }

  Status measure() {
    workload_.window = kWindow;
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < arms_.size(); ++i) {
        Arm& arm = arms_[round % 2 == 0 ? i : arms_.size() - 1 - i];
        std::vector<std::string> flags = {"--resume", std::to_string(kHistorySteps)};
        flags.insert(flags.end(), arm.flags.begin(), arm.flags.end());
        CKPT_ASSIGN(const StepFigures figures, run_steps(workload_, with_store(flags)));
        arm.runs.push_back(figures);
      }
      std::string line = fmt::format("round {}/{}:", round + 1, options_.rounds);
      for (const Arm& arm : arms_) {
        line += fmt::format(" {} {:.1f} ms", arm.policy, arm.runs.back().step_seconds * 1e3);
      }
      fmt::print(stderr, "{}\n", line);
    }
    return {};
  }

  json document() const {
    json all = arm_json(arms_.front());
    for (size_t i = 1; i < arms_.size(); ++i) {
      json other = arm_json(arms_[i]);
      for (const char* said : {"bench", "machine", "shape", "limit_name"}) other.erase(said);
      all["against"].push_back(std::move(other));
    }
    return all;
  }

 private:
  std::vector<std::string> with_store(std::vector<std::string> flags) const {
    flags.insert(flags.end(), {"--data-dir", scratch_->path() + "/store", "--checkpoint-every", "0",
                               "--router-skew", fmt::format("{}", options_.skew), "--pin"});
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
                                    {"slots", options_.slots},
                                    {"replicas_min", options_.replicas_min},
                                    {"steps_of_a_run", kWindow.last - kWindow.first}},
                          .unit = "s",
                          .limit_name = "a step with static placement, in a run of the same round",
                          .pass_ratio = kPlacementPassRatio,
                          .more_is_better = false};
    json document = to_json(outcome, compared(fixed, steps), machine(options_.directory));
    document["policy"] = arm.policy;
    document["busiest_tokens"] = arm.runs.front().busiest_tokens;  // the same in every run
    document["max_over_mean"] = arm.runs.front().max_over_mean;
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
      "placement: {} ranks, {} tokens, {} layers of {} experts, Zipf {}; static against itself "
      "{:.3f} [{:.3f}, {:.3f}], {} rounds\n",
      shape["ranks"].get<int>(), shape["tokens_per_step"].get<uint64_t>(),
      shape["layers"].get<int>(), shape["experts"].get<int>(), shape["router_skew"].get<double>(),
      document["limit_self_ratio"].get<double>(), document["limit_self_interval"][0].get<double>(),
      document["limit_self_interval"][1].get<double>(), document["runs"].size());
  text += placement_arm_text(document);
  for (const json& arm : document["against"]) text += placement_arm_text(arm);
  return text;
}

}  // namespace bench

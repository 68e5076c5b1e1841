// The commands of moetrain. Each adds its subcommand, which stores its exit code when it has run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/train_config.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 has it so
class App;
}

namespace moetrain {

struct ExitCode {
  int value = 0;
};

void add_run_command(CLI::App& app, ExitCode& exit_code);
void add_eval_command(CLI::App& app, ExitCode& exit_code);
void add_plan_command(CLI::App& app, ExitCode& exit_code);
void add_report_command(CLI::App& app, ExitCode& exit_code);
void add_simulate_command(CLI::App& app, ExitCode& exit_code);
void add_calibrate_command(CLI::App& app, ExitCode& exit_code);
// What `run` starts; not shown in the help.
void add_rank_command(CLI::App& app, ExitCode& exit_code);

// Prints the error on stderr and gives its documented exit code.
int fail(const ckpt::Error& error);

// The text of a file that a flag names; `-` is stdin. kNotFound if it cannot be opened.
Result<std::string> read_text(const std::string& path);

// A new folder NAME-XXXXXX below TMPDIR, or /tmp. kIo names the variable where it cannot be made.
Result<std::string> make_temporary_folder(const std::string& name);

// The flags that change a TrainConfig. What is not given keeps its value, so that the same flags
// serve a new run (on top of defaults) and a resumed one (on top of what it was trained with).
struct ConfigFlags {
  std::optional<std::string> preset;
  std::optional<uint32_t> router_skew_order;
  std::optional<uint32_t> layers, hidden, heads, kv_heads, head_dim, intermediate, experts, top_k,
      seq_len, micro_batches, batch;
  std::optional<uint64_t> seed, warmup_steps, schedule_steps;
  std::optional<double> learning_rate, weight_decay, clip_norm, aux_coef, router_skew;
  std::optional<std::string> idle_experts, precision;
  void add_to(CLI::App& command);
  // kInvalidArgument: no such preset, or a value that is none.
  Result<TrainConfig> apply(TrainConfig base) const;
};

}  // namespace moetrain

// Flags of a training configuration, and what all commands do with flags.
#include <fmt/ranges.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "formats/base/console.h"
#include "trainer/main.h"
#include "trainer/model/presets.h"

namespace moetrain {

void ConfigFlags::add_to(CLI::App& command) {
  const char* shape = "Model";
  const auto names = fmt::format("Size of the model: {}", fmt::join(preset_names(), ", "));
  command.add_option("--preset", preset, names)->group(shape);
  command.add_option("--layers", layers, "Decoder layers")->group(shape);
  command.add_option("--hidden", hidden, "Width of the residual stream")->group(shape);
  command.add_option("--heads", heads, "Query heads")->group(shape);
  command.add_option("--kv-heads", kv_heads, "Key and value heads")->group(shape);
  command.add_option("--head-dim", head_dim, "Width of a head")->group(shape);
  command.add_option("--intermediate", intermediate, "Width inside an expert")->group(shape);
  command.add_option("--experts", experts, "Experts per layer")->group(shape);
  command.add_option("--top-k", top_k, "Experts per token")->group(shape);
  command.add_option("--seq", seq_len, "Tokens of a sequence")->group(shape);
  const char* training = "Training";
  command.add_option("--micro-batches", micro_batches, "Micro-batches of a step")->group(training);
  command.add_option("--batch", batch, "Sequences of a micro-batch, shared by all ranks")
      ->group(training);
  command.add_option("--seed", seed, "Of parameters and data order")->group(training);
  command.add_option("--lr", learning_rate, "Peak learning rate")->group(training);
  command.add_option("--warmup", warmup_steps, "Steps until the peak")->group(training);
  command.add_option("--lr-steps", schedule_steps, "Steps until the rate has fallen to its end")
      ->group(training);
  command.add_option("--weight-decay", weight_decay, "AdamW's decoupled decay")->group(training);
  command.add_option("--clip", clip_norm, "Gradient norm to clip at; 0: no clipping")
      ->group(training);
  command.add_option("--aux", aux_coef, "Weight of the load-balancing loss")->group(training);
  command
      .add_option("--router-skew", router_skew,
                  "Bench aid: routing follows Zipf's law with this exponent; 0: as it is learnt")
      ->group(training);
  command
      .add_option("--router-skew-order", router_skew_order,
                  "Which experts are popular then: another order for each number")
      ->group(training);
  command.add_option("--idle-experts", idle_experts, "Experts without a token: update, skip")
      ->check(CLI::IsMember({"update", "skip"}))
      ->group(training);
  command
      .add_option("--precision", precision, "Of matrix products: fp32, bf16 (with --device cuda)")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->group(training);
}

Result<TrainConfig> ConfigFlags::apply(TrainConfig base) const {
  if (preset) {
    const auto model = moetrain::preset(*preset);
    if (!model) {
      return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                              "--preset {}: there is none of this name; there are {}", *preset,
                              fmt::join(preset_names(), ", "));
    }
    base.model = *model;
  }
  const auto set = [](auto& field, const auto& given) {
    if (given) field = *given;
  };
  set(base.model.layers, layers);
  set(base.model.hidden, hidden);
  set(base.model.heads, heads);
  set(base.model.kv_heads, kv_heads);
  set(base.model.head_dim, head_dim);
  set(base.model.intermediate, intermediate);
  set(base.model.experts, experts);
  set(base.model.top_k, top_k);
  set(base.model.seq_len, seq_len);
  set(base.model.aux_coef, aux_coef);
  set(base.model.router_skew, router_skew);
  set(base.model.router_skew_order, router_skew_order);
  set(base.micro_batches, micro_batches);
  set(base.batch, batch);
  set(base.seed, seed);
  set(base.schedule.learning_rate, learning_rate);
  set(base.schedule.warmup_steps, warmup_steps);
  set(base.schedule.total_steps, schedule_steps);
  set(base.adamw.weight_decay, weight_decay);
  set(base.adamw.clip_norm, clip_norm);
  if (idle_experts) {
    base.adamw.idle_experts = *idle_experts == "skip" ? IdleExperts::kSkip : IdleExperts::kUpdate;
  }
  if (precision) base.precision = *precision == "bf16" ? Precision::kBf16 : Precision::kFp32;
  return base;
}

Result<std::string> read_text(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return ckpt::make_error(ckpt::ErrorCode::kNotFound, "{}: cannot be opened", path);
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: cannot be read", path);
  return std::move(text).str();
}

Result<std::string> make_temporary_folder(const std::string& name) {
  const char* variable = std::getenv("TMPDIR");
  const bool named = variable != nullptr && *variable != '\0';
  const std::string below = named ? variable : "/tmp";
  std::string path = below + "/" + name + "-XXXXXX";
  if (::mkdtemp(path.data()) != nullptr) return path;
  return ckpt::make_error(ckpt::ErrorCode::kIo,
                          "cannot make a temporary folder in {}{}: {}; set TMPDIR to a folder that "
                          "can be written",
                          named ? "TMPDIR=" : "", below, std::strerror(errno));
}

int fail(const ckpt::Error& error) {
  ckpt::base::print_stderr("moetrain: {}\n", error.message);
  return ckpt::exit_code_for(error.code);
}

}  // namespace moetrain

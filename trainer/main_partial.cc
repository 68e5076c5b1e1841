#include "trainer/main_partial.h"

#include <charconv>

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

void PartialFlags::add_to(CLI::App& command) {
  command
      .add_option("--checkpoint-every", checkpoint_every,
                  "Steps; 0: only the last one; auto: as often as failures, stalls and the disk"
                  " that the run measures make best")
      ->capture_default_str();
  command.add_option("--checkpoint-turns", checkpoint_turns,
                     "No checkpoints in so many steps, then some in as many, in turns: for "
                     "measuring what they cost a step");
  command
      .add_option("--experts-per-checkpoint", experts_per_checkpoint,
                  "Of each layer: a number, all, or auto: as many as the disk keeps up with")
      ->capture_default_str();
  command.add_option(
      "--experts-per-snapshot", experts_per_snapshot,
      "Of each layer, those that are only kept in ckptd's memory included: a number, all, or "
      "auto: as many as can be copied beside the step. Default: as many as are written");
  of_selection = {
      command.add_option("--selector", selector, "Which experts a checkpoint takes")
          ->check(CLI::IsMember({"sequential", "load-aware", "risk-aware", "age-aware"}))
          ->capture_default_str(),
      command.add_option("--partial-parts", parts, "What of the others is left out")
          ->check(CLI::IsMember({"weights", "optimizer", "both"}))
          ->capture_default_str(),
      command
          .add_option("--staleness-max", numbers.staleness_max,
                      "Checkpoints from one save of an expert to the next; 0: 4 N/K")
          ->capture_default_str()};
  command
      .add_option("--plt-budget", numbers.plt_budget,
                  "Part of the tokens that recoveries may lose before more experts are saved")
      ->capture_default_str();
  command.add_option("--dense-sharding", dense_sharding, "Who saves which dense state")
      ->check(CLI::IsMember({"equal", "adaptive", "bytes"}))
      ->capture_default_str();
}

std::vector<std::string> PartialFlags::without_effect() const {
  std::vector<std::string> names;
  if (experts_per_checkpoint != "all") return names;
  for (const CLI::Option* option : of_selection) {
    if (option->count() > 0) names.push_back(option->get_name());
  }
  return names;
}

Result<PartialOptions> PartialFlags::parse() const {
  PartialOptions options = numbers;
  options.k_auto = experts_per_checkpoint == "auto";
  if (experts_per_checkpoint != "all" && !options.k_auto) {
    const std::string& text = experts_per_checkpoint;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), options.k);
    if (error != std::errc() || end != text.data() + text.size() || options.k == 0) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--experts-per-checkpoint {}: must be 'all', 'auto' or how many of each"
                        " layer's experts a checkpoint takes, at least 1",
                        text);
    }
  }
  options.k_snapshot_auto = experts_per_snapshot == "auto";
  if (experts_per_snapshot == "all" || options.k_snapshot_auto) {
    options.k_snapshot = kAllExperts;
  } else if (!experts_per_snapshot.empty()) {
    const std::string& text = experts_per_snapshot;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, options.k_snapshot);
    if (error != std::errc() || end != last || options.k_snapshot == 0) {
      return make_error(
          ErrorCode::kInvalidArgument,
          "--experts-per-snapshot {}: must be 'all', 'auto' or how many of each layer's "
          "experts a snapshot takes, at least 1",
          text);
    }
  }
  CKPT_ASSIGN(options.selector, parse_selector(selector));
  CKPT_ASSIGN(options.parts, parse_partial_parts(parts));
  CKPT_ASSIGN(options.dense, parse_dense_sharding(dense_sharding));
  return options;
}

Status PartialFlags::parse_every(RankOptions& rank) const {
  rank.checkpoint_auto = checkpoint_every == "auto";
  rank.checkpoint_every = 0;
  rank.checkpoint_turns = checkpoint_turns;
  if (rank.checkpoint_auto && checkpoint_turns != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--checkpoint-turns {}: not with --checkpoint-every auto, which measures what"
                      " checkpoints cost by itself",
                      checkpoint_turns);
  }
  if (rank.checkpoint_auto) return {};
  const std::string& text = checkpoint_every;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), rank.checkpoint_every);
  if (error != std::errc() || end != text.data() + text.size()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--checkpoint-every {}: must be 'auto' or a number of steps", text);
  }
  // A turn with checkpoints has at least one of them then.
  const bool some = rank.checkpoint_every != 0 && rank.checkpoint_every <= checkpoint_turns;
  if (checkpoint_turns == 0 || some) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "--checkpoint-turns {}: must be at least --checkpoint-every ({}), which must "
                    "not be 0",
                    checkpoint_turns, rank.checkpoint_every);
}

}  // namespace moetrain

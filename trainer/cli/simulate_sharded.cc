#include "trainer/cli/simulate_sharded.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "formats/base/console.h"
#include "trainer/simulate/sharded/sharded_render.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;

namespace {

namespace sharded = simulate::sharded;

// Ten times the published evaluation's.
constexpr uint64_t kStepsMax = 500;

Result<sharded::ShardedModel> load_sharded_model(const ShardedFlags& flags) {
  CKPT_ASSIGN(sharded::ShardedModel model, sharded::read_sharded_model(flags.model_file));
  for (const std::string& setting : flags.settings) {
    const ckpt::Status done = sharded::set_parameter(model, setting);
    if (!done.ok()) return make_error(done.error().code, "--set {}", done.error().message);
  }
  return model;
}

Result<std::vector<const sharded::Shape*>> chosen_shapes(const ShardedFlags& flags,
                                                         const sharded::ShardedModel& model) {
  std::vector<const sharded::Shape*> shapes;
  if (flags.shape != "all") {
    CKPT_ASSIGN(const sharded::Shape* shape, sharded::find_shape(model, flags.shape));
    shapes.push_back(shape);
    return shapes;
  }
  for (const sharded::Shape& shape : model.shapes) shapes.push_back(&shape);
  return shapes;
}

Result<int> print_skews(const ShardedFlags& flags, const sharded::ShardedModel& model,
                        const std::vector<const sharded::Shape*>& shapes) {
  for (const sharded::Shape* shape : shapes) {
    CKPT_ASSIGN(const double zipf,
                sharded::fit_skew(model, *shape, *flags.fit_skew, {.steps = flags.steps}));
    ckpt::base::print_stdout("{} zipf {:.3f}\n", shape->name, zipf);
  }
  return 0;
}

void show_progress(size_t done, size_t of) {
  if (::isatty(STDERR_FILENO) != 1) return;
  ckpt::base::write_stderr_exactly(fmt::format("\rmoetrain: {} of {} variations", done, of));
  if (done + 1 == of) ckpt::base::write_stderr_exactly("\r\033[K");
}

}  // namespace

Result<int> simulate_sharded(const ShardedFlags& flags) {
  CKPT_ASSIGN(const std::vector<const sharded::ShardedSystem*> systems,
              sharded::parse_sharded_systems(flags.policies));
  if (flags.steps == 0 || flags.steps > kStepsMax) {
    return make_error(ErrorCode::kInvalidArgument, "--steps {}: must be 1 to {}", flags.steps,
                      kStepsMax);
  }
  CKPT_ASSIGN(const sharded::ShardedModel model, load_sharded_model(flags));
  CKPT_ASSIGN(const std::vector<const sharded::Shape*> shapes, chosen_shapes(flags, model));
  if (flags.fit_skew) return print_skews(flags, model, shapes);
  const sharded::Sampling sampling{.steps = flags.steps};
  CKPT_ASSIGN(const std::vector<sharded::SystemOnShape> results,
              sharded::compare_sharded(model, shapes, systems, sampling));
  std::vector<sharded::SystemOnShape> ablation;
  if (flags.ablation) {
    std::vector<const sharded::ShardedSystem*> arms;
    for (const sharded::ShardedSystem& arm : sharded::ablations()) arms.push_back(&arm);
    CKPT_ASSIGN(ablation, sharded::compare_sharded(model, shapes, arms, sampling));
  }
  std::vector<sharded::ShardedVaried> varied;
  if (flags.sensitivity) {
    CKPT_ASSIGN(varied, sharded::vary_sharded(model, shapes, systems, sampling, show_progress));
  }
  const sharded::ShardedComparison comparison{
      .model = std::filesystem::path(flags.model_file).stem(),
      .results = results,
      .ablation = ablation,
      .varied = varied,
      .systems = systems};
  if (flags.json) {
    ckpt::base::write_stdout_exactly(sharded::sharded_json(comparison) + "\n");
  } else {
    ckpt::base::print_stdout("{}", sharded::sharded_text(comparison));
  }
  return 0;
}

}  // namespace moetrain

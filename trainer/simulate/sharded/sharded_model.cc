#include "trainer/simulate/sharded/sharded_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "formats/base/printable.h"
#include "trainer/placement/policy.h"
#include "trainer/simulate/model_file.h"

namespace moetrain::simulate::sharded {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

using M = ShardedModel;
constexpr double kRate = 1e18;
constexpr double kMany = 1 << 16;
constexpr size_t kShapesMax = 64;

constexpr ShardedParameter of_cluster(std::string_view section, std::string_view key,
                                      double M::*field, double low, double high, bool whole,
                                      bool vary) {
  return {section, key, field, nullptr, low, high, whole, vary};
}
constexpr ShardedParameter of_shape(std::string_view key, double Shape::*field, double low,
                                    double high, bool whole, bool vary) {
  return {"shape", key, nullptr, field, low, high, whole, vary};
}

constexpr ShardedParameter kParameters[] = {
    of_cluster("cluster", "nodes", &M::nodes, 1, 4096, true, false),
    of_cluster("cluster", "ranks_per_node", &M::ranks_per_node, 1, 64, true, false),
    of_cluster("training", "sequences", &M::sequences, 1, 1 << 20, true, false),
    of_cluster("training", "sequences_per_rank", &M::sequences_per_rank, 1, kMany, true, false),
    of_cluster("training", "sequence_tokens", &M::sequence_tokens, 1, 1 << 24, true, true),
    of_cluster("training", "vocabulary", &M::vocabulary, 1, 1 << 24, true, false),
    of_cluster("training", "key_value_width", &M::key_value_width, 1, 1 << 20, true, false),
    of_cluster("training", "recompute", &M::recompute, 0, 1, true, false),
    of_cluster("training", "weight_bytes", &M::weight_bytes, 1, 8, false, true),
    of_cluster("training", "gradient_bytes", &M::gradient_bytes, 1, 8, false, true),
    of_cluster("training", "token_bytes", &M::token_bytes, 1, 8, false, true),
    of_cluster("megatron", "sequences_per_group", &M::megatron_sequences_per_group, 1, kMany, true,
               false),
    of_cluster("megatron", "recompute", &M::megatron_recompute, 0, 1, true, false),
    of_cluster("megatron", "gradient_bytes", &M::megatron_gradient_bytes, 1, 8, false, true),
    of_cluster("compute", "expert_flops_per_s", &M::expert_flops_per_s, 1, kRate, false, true),
    of_cluster("compute", "expert_fixed_us", &M::expert_fixed_us, 0, 1e7, false, true),
    of_cluster("compute", "dense_flops_per_s", &M::dense_flops_per_s, 1, kRate, false, true),
    of_cluster("compute", "optimizer_bytes_per_parameter", &M::optimizer_bytes_per_parameter, 0,
               1024, false, true),
    of_cluster("compute", "memory_bytes_per_s", &M::memory_bytes_per_s, 1, kRate, false, true),
    of_cluster("compute", "routing_us", &M::routing_us, 0, 1e7, false, true),
    of_cluster("network", "within_bytes_per_s", &M::within_bytes_per_s, 1, kRate, false, true),
    of_cluster("network", "between_bytes_per_s", &M::between_bytes_per_s, 1, kRate, false, true),
    of_cluster("network", "latency_us", &M::latency_us, 0, 1e7, false, true),
    of_cluster("load", "sequence_noise", &M::sequence_noise, 0, 4, false, true),
    of_cluster("load", "seed", &M::seed, 0, 1 << 30, true, false),
    of_shape("layers", &Shape::layers, 1, 1024, true, false),
    of_shape("hidden", &Shape::hidden, 1, 1 << 20, true, false),
    of_shape("ffn", &Shape::ffn, 1, 1 << 20, true, false),
    of_shape("experts", &Shape::experts, 1, 4096, true, false),
    of_shape("top_k", &Shape::top_k, 1, 4096, true, false),
    of_shape("slots", &Shape::slots, 1, 4096, true, false),
    of_shape("tensor_parallel", &Shape::tensor_parallel, 1, 64, true, false),
    of_shape("zipf", &Shape::zipf, 0, 8, false, true),
};

Status wrong(const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "{}", what);
}

Status check_range(const ShardedParameter& one, std::string_view section, double value) {
  const ParameterSlot slot{section, one.key, one.low, one.high, one.whole, nullptr};
  Status good = check_value(slot, value);
  if (good.ok()) return good;
  return wrong(fmt::format("{}.{} {}: {}", section, one.key, value, good.error().message));
}

Status validate_shape(const ShardedModel& model, const Shape& shape) {
  const std::string at = "shape." + shape.name;
  for (const ShardedParameter& one : kParameters) {
    if (one.shape_field == nullptr) continue;
    CKPT_TRY(check_range(one, at, shape.*one.shape_field));
  }
  if (shape.top_k > shape.experts) {
    return wrong(
        fmt::format("{}.top_k {}: at most its {} experts", at, shape.top_k, shape.experts));
  }
  const double ranks = model.ranks();
  if (shape.slots * ranks < shape.experts) {
    return wrong(fmt::format("{}.slots {}: {} ranks hold fewer than its {} experts", at,
                             shape.slots, ranks, shape.experts));
  }
  if (shape.slots * ranks > kPlacementSlotsMax ||
      ranks * shape.experts > static_cast<double>(kPlacementHoldersMax)) {
    return wrong(
        fmt::format("{}: {} ranks of {} slots: more than planners take", at, ranks, shape.slots));
  }
  if (std::fmod(model.ranks_per_node, shape.tensor_parallel) != 0) {
    return wrong(fmt::format("{}.tensor_parallel {}: must divide the {} ranks of a node", at,
                             shape.tensor_parallel, model.ranks_per_node));
  }
  const double together = ranks / shape.tensor_parallel * model.megatron_sequences_per_group;
  if (std::fmod(model.sequences, together) != 0) {
    return wrong(fmt::format("training.sequences {}: micro-batches of Megatron have {} (shape.{})",
                             model.sequences, together, shape.name));
  }
  return {};
}

}  // namespace

std::span<const ShardedParameter> sharded_parameters() { return kParameters; }

Status validate(const ShardedModel& model) {
  for (const ShardedParameter& one : kParameters) {
    if (one.field != nullptr) CKPT_TRY(check_range(one, one.section, model.*one.field));
  }
  const double together = model.ranks() * model.sequences_per_rank;
  if (std::fmod(model.sequences, together) != 0) {
    return wrong(
        fmt::format("training.sequences {}: micro-batches have {}", model.sequences, together));
  }
  if (model.shapes.empty() || model.shapes.size() > kShapesMax) {
    return wrong(fmt::format("{} tables [shape.NAME]: 1 to {}", model.shapes.size(), kShapesMax));
  }
  for (const Shape& shape : model.shapes) CKPT_TRY(validate_shape(model, shape));
  return {};
}

Result<ShardedModel> parse_sharded_model(std::string_view text, const std::string& origin) {
  CKPT_ASSIGN(const ParameterFile file, ParameterFile::parse(text, origin));
  ShardedModel model{};
  const std::vector<std::string> names = file.tables_in("shape");
  if (names.size() > kShapesMax) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {} tables [shape.NAME]: at most {}", origin,
                      names.size(), kShapesMax);
  }
  model.shapes.resize(names.size());
  std::vector<std::string> sections;
  sections.reserve(names.size());
  for (const std::string& name : names) sections.push_back("shape." + name);
  std::vector<ParameterSlot> slots;
  for (const ShardedParameter& one : kParameters) {
    if (one.field != nullptr) {
      slots.push_back({one.section, one.key, one.low, one.high, one.whole, &(model.*one.field)});
      continue;
    }
    for (size_t i = 0; i < names.size(); ++i) {
      slots.push_back({sections[i], one.key, one.low, one.high, one.whole,
                       &(model.shapes[i].*one.shape_field)});
    }
  }
  CKPT_TRY(file.read(slots));
  for (size_t i = 0; i < names.size(); ++i) {
    model.shapes[i].name = ckpt::base::printable(names[i], 80);
  }
  const Status valid = validate(model);
  if (valid.ok()) return model;
  return make_error(ErrorCode::kInvalidArgument, "{}: {}", origin, valid.error().message);
}

Result<ShardedModel> read_sharded_model(const std::string& path) {
  CKPT_ASSIGN(const std::string text, read_text(path, kModelFileMax));
  return parse_sharded_model(text, path);
}

Status set_parameter(ShardedModel& model, std::string_view setting) {
  const size_t equals = std::min(setting.find('='), setting.size());
  const std::string_view name = setting.substr(0, equals);
  for (const ShardedParameter& one : kParameters) {
    if (fmt::format("{}.{}", one.section, one.key) != name) continue;
    const std::string_view text = setting.substr(std::min(equals + 1, setting.size()));
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size()) {
      return wrong(fmt::format("{}: must be {}=NUMBER", ckpt::base::printable(setting, 80), name));
    }
    if (one.field != nullptr) model.*one.field = value;
    for (Shape& shape : model.shapes) {
      if (one.shape_field != nullptr) shape.*one.shape_field = value;
    }
    return validate(model);
  }
  return wrong(
      fmt::format("{}: no such parameter; they are named SECTION.KEY, as in the model file",
                  ckpt::base::printable(setting, 80)));
}

uint32_t megatron_expert_ranks(const ShardedModel& model, const Shape& shape) {
  return std::gcd(static_cast<uint32_t>(model.ranks_per_node),
                  static_cast<uint32_t>(shape.experts));
}

Result<const Shape*> find_shape(const ShardedModel& model, std::string_view name) {
  std::string all;
  for (const Shape& shape : model.shapes) {
    if (shape.name == name) return &shape;
    all += fmt::format(" {}", shape.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "shape '{}': the model file has{}, or all",
                    ckpt::base::printable(name, 40), all);
}

}  // namespace moetrain::simulate::sharded

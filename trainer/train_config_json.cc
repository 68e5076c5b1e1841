// TrainConfig as JSON: writing, reading and comparing.
#include <nlohmann/json.hpp>

#include "formats/base/json_dump.h"
#include "trainer/train_config.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using nlohmann::json;

namespace {

// Calls visit(name, field) for every field but those of the model: one list for writing, reading
// and comparing.
template <typename Config, typename Visit>
void visit_training(Config& config, Visit&& visit) {
  visit("seed", config.seed);
  visit("micro_batches", config.micro_batches);
  visit("batch", config.batch);
  visit("seq_len", config.model.seq_len);
  visit("aux_coef", config.model.aux_coef);
  visit("init_range", config.model.init_range);
  visit("beta1", config.adamw.beta1);
  visit("beta2", config.adamw.beta2);
  visit("eps", config.adamw.eps);
  visit("weight_decay", config.adamw.weight_decay);
  visit("clip_norm", config.adamw.clip_norm);
  visit("learning_rate", config.schedule.learning_rate);
  visit("final_ratio", config.schedule.final_ratio);
  visit("warmup_steps", config.schedule.warmup_steps);
  visit("schedule_steps", config.schedule.total_steps);
}

json training_json(const TrainConfig& config) {
  json out;
  visit_training(config, [&](const char* name, const auto& field) { out[name] = field; });
  out["idle_experts"] = config.adamw.idle_experts == IdleExperts::kSkip ? "skip" : "update";
  out["precision"] = config.precision == Precision::kBf16 ? "bf16" : "fp32";
  // Without it the text is the same as that of older versions.
  if (config.model.router_skew != 0) out["router_skew"] = config.model.router_skew;
  if (config.model.router_skew_order != 0) {
    out["router_skew_order"] = config.model.router_skew_order;
  }
  if (config.model.follows_trace()) {
    out["router_trace_crc32c"] = config.model.router_trace_crc32c;
    out["router_trace_hold"] = config.model.router_trace_hold;
  }
  return out;
}

bool reads_as(const json& value, double) { return value.is_number(); }
bool reads_as(const json& value, uint64_t) { return value.is_number_unsigned(); }
bool reads_as(const json& value, uint32_t) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= UINT32_MAX;
}

// Fields that are only there where routing is forced; 0 where they are not. Returns the name of the
// first one that is no number.
std::string read_forced_routing(const json& training, ModelConfig& model) {
  std::string wrong;
  const auto read = [&](const char* name, auto& field) {
    const auto found = training.find(name);
    if (found == training.end()) return;
    if (reads_as(*found, field)) {
      found->get_to(field);
    } else if (wrong.empty()) {
      wrong = name;
    }
  };
  read("router_skew", model.router_skew);
  read("router_skew_order", model.router_skew_order);
  read("router_trace_crc32c", model.router_trace_crc32c);
  read("router_trace_hold", model.router_trace_hold);
  return wrong;
}

}  // namespace

bool operator==(const TrainConfig& a, const TrainConfig& b) {
  return a.model == b.model && training_json(a) == training_json(b);
}

std::string to_json(const TrainConfig& config) {
  json out;
  out["hf_config"] = json::parse(to_hugging_face_json(config.model));
  out["training"] = training_json(config);
  return ckpt::base::dump_json(out);
}

Result<TrainConfig> parse_train_config(std::string_view text, const std::string& origin) {
  const auto bad = [&](const std::string& what) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {}", origin, what);
  };
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return bad("the training configuration is not JSON");
  if (!document.is_object() || !document.contains("hf_config") || !document.contains("training") ||
      !document["training"].is_object()) {
    return bad("not a run of moetrain: no hf_config or training configuration");
  }
  Result<ModelConfig> model = from_hugging_face_json(document["hf_config"].dump());
  if (!model.ok()) return bad(model.error().message);
  TrainConfig config;
  config.model = *model;
  const json& training = document["training"];
  std::string wrong;
  visit_training(config, [&](const char* name, auto& field) {
    if (!training.contains(name) || !reads_as(training[name], field)) {
      if (wrong.empty()) wrong = name;
    } else {
      training[name].get_to(field);
    }
  });
  if (!wrong.empty()) return bad(fmt::format("training.{} is missing or not a number", wrong));
  const std::string forced = read_forced_routing(training, config.model);
  if (!forced.empty()) return bad(fmt::format("training.{} is not a number", forced));
  const json idle = training.value("idle_experts", json("update"));
  if (idle != "update" && idle != "skip") return bad("training.idle_experts is unknown");
  config.adamw.idle_experts = idle == "skip" ? IdleExperts::kSkip : IdleExperts::kUpdate;
  const json precision = training.value("precision", json("fp32"));  // older runs had no other
  if (precision != "fp32" && precision != "bf16") return bad("training.precision is unknown");
  config.precision = precision == "bf16" ? Precision::kBf16 : Precision::kFp32;
  return config;
}

std::optional<ConfigDifference> first_difference(const TrainConfig& was, const TrainConfig& is) {
  const json before = json::parse(to_json(was));
  const json after = json::parse(to_json(is));
  const auto text = [](const json& part, const std::string& name) {
    const json value = part.value(name, json());
    if (value.is_null()) return std::string();
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  for (const char* part : {"training", "hf_config"}) {
    json all = before[part];
    all.update(after[part]);
    for (const auto& field : all.items()) {
      const std::string& name = field.key();
      if (before[part].value(name, json()) == after[part].value(name, json())) continue;
      return ConfigDifference{name, text(before[part], name), text(after[part], name)};
    }
  }
  return std::nullopt;
}

std::string difference(const TrainConfig& was, const TrainConfig& is) {
  const std::optional<ConfigDifference> first = first_difference(was, is);
  if (!first) return {};
  if (first->was.empty()) return fmt::format("no {}, not {}", first->field, first->is);
  return fmt::format("{} {}, not {}", first->field, first->was,
                     first->is.empty() ? "none" : first->is);
}

}  // namespace moetrain

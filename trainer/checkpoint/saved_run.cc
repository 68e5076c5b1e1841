#include "trainer/checkpoint/saved_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "formats/base/console.h"
#include "formats/base/json_dump.h"
#include "trainer/checkpoint/client_status.h"
#include "trainer/checkpoint/plan.h"
#include "trainer/checkpoint/registration.h"
#include "trainer/checkpoint/restore.h"
#include "trainer/parallel/make_expert_store.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using nlohmann::json;
namespace client = ckpt::client;

namespace {

constexpr uint32_t kTimeoutMs = 30'000;
// A running ckptd answers within this time.
constexpr uint32_t kAtOnceMs = 500;

ErrorCode code_of_exit(int exit_code) {
  switch (exit_code) {
    case 2:
      return ErrorCode::kInvalidArgument;
    case 3:
      return ErrorCode::kNotFound;
    case 4:
      return ErrorCode::kCorrupt;
    default:
      return ErrorCode::kIo;
  }
}

Result<client::Session> open_to_ask(const std::string& socket, const std::string& run,
                                    uint32_t timeout_ms) {
  return to_result(client::Session::open({.socket = socket,
                                          .run = run,
                                          .client_name = "moetrain",
                                          .control = true,
                                          .timeout_ms = timeout_ms}));
}

Result<json> ask(client::Session& session, const std::string& verb, const std::string& target) {
  CKPT_ASSIGN(
      const client::Answer answer,
      to_result(session.query(verb, ckpt::base::dump_json(json{{"target", target}}), kTimeoutMs)));
  json document = json::parse(answer.json, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return make_error(ErrorCode::kIo, "ckptd's answer to {} {} is no JSON object", verb, target);
  }
  if (answer.exit_code == 0) return document;
  const json detail = document.value("detail", json(0));
  return {ckpt::Error{
      code_of_exit(answer.exit_code),
      document.value("error", "ckptd refused " + verb + " " + target),
      static_cast<ckpt::ErrorDetail>(detail.is_number_integer() ? detail.get<int>() : 0)}};
}

void print_waiting(const std::string& why) {
  ckpt::base::print_stderr("moetrain: waiting for room, at most {} s: {}\n", kTimeoutMs / 1'000,
                           why);
}

// A session for restores of the run's commits.
Result<client::Session> open_to_read(const std::string& socket, const std::string& run,
                                     const SavedRun& saved, const std::vector<StateUnit>& units) {
  const ArenaSize arena = arena_size(0);  // only for the windows of a restore
  CKPT_ASSIGN(client::Session session,
              to_result(client::Session::open({.socket = socket,
                                               .run = run,
                                               .client_name = "moetrain",
                                               .arena_bytes = arena.arena_bytes,
                                               .slab_bytes = arena.slab_bytes,
                                               .timeout_ms = kTimeoutMs,
                                               .waiting = print_waiting})));
  // The run exists: this checks that both sides have the same units.
  CKPT_TRY(to_status(session.register_units(registration(units), to_json(saved.config))));
  return session;
}

// Protects the view from prune and rm while its parts are restored; nullopt: ckptd is too old for
// holds. Release it before the session ends.
Result<std::optional<client::Hold>> hold_view(client::Session& session, const std::string& run,
                                              const SavedRun& saved) {
  auto hold = to_result(session.hold({.run = run, .lineage = saved.lineage, .step = saved.step}));
  if (hold.ok()) return std::optional(std::move(hold).value());
  if (hold.error().code == ErrorCode::kVersionMismatch) return std::optional<client::Hold>();
  return hold.error();
}

std::vector<SavedUnit> saved_units(const json& schema) {
  std::vector<SavedUnit> units;
  for (const json& unit : schema.value("units", json::array())) {
    units.push_back({unit.value("unit", std::string()), unit.value("bytes", uint64_t{0})});
  }
  return units;
}

}  // namespace

Status check_layout(const std::string& run, const std::vector<SavedUnit>& saved,
                    const std::vector<StateUnit>& ours) {
  const auto refuse = [&](const std::string& what) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "run {} was saved by another version of moetrain ({}): ckptctl export {}@STEP"
                      " still gives its weights, but it can be neither resumed nor evaluated",
                      run, what, run);
  };
  const auto same_name = [&](const SavedUnit& unit) { return unit.name == ours.front().name; };
  if (std::none_of(saved.begin(), saved.end(), same_name)) {
    return make_error(
        ErrorCode::kFailedPrecondition,
        "run {} has no unit `{}`, so it can be neither resumed nor evaluated: it was "
        "imported from a folder of weights alone, or another program saved it. Import "
        "a folder that `ckptctl export --resumable` wrote, under a new name",
        run, ours.front().name);
  }
  for (size_t i = 0; i < std::min(saved.size(), ours.size()); ++i) {
    if (saved[i].name != ours[i].name) {
      return refuse(fmt::format("unit {} is {}, not {}", i, saved[i].name, ours[i].name));
    }
    if (saved[i].bytes != ours[i].bytes) {
      return refuse(fmt::format("unit {} has {} bytes, not {}", saved[i].name, saved[i].bytes,
                                ours[i].bytes));
    }
  }
  if (saved.size() == ours.size()) return {};
  return refuse(fmt::format("{} units, not {}", saved.size(), ours.size()));
}

Status await_ckptd(const std::string& socket, const std::string& run,
                   const std::function<void(const std::string&)>& say) {
  const auto at_once = open_to_ask(socket, run, kAtOnceMs);
  if (at_once.ok()) return {};
  const ErrorCode code = at_once.error().code;
  if (code != ErrorCode::kUnavailable && code != ErrorCode::kDeadlineExceeded) {
    return at_once.error();
  }
  say(fmt::format("waiting for ckptd at {} (up to {} s): {}", socket, kTimeoutMs / 1'000,
                  at_once.error().message));
  const auto later = open_to_ask(socket, run, kTimeoutMs);
  if (!later.ok()) return later.error();
  return {};
}

std::string why_not_saving(const std::string& socket) {
  auto session = open_to_ask(socket, /*run=*/"", kAtOnceMs);
  if (!session.ok()) return {};
  const auto status = ask(*session, "status", "");
  if (!status.ok() || status->value("can_save", true)) return {};
  std::string why;
  for (const json& condition : status->value("conditions", json::array())) {
    if (!condition.value("stops_saving", false)) continue;
    why += fmt::format("{}{}; {}", why.empty() ? "" : "; ", condition.value("reason", ""),
                       condition.value("remedy", ""));
  }
  return why.empty() ? "it stops" : why;
}

Result<SavedRun> find_saved_run(const std::string& socket, const ckpt::Selector& commit) {
  const std::string& run = commit.run;
  CKPT_ASSIGN(client::Session session, open_to_ask(socket, run, kTimeoutMs));
  CKPT_ASSIGN(const json schema, ask(session, "schema", run));
  CKPT_ASSIGN(const json shown, ask(session, "show", to_string(commit)));
  SavedRun saved;
  // The metadata is the text the trainer gave, or that text as JSON.
  const json metadata = schema.value("metadata", json());
  const std::string text = metadata.is_string() ? metadata.get<std::string>() : metadata.dump();
  CKPT_ASSIGN(saved.config, parse_train_config(text, "run " + run));
  CKPT_TRY(check_layout(run, saved_units(schema), state_units(saved.config.model)));
  saved.step = shown.value("step", uint64_t{0});
  saved.lineage = shown.value("lineage", uint32_t{0});
  const std::string lost = shown.value("lost", "");
  if (!shown.value("complete", false) && !lost.empty()) {
    return make_error(ErrorCode::kCorrupt, "{}: this view is not complete: {}", to_string(commit),
                      lost);
  }
  if (!shown.value("complete", false)) {
    return make_error(ErrorCode::kNotFound, "{}: this view is not complete", to_string(commit));
  }
  const json units = shown.value("units", json::array());
  saved.stale = std::any_of(units.begin(), units.end(), [](const json& unit) {
    return unit.is_object() && unit.value("staleness", uint64_t{0}) > 0;
  });
  return saved;
}

Result<TrainerState> load_trainer_state(const std::string& socket, const std::string& run,
                                        const SavedRun& saved) {
  const ModelConfig& shape = saved.config.model;
  const std::vector<StateUnit> units = state_units(shape);
  CKPT_ASSIGN(client::Session session, open_to_read(socket, run, saved, units));
  std::vector<std::byte> unit(units[kTrainerUnit].bytes);
  const auto restored =
      to_result(session.restore({.run = run, .lineage = saved.lineage, .step = saved.step},
                                {{kTrainerUnit, 0, unit.size(), unit.data()}}));
  if (!restored.ok()) return restored.error();
  return decode_trainer_state(unit, shape.layers, shape.experts);
}

Result<LoadedModel> load_saved_model(const std::string& socket, const std::string& run,
                                     const SavedRun& saved,
                                     std::shared_ptr<const RouterTrace> trace) {
  const ModelConfig& shape = saved.config.model;
  const std::vector<StateUnit> units = state_units(shape);
  CKPT_ASSIGN(const ComputePlacement placement, static_placement(shape.layers, shape.experts, 1));
  LoadedModel loaded;
  loaded.device = make_cpu_device();
  CKPT_ASSIGN(auto store, make_expert_store(*loaded.device, shape, placement,
                                            Ownership::replicated(placement), 0));
  CKPT_ASSIGN(loaded.model,
              Model::create(*loaded.device, shape, std::move(store), {}, std::move(trace)));
  CKPT_ASSIGN(client::Session session, open_to_read(socket, run, saved, units));
  CKPT_ASSIGN(const auto held, hold_view(session, run, saved));
  std::vector<std::byte> trainer_unit(units[kTrainerUnit].bytes);
  ExpertStamps stamps({shape.layers, shape.experts});
  const StateMemory memory(units, *loaded.model, trainer_unit, stamps);
  CKPT_ASSIGN(RestoreSummary summary,
              restore_units(session, run, {saved.lineage, saved.step}, units,
                            units_of_rank(units, loaded.model->experts().ownership(), 0), memory));
  loaded.model->parameters_changed();
  loaded.notes = std::move(summary.notes);
  return loaded;
}

}  // namespace moetrain

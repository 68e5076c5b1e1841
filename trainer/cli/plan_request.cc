#include "trainer/cli/plan_request.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "trainer/cli/command.h"
#include "trainer/placement/layer_slots.h"
#include "trainer/placement/plan_files.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// "2:0.98": after two failures every expert survives with a probability of 0.98.
Result<RecoveryWanted> parse_wanted(const std::string& text) {
  RecoveryWanted wanted;
  const char* end = text.data() + text.size();
  const auto failures = std::from_chars(text.data(), end, wanted.failures);
  if (failures.ec == std::errc() && failures.ptr != end && *failures.ptr == ':') {
    const auto probability = std::from_chars(failures.ptr + 1, end, wanted.probability);
    if (probability.ec == std::errc() && probability.ptr == end) return wanted;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "--recovery {}: must be FAILURES:PROBABILITY, like 2:0.98", text);
}

// The placement in the output of an earlier `moetrain plan --json`.
Result<std::vector<LayerSlots>> read_current(const std::string& path) {
  CKPT_ASSIGN(const std::string text, read_text(path));
  const auto document = nlohmann::json::parse(text, nullptr, false);
  const auto refuse = [&] {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: is no plan of `moetrain plan --json`, with its `ranks`", path);
  };
  if (!document.is_object()) return refuse();
  nlohmann::json one = nlohmann::json::array({document});
  const auto layers = document.contains("layers") ? document["layers"] : one;
  if (!layers.is_array()) return refuse();
  std::vector<LayerSlots> current;
  for (const auto& layer : layers) {
    if (!layer.is_object() || !layer.contains("ranks") || !layer["ranks"].is_array()) {
      return refuse();
    }
    LayerSlots& slots = current.emplace_back();
    for (const auto& rank : layer["ranks"]) {
      if (!rank.is_array()) return refuse();
      std::vector<uint32_t>& experts = slots.emplace_back();
      for (const auto& expert : rank) {
        if (!expert.is_number_unsigned() || expert.get<uint64_t>() > UINT32_MAX) return refuse();
        experts.push_back(expert.get<uint32_t>());
      }
    }
  }
  return current;
}

// A plan has a place for every expert; a file that lacks one is no output of `moetrain plan`.
Status check_whole(const PlacementRequest& request, const std::string& path) {
  for (size_t layer = 0; layer < request.current.size(); ++layer) {
    const auto held = holders(request.current[layer], request.experts());
    const auto missing =
        std::find_if(held.begin(), held.end(), [](const auto& ranks) { return ranks.empty(); });
    if (missing == held.end()) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: layer {} misses expert {}, which no rank holds", path, layer,
                      missing - held.begin());
  }
  return {};
}

// Adds the placement of --current to a request that is valid without it, so that an error of
// validate() is about the file.
Status add_current(PlacementRequest& request, const std::string& path) {
  if (path.empty()) return {};
  CKPT_ASSIGN(request.current, read_current(path));
  const Status fits = validate(request);
  if (!fits.ok()) return make_error(fits.error().code, "{}: {}", path, fits.error().message);
  return check_whole(request, path);
}

}  // namespace

Status check_plan_flags(const PlanFlags& flags, PolicyName policy) {
  const bool ours = policy == PolicyName::kFrontier;
  const bool of_nodes = policy == PolicyName::kEplb || policy == PolicyName::kLaer;
  const char* wrong = flags.frontier && !ours                 ? "--frontier"
                      : !flags.recovery.empty() && !ours      ? "--recovery"
                      : flags.request.nodes != 1 && !of_nodes ? "--nodes"
                      : flags.request.expert_groups != 1 && policy != PolicyName::kEplb
                          ? "--expert-groups"
                          : nullptr;
  if (wrong != nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "{}: not with --policy {}", wrong, flags.policy);
  }
  if (!flags.frontier || flags.svg.empty()) return {};
  return make_error(ErrorCode::kInvalidArgument, "--svg draws one plan: not with --frontier");
}

Status fill_request(PlanFlags& flags) {
  PlacementRequest& request = flags.request;
  if (flags.loads.has_value() == !flags.loads_file.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "one of --loads and --loads-file is needed");
  }
  if (flags.loads) {
    CKPT_ASSIGN(std::vector<uint64_t> loads, parse_loads(*flags.loads, "--loads"));
    request.loads.push_back(std::move(loads));
  } else {
    CKPT_ASSIGN(const std::string csv, read_text(flags.loads_file));
    CKPT_ASSIGN(request.loads, parse_loads_csv(csv, flags.loads_file, flags.iteration));
  }
  if (!flags.domains_file.empty()) {
    // The number of ranks bounds the size of the table, so it is checked before the file is read.
    if (request.ranks == 0 || request.ranks > kPlacementRanksMax) {
      return make_error(ErrorCode::kInvalidArgument, "--ranks {}: 1 to {}", request.ranks,
                        kPlacementRanksMax);
    }
    CKPT_ASSIGN(const std::string csv, read_text(flags.domains_file));
    CKPT_ASSIGN(request.domain_of_rank, parse_domains(csv, flags.domains_file, request.ranks));
  }
  for (const std::string& text : flags.recovery) {
    CKPT_ASSIGN(const RecoveryWanted wanted, parse_wanted(text));
    request.recovery_wanted.push_back(wanted);
  }
  CKPT_TRY(validate(request));
  return add_current(request, flags.current_file);
}

}  // namespace moetrain

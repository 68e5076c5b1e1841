#include "trainer/elastic/lost_experts.h"

#include <map>

#include "trainer/checkpoint/expert_restore.h"

namespace moetrain {

namespace client = ckpt::client;

namespace {

void initialise_experts(Model& model, uint64_t seed, const std::set<uint32_t>& experts,
                        ExpertStamps& stamps) {
  const ModelConfig& shape = model.config();
  for (Expert& expert : model.experts().owned()) {
    const uint32_t at = expert.layer * shape.experts + expert.expert;
    if (!experts.contains(at)) continue;
    for (Parameter* parameter : {&expert.w1, &expert.w2, &expert.w3}) {
      initialise(*parameter, seed, shape.init_range);
    }
    stamps.at(ExpertPart::kWeights, at) = {};
    stamps.at(ExpertPart::kOptimizer, at) = {};
  }
}

}  // namespace

Result<ExpertRestore> restore_experts(client::Session& session, const std::string& run,
                                      uint32_t lineage, uint64_t step,
                                      const std::set<uint32_t>& experts,
                                      const std::vector<StateUnit>& units,
                                      const StateMemory& memory, Model& model, uint64_t seed,
                                      ExpertStamps& stamps) {
  const ModelConfig& shape = model.config();
  const std::vector<uint32_t> wanted(experts.begin(), experts.end());
  const auto read = ExpertVersions::read(session, run, {.lineage = lineage, .step = step}, units,
                                         {shape.layers, shape.experts}, wanted);
  if (!read.ok()) {
    if (read.error().code != ckpt::ErrorCode::kNotFound) return read.error();
    initialise_experts(model, seed, experts, stamps);
    return ExpertRestore{};
  }
  CKPT_TRY(read->put(memory, model.device()));
  ExpertRestore summary{.bytes_memory = read->bytes_memory(), .bytes_disk = read->bytes_disk()};
  std::map<uint32_t, uint64_t> step_of;
  for (const ExpertVersions::Version& version : read->versions()) {
    for (const ExpertPart part : {ExpertPart::kWeights, ExpertPart::kOptimizer}) {
      stamps.at(part, version.expert) = read->stamps().at(part, version.expert);
    }
    step_of[version.expert] = version.step;
  }
  for (const uint32_t id : read->units()) {
    const StateUnit& unit = units[id];
    if (step_of[*unit.layer * shape.experts + *unit.expert] != step) {
      summary.stale_units.push_back(id);
    }
  }
  return summary;
}

}  // namespace moetrain

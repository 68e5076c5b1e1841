#include "trainer/elastic/expert_restore.h"

#include "trainer/checkpoint/client_status.h"

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
  const uint32_t per_layer = model.config().experts;
  std::vector<ckpt_range> ranges;
  for (uint32_t id = 0; id < units.size(); ++id) {
    const StateUnit& unit = units[id];
    if (!unit.expert || !experts.contains(*unit.layer * per_layer + *unit.expert)) continue;
    for (const MemoryPiece& piece : memory.pieces(id, 0, unit.bytes)) {
      ranges.push_back({id, piece.offset, piece.bytes.size(), piece.bytes.data()});
    }
  }
  const auto restored =
      to_result(session.restore({.run = run, .lineage = lineage, .latest = true}, ranges));
  if (!restored.ok()) {
    if (restored.error().code != ckpt::ErrorCode::kNotFound) return restored.error();
    initialise_experts(model, seed, experts, stamps);
    return ExpertRestore{};
  }
  ExpertRestore summary;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const client::Restored& one = (*restored)[i];
    summary.bytes_memory += one.bytes_memory;
    summary.bytes_disk += one.bytes_disk;
    const uint32_t id = ranges[i].unit;
    const bool noted = !summary.stale_units.empty() && summary.stale_units.back() == id;
    if (one.version.step != step && !noted) summary.stale_units.push_back(id);
  }
  return summary;
}

}  // namespace moetrain

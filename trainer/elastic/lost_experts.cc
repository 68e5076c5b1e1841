#include "trainer/elastic/lost_experts.h"

#include "trainer/checkpoint/expert_restore.h"

namespace moetrain {

namespace client = ckpt::client;

namespace {

void initialise_experts(Model& model, uint64_t seed, const std::set<uint32_t>& experts,
                        ExpertStamps& stamps) {
  const ModelConfig& shape = model.config();
  for (OwnedRange& range : model.experts().owned()) {
    const uint32_t at = range.layer * shape.experts + range.expert;
    if (!experts.contains(at)) continue;
    initialise(range, shape, seed);
    stamps.at(ExpertPart::kWeights, at) = {};
    stamps.at(ExpertPart::kOptimizer, at) = {};
  }
}

Status put_versions(const ExpertVersions& read, const StateMemory& memory, Model& model,
                    uint64_t step, ExpertStamps& stamps, ExpertRestore& summary) {
  CKPT_TRY(read.put(memory, model.device()));
  summary.bytes_memory += read.bytes_memory();
  summary.bytes_disk += read.bytes_disk();
  summary.notes.insert(summary.notes.end(), read.notes().begin(), read.notes().end());
  for (const ExpertVersions::Version& version : read.versions()) {
    if (version.in_memory) summary.in_memory.insert(version.expert);
    for (const ExpertPart part : {ExpertPart::kWeights, ExpertPart::kOptimizer}) {
      stamps.at(part, version.expert) = read.stamps().at(part, version.expert);
    }
  }
  for (const RestoredUnit& restored : read.units()) {
    summary.versions.push_back(restored);
    if (restored.step != step) summary.stale_units.push_back(restored.unit);
  }
  return {};
}

}  // namespace

Result<ExpertRestore> restore_experts(client::Session& session, const std::string& run,
                                      uint32_t lineage, uint64_t step,
                                      const std::set<uint32_t>& experts,
                                      const std::vector<StateUnit>& units,
                                      const StateMemory& memory, Model& model, uint64_t seed,
                                      ExpertStamps& stamps) {
  const ModelConfig& shape = model.config();
  const ExpertGrid grid{shape.layers, shape.experts};
  const client::ViewPoint point{.lineage = lineage, .step = step};
  const auto read_these = [&](const std::vector<uint32_t>& wanted) {
    return ExpertVersions::read(session, run, point, units, grid, wanted);
  };
  ExpertRestore summary;
  const auto read = read_these({experts.begin(), experts.end()});
  if (read.ok()) {
    CKPT_TRY(put_versions(*read, memory, model, step, stamps, summary));
    return summary;
  }
  if (read.error().code != ckpt::ErrorCode::kNotFound) return read.error();
  // Some experts have no version: reads one by one, so that the others are restored.
  for (const uint32_t expert : experts) {
    const auto one = read_these({expert});
    if (one.ok()) {
      CKPT_TRY(put_versions(*one, memory, model, step, stamps, summary));
    } else if (one.error().code == ckpt::ErrorCode::kNotFound) {
      initialise_experts(model, seed, {expert}, stamps);
    } else {
      return one.error();
    }
  }
  return summary;
}

}  // namespace moetrain

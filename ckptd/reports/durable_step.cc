#include "ckptd/reports/durable_step.h"

#include "ckptd/query/documents.h"

namespace ckptd {

RunProgress::Durable durable_of(const CommitInfo& commit) {
  const auto plt = commit.metrics.find("plt");
  RunProgress::Durable durable{.lineage = commit.snapshot.lineage,
                               .step = commit.snapshot.step,
                               .time_ns = commit.time_ns,
                               .lost_tokens = {},
                               .plt = {}};
  if (losses_recorded(commit)) durable.lost_tokens = commit.lost_tokens;
  if (plt != commit.metrics.end()) durable.plt = plt->second;
  return durable;
}

}  // namespace ckptd

#include "ckptd/recovery/marked_commits.h"

#include <algorithm>
#include <utility>

#include "formats/selector.h"

namespace ckptd {

void MarkedCommits::use(std::vector<ckpt::SnapshotKey> commits) {
  const size_t left_out = commits.size() - std::min(commits.size(), kCommitsMax);
  commits.erase(commits.begin(), commits.begin() + static_cast<ptrdiff_t>(left_out));
  commits_ = std::move(commits);
}

MarkedCommits::Standing MarkedCommits::standing(const Catalog& catalog) {
  if (commits_.empty() || catalog.applied_sequence() == seen_sequence_) return standing_;
  seen_sequence_ = catalog.applied_sequence();
  standing_ = {};
  std::erase_if(commits_, [&](const ckpt::SnapshotKey& key) {
    const auto run = catalog.run(key.run);
    const auto commit = catalog.commit(key.run, key.lineage, key.step);
    if (!catalog.health().ok()) return false;
    if (!run.ok() || !commit || !commit->damaged || commit->deleted) return true;
    ++standing_.commits;
    standing_.newest = ckpt::commit_name(run->name, key.lineage, key.step);
    standing_.reason = commit->reason;
    return false;
  });
  return standing_;
}

}  // namespace ckptd

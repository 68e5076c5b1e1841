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
  Standing now;
  std::vector<ckpt::SnapshotKey> left;
  for (const ckpt::SnapshotKey& key : commits_) {
    const auto run = catalog.run(key.run);
    const auto commit = catalog.commit(key.run, key.lineage, key.step);
    if (!run.ok() || !commit || !commit->damaged || commit->deleted) continue;
    left.push_back(key);
    ++now.commits;
    now.newest = ckpt::commit_name(run->name, key.lineage, key.step);
    now.reason = commit->reason;
  }
  if (!catalog.health().ok()) return standing_;  // a commit that cannot be read is not removed
  commits_ = std::move(left);
  seen_sequence_ = catalog.applied_sequence();
  return standing_ = std::move(now);
}

}  // namespace ckptd

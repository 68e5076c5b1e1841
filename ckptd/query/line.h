// Private to this folder: the commits of a run that a query covers, and the names of
// commits.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/query/documents.h"

namespace ckptd {

// A line of history: a lineage up to a step, then each ancestor up to the step of the fork to its
// child.
class Line {
 public:
  explicit Line(std::vector<ViewPoint> path) : path_(std::move(path)) {}
  bool has(ViewPoint commit) const;

 private:
  std::vector<ViewPoint> path_;  // Catalog::path()
};

// Chooses commits of a run by lineage.
class CommitFilter {
 public:
  // RUN chooses all commits, RUN~L those of lineage L, and a commit's name that commit and the
  // earlier ones in its line of history. `lineages`, if not empty, changes the meaning of RUN and
  // RUN~L: "line" is the line of history that ends in the lineage (default: the current one),
  // "others" all commits outside that line, "all" all commits.
  static Result<CommitFilter> make(const QueryContext& context, const ckpt::Selector& selector,
                                   std::string_view lineages = {});
  const RunInfo& run() const { return run_; }
  bool matches(ViewPoint commit) const;
  // True if the filter can match no commit, so that a search is unnecessary.
  bool matches_nothing() const { return outside_ && one_lineage_; }

 private:
  CommitFilter(RunInfo run, std::optional<Line> line, bool outside)
      : run_(std::move(run)), line_(std::move(line)), outside_(outside) {}

  RunInfo run_;
  std::optional<ckpt::LineageId> lineage_;  // only this lineage
  std::optional<Line> line_;                // none: every line
  bool outside_;                            // commits outside the line
  bool one_lineage_ = false;                // and the run has only one lineage
};

// Names of a run's commits: RUN@STEP if that finds the commit, else RUN~LINEAGE@STEP.
class CommitNames {
 public:
  CommitNames(const Catalog& catalog, const RunInfo& run);
  std::string of(ViewPoint commit) const;

 private:
  const Catalog& catalog_;
  const ckpt::RunId run_;
  const std::string name_;
  const std::vector<ViewPoint> current_;  // the current lineage and its ancestors
};

}  // namespace ckptd

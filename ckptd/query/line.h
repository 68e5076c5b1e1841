// Private to this folder: which commits of a run a question is about, and the names that commits
// have.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/query/documents.h"

namespace ckptd {

// A line of history: a lineage up to a step, then each ancestor up to the step that its child was
// forked from.
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
  // The name RUN chooses all commits, RUN~L those of lineage L alone, and the name of a commit that
  // commit and the ones before it in its line of history. `lineages`, if not empty, changes what
  // RUN and RUN~L choose: "line" is the line of history that ends in the lineage (the current one,
  // if the name has none), "others" all commits outside of that line, "all" all of them.
  static Result<CommitFilter> make(const QueryContext& context, const ckpt::Selector& selector,
                                   std::string_view lineages = {});
  const RunInfo& run() const { return run_; }
  bool wants(ViewPoint commit) const;
  // True if no commit can be wanted: then there is none to look for.
  bool wants_nothing() const { return outside_ && one_lineage_; }

 private:
  CommitFilter(RunInfo run, std::optional<Line> line, bool outside)
      : run_(std::move(run)), line_(std::move(line)), outside_(outside) {}

  RunInfo run_;
  std::optional<ckpt::LineageId> lineage_;  // of this one alone
  std::optional<Line> line_;                // none: every line
  bool outside_;                            // what is not in the line
  bool one_lineage_ = false;                // and the run has no other
};

// Names the commits of a run: RUN@STEP where that means the commit, else RUN~LINEAGE@STEP.
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

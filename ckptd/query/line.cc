#include "ckptd/query/line.h"

#include <algorithm>

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

constexpr ckpt::Step kNewest = ~ckpt::Step{0};

}  // namespace

bool Line::has(ViewPoint commit) const {
  return std::ranges::any_of(path_, [&](const ViewPoint& stretch) {
    return stretch.lineage == commit.lineage && commit.step <= stretch.step;
  });
}

Result<CommitFilter> CommitFilter::make(const QueryContext& context, const ckpt::Selector& selector,
                                        std::string_view lineages) {
  const bool known =
      lineages.empty() || lineages == "all" || lineages == "line" || lineages == "others";
  if (!known) {
    return make_error(ErrorCode::kInvalidArgument, "argument lineages must be all, line or others");
  }
  if (selector.kind != ckpt::Selector::Kind::kRun) {
    CKPT_ASSIGN(Resolved at, resolve_selector(context, selector));
    Line line(context.catalog.path(at.run.id, at.point));
    return CommitFilter(std::move(at.run), std::move(line), lineages == "others");
  }
  CKPT_ASSIGN(RunInfo run, selected_run(context, selector));
  if (lineages == "line" || lineages == "others") {
    Line line(context.catalog.path(run.id, {selector.lineage, kNewest}));
    CKPT_ASSIGN(const auto all, context.catalog.lineages(run.id));
    CommitFilter filter(std::move(run), std::move(line), lineages == "others");
    filter.one_lineage_ = all.size() == 1;
    return filter;
  }
  CommitFilter all(std::move(run), std::nullopt, false);
  if (lineages.empty() && selector.lineage != 0) all.lineage_ = selector.lineage;
  return all;
}

bool CommitFilter::matches(ViewPoint commit) const {
  if (lineage_) return commit.lineage == *lineage_;
  return !line_ || line_->has(commit) != outside_;
}

CommitNames::CommitNames(const Catalog& catalog, const RunInfo& run)
    : catalog_(catalog),
      run_(run.id),
      name_(run.name),
      current_(catalog.path(run.id, {0, kNewest})) {}

std::string CommitNames::of(ViewPoint commit) const {
  const auto stretch = std::ranges::find(current_, commit.lineage, &ViewPoint::lineage);
  bool by_step = stretch != current_.end() && commit.step <= stretch->step;
  // A child lineage may also have a commit at the step of its fork.
  if (by_step && commit.step == stretch->step) {
    const auto meant = catalog_.resolve_any(run_, 0, commit.step);
    by_step = meant.ok() && *meant == commit;
  }
  return by_step ? fmt::format("{}@{}", name_, commit.step)
                 : ckpt::commit_name(name_, commit.lineage, commit.step);
}

}  // namespace ckptd

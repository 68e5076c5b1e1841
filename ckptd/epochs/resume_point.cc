#include "ckptd/epochs/resume_point.h"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "ckptd/catalog/lost_views.h"
#include "formats/base/counted.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Complete views next to a step without one, for messages.
std::string nearest_complete(const Catalog& catalog, ckpt::RunId run, ViewPoint wanted) {
  std::optional<ckpt::Step> below;
  std::optional<ckpt::Step> above;
  for (const CommitInfo& commit : catalog.commits(run)) {
    const ViewPoint point{.lineage = wanted.lineage, .step = commit.snapshot.step};
    if (commit.damaged || commit.deleted || !catalog.resolve(run, point.lineage, point.step).ok() ||
        !catalog.complete(run, point)) {
      continue;
    }
    if (point.step < wanted.step && (!below || point.step > *below)) below = point.step;
    if (point.step > wanted.step && (!above || point.step < *above)) above = point.step;
  }
  std::vector<ckpt::Step> steps;
  if (below) steps.push_back(*below);
  if (above) steps.push_back(*above);
  if (steps.empty()) return "the run has no complete view";
  return fmt::format("the nearest complete {} step {}", steps.size() == 1 ? "view is" : "views are",
                     fmt::join(steps, " and step "));
}

ckpt::Result<std::optional<ViewPoint>> resume_at(const Catalog& catalog, const RunInfo& run,
                                                 const JoinRequest& resume) {
  const auto point = catalog.resolve(run.id, resume.resume_lineage, resume.resume_step);
  if (point.ok() && catalog.complete(run.id, *point)) return std::optional(*point);
  const ViewPoint wanted{
      .lineage = resume.resume_lineage != 0 ? resume.resume_lineage : run.current_lineage,
      .step = resume.resume_step};
  return make_error(
      point.ok() ? ErrorCode::kFailedPrecondition : point.error().code, "{}; {}",
      point.ok() ? fmt::format("run {} step {}: its view is not complete", run.name, wanted.step)
                 : point.error().message,
      nearest_complete(catalog, run.id, wanted));
}

}  // namespace

ckpt::Result<std::optional<ViewPoint>> choose_resume(const Catalog& catalog, const RunInfo& run,
                                                     const JoinRequest& resume) {
  switch (resume.resume) {
    case ResumeMode::kStart:
      if (run.commits > 0) {
        const auto latest = catalog.latest_complete(run.id, 0);
        if (const auto lost = latest ? std::nullopt : lost_views(catalog, run, 0)) {
          return with_detail({ErrorCode::kFailedPrecondition, lost->message},
                             ckpt::ErrorDetail::kRunHasCommits);
        }
        return with_detail(
            make_error(ErrorCode::kFailedPrecondition,
                       "run {}: it has {}{}; resume from `latest` or a step, or start a "
                       "run of another name",
                       run.name, ckpt::base::counted(run.commits, "commit"),
                       latest ? fmt::format(", the newest complete one of step {}", latest->step)
                              : ", none of them complete"),
            ckpt::ErrorDetail::kRunHasCommits);
      }
      return std::optional<ViewPoint>();
    case ResumeMode::kLatest: {
      const auto latest = catalog.latest_complete(run.id, 0);
      if (!latest) {
        if (auto lost = lost_views(catalog, run, 0)) return *std::move(lost);
        return make_error(ErrorCode::kNotFound, "run {}: it has no {} to resume from", run.name,
                          run.commits == 0 ? "commit" : "complete view");
      }
      return latest;
    }
    case ResumeMode::kAtStep:
      return resume_at(catalog, run, resume);
    case ResumeMode::kContinue:
    case ResumeMode::kKeepState:  // joins as kContinue if there are no survivors
      break;
  }
  if (run.current_lineage == 0) return std::optional<ViewPoint>();
  auto latest = catalog.latest_complete(run.id, 0);
  if (latest) return latest;
  // A trainer that began from nothing here would believe that the run is new.
  if (auto lost = lost_views(catalog, run, 0)) return *std::move(lost);
  return latest;
}

}  // namespace ckptd

#include "ckptd/readers/wanted_view.h"

#include "ckptd/catalog/lost_views.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

Result<ViewPoint> wanted_view(const Catalog& catalog, const RunInfo& run,
                              const ckpt::fb::OpenRestoreT& message) {
  const bool of_tag = !message.tag.empty();
  if (message.newest && (message.latest || of_tag)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "run {}: `newest` goes with a step, not with `latest` or a tag", run.name);
  }
  if (message.newest) {
    // Each unit's newest version up to the step: the step itself needs no commit.
    const ViewPoint point{message.lineage != 0 ? message.lineage : run.current_lineage,
                          message.step};
    if (!catalog.path(run.id, point).empty()) return point;
    return make_error(ErrorCode::kNotFound, "run {}: no lineage {}", run.name, point.lineage);
  }
  if (of_tag) {
    const auto tags = catalog.tags(run.id);
    const auto tag = tags.find(message.tag);
    if (tag != tags.end()) return tag->second;
    return make_error(ErrorCode::kNotFound, "run {}: no tag {}", run.name, message.tag);
  }
  if (message.latest) {
    const auto latest = catalog.latest_complete(run.id, message.lineage);
    if (latest) return *latest;
    if (auto lost = lost_views(catalog, run, message.lineage)) return *std::move(lost);
    return make_error(ErrorCode::kNotFound, "run {}: it has no complete view", run.name);
  }
  // A damaged commit may be named: its older versions are restored, and the notes say why.
  return catalog.resolve_any(run.id, message.lineage, message.step);
}

}  // namespace ckptd

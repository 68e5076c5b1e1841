// Resolves RUN@STEP and RUN~LINEAGE@STEP to a commit.
#include <fmt/ranges.h>

#include "ckptd/catalog/catalog_impl.h"
#include "formats/selector.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;
using keys::CommitIndex;

namespace {

constexpr size_t kNamesShown = 3;
// Bounds the look-ups of one error: each lineage costs one.
constexpr size_t kLineagesSearched = 1000;

}  // namespace

std::string Catalog::Impl::in_other_lineages(const RunEntry& run, ckpt::LineageId except,
                                             ckpt::Step step) const {
  std::vector<std::string> names;  // the newest lineage first
  size_t searched = 0;
  for (auto other = run.lineages.rbegin(); other != run.lineages.rend(); ++other) {
    if (names.size() > kNamesShown || ++searched > kLineagesSearched) break;
    const ckpt::LineageId id = other->first;
    if (id == except) continue;
    if (!get(Family::kCommits, keys::commit(run.info.id, CommitIndex::kLive, id, step))) continue;
    names.push_back(ckpt::commit_name(run.info.name, id, step));
  }
  if (names.empty()) return {};
  const bool more = names.size() > kNamesShown;
  if (more) names.pop_back();
  return fmt::format("; {} it: {}{}", names.size() == 1 ? "another lineage has" : "others have",
                     fmt::join(names, ", "),
                     more ? " and more (`ckptctl log --all` lists them)" : "");
}

Result<ViewPoint> Catalog::resolve(ckpt::RunId run, ckpt::LineageId lineage,
                                   ckpt::Step step) const {
  CKPT_ASSIGN(const ViewPoint point, resolve_any(run, lineage, step));
  const auto commit = impl_->read_commit(run, point.lineage, point.step);
  if (commit && commit->info.damaged) {
    return make_error(ErrorCode::kCorrupt, "{}: damaged: {}",
                      ckpt::commit_name(impl_->find(run)->info.name, point.lineage, step),
                      commit->info.reason);
  }
  return point;
}

Result<ViewPoint> Catalog::resolve_any(ckpt::RunId run, ckpt::LineageId lineage,
                                       ckpt::Step step) const {
  const RunEntry* entry = impl_->find(run);
  if (entry == nullptr) return make_error(ErrorCode::kNotFound, "run number {}: no such run", run);
  const std::string& name = entry->info.name;
  if (lineage != 0 && !entry->lineages.contains(lineage)) {
    return make_error(ErrorCode::kNotFound, "run {}: no lineage {}", name, lineage);
  }
  for (const Impl::Stretch& stretch : impl_->path(*entry, {lineage, step})) {
    if (stretch.newest_step < step) break;
    const auto commit = impl_->read_commit(run, stretch.lineage, step);
    if (!commit) continue;
    if (commit->info.deleted) {
      return make_error(ErrorCode::kNotFound, "{}: deleted: {}{}",
                        ckpt::commit_name(name, stretch.lineage, step), commit->info.reason,
                        impl_->in_other_lineages(*entry, stretch.lineage, step));
    }
    return ViewPoint{stretch.lineage, step};
  }
  CKPT_TRY(impl_->health);
  const ckpt::LineageId in = lineage != 0 ? lineage : entry->info.current_lineage;
  std::string hint = impl_->in_other_lineages(*entry, in, step);
  if (hint.empty()) hint = fmt::format("; `ckptctl log {}` lists its commits", name);
  return make_error(ErrorCode::kNotFound, "run {} step {}: no commit at this step in lineage {}{}",
                    name, step, in, hint);
}

}  // namespace ckptd

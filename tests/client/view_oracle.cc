#include "tests/client/view_oracle.h"

#include "tests/client/told_model.h"

namespace ckpt::test {

void ViewOracle::opened(uint32_t lineage, std::optional<Point> resume) {
  if (resume) forks_[lineage] = *resume;
}

std::optional<ViewOracle::Point> ViewOracle::version(uint32_t unit, Point point) const {
  for (;;) {
    std::optional<Point> newest;
    for (const Point& commit : commits_) {
      if (commit.first != point.first || commit.second > point.second) continue;
      const auto units = told::units_at(commit.second);
      if (std::find(units.begin(), units.end(), unit) != units.end()) newest = commit;
    }
    if (newest) return newest;
    const auto fork = forks_.find(point.first);
    if (fork == forks_.end()) return std::nullopt;
    point = {fork->second.first, std::min(point.second, fork->second.second)};
  }
}

bool ViewOracle::complete(const Point& point) const {
  for (uint32_t unit = 0; unit < told::kUnits; ++unit) {
    if (!version(unit, point)) return false;
  }
  return true;
}

// In these runs lineages are numbered in the order of their steps.
std::optional<ViewOracle::Point> ViewOracle::resume_point() const {
  for (auto commit = commits_.rbegin(); commit != commits_.rend(); ++commit) {
    if (complete(*commit)) return *commit;
  }
  return std::nullopt;
}

uint64_t ViewOracle::lost_tokens(uint32_t layer, uint32_t expert, uint64_t view_step,
                                 uint64_t version_step) {
  return told::tokens_until(layer, expert, view_step) -
         told::tokens_until(layer, expert, version_step);
}

}  // namespace ckpt::test

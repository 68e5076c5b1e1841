// The oracle of runs that grow: which units a snapshot and a view have.
#include "tests/simulation/simulation.h"

namespace ckptd::testing {

namespace {

constexpr size_t kGrowthMax = 4;

}  // namespace

// Grown units have the same description on every lineage, so that forks may grow alike.
void Simulation::start_growing() {
  job_.base = job_.model.size();
  for (size_t i = 0; i < kGrowthMax; ++i) {
    job_.model.emplace_back();
    job_.model.back().name = fmt::format("grown.{}", i);
    job_.model.back().bytes = 500 + 9'000 * i;
  }
}

void Simulation::grow(const Point& point) {
  if (grown_ < kGrowthMax && chance(25)) ++grown_;
  grown_at_[point] = grown_;
  const auto first = job_.model.begin() + static_cast<ptrdiff_t>(job_.base);
  for (auto& rank : job_.ranks) {
    rank->first_grown = static_cast<ckpt::UnitId>(job_.base);
    rank->grown.assign(first, first + static_cast<ptrdiff_t>(grown_));
  }
}

void Simulation::resume_growth(const fb::EpochStartedT& epoch) {
  grown_ = 0;
  const Point view{epoch.resume_lineage, epoch.resume_step};
  while (epoch.has_resume && grown_ < kGrowthMax &&
         version_at(static_cast<ckpt::UnitId>(job_.base + grown_), view)) {
    ++grown_;
  }
  // The run has what some commit has brought, and nothing else.
  size_t brought = 0;
  for (const Point& commit : known_) {
    const auto grown = grown_at_.find(commit);
    if (grown != grown_at_.end()) brought = std::max(brought, grown->second);
  }
  EXPECT_GE(epoch.grown.size(), brought);
  for (size_t i = 0; i < epoch.grown.size(); ++i) {
    EXPECT_EQ(epoch.grown[i]->id, job_.base + i);
    EXPECT_EQ(epoch.grown[i]->name, job_.model[job_.base + i].name);
  }
  if (!options_.prune) {
    EXPECT_EQ(epoch.grown.size(), brought);
  }
}

fb::OpenRestoreT Simulation::whole_view(const Point& point) const {
  fb::OpenRestoreT request = job_.whole(point.second);
  request.lineage = point.first;
  std::erase_if(request.wants, [&](const fb::Range& want) {
    return want.unit() >= job_.registered().size() && !version_at(want.unit(), point);
  });
  return request;
}

}  // namespace ckptd::testing

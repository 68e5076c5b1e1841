// ViewOracle: what the history must be, worked out from what trainers were told alone: the
// snapshots that are durable, and the resume point of each epoch. Pure; it asks no daemon.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace ckpt::test {

class ViewOracle {
 public:
  using Point = std::pair<uint32_t, uint64_t>;  // lineage, step

  void opened(uint32_t lineage, std::optional<Point> resume);
  void durable(const Point& point) { commits_.insert(point); }

  const std::set<Point>& commits() const { return commits_; }
  // The version of the unit in the view at the point; nullopt if there is none.
  std::optional<Point> version(uint32_t unit, Point point) const;
  bool complete(const Point& point) const;
  // Resume point of an epoch that continues the newest lineage: its newest complete view.
  std::optional<Point> resume_point() const;
  // Tokens up to the view's step that the state of the version's step has not seen.
  static uint64_t lost_tokens(uint32_t layer, uint32_t expert, uint64_t view_step,
                              uint64_t version_step);

 private:
  std::set<Point> commits_;
  std::map<uint32_t, Point> forks_;  // the point that each lineage resumed from
};

}  // namespace ckpt::test

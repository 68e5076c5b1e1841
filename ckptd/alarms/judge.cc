#include "ckptd/alarms/judge.h"

#include <algorithm>

namespace ckptd {
namespace {

using ckpt::fb::AlarmKind;

class Judge {
 public:
  Judge(const SnapshotFacts& facts, const std::vector<ckpt::UnitSpec>& units,
        const NewestVersions& newest,
        const std::function<ckpt::ExpertTokenCounts(ViewPoint)>& tokens_at)
      : facts_(facts), units_(units), newest_(newest), tokens_at_(tokens_at) {}

  Judgement run() {
    for (const auto& [unit, count] : facts_.not_finite) {
      raise({unit, AlarmKind::NotFinite, count});
    }
    if (newest_.empty()) return std::move(judgement_);
    for (const auto& [unit, crc] : facts_.saved) check_saved(unit, crc);
    if (facts_.staleness_max > 0) check_stale();
    return std::move(judgement_);
  }

 private:
  void raise(const ckpt::Alarm& alarm) {
    judgement_.alarms.add(alarm);
    ++judgement_.raised.at(static_cast<size_t>(alarm.kind));
  }

  std::optional<UnitSum> before(ckpt::UnitId unit) const {
    if (unit >= newest_.size() || !newest_[unit] || newest_[unit]->step >= facts_.step) {
      return std::nullopt;
    }
    return newest_[unit];
  }

  void check_saved(ckpt::UnitId unit, uint32_t crc) {
    const auto last = before(unit);
    if (!last || last->crc32c != crc) return;
    if ((facts_.constant && facts_.constant(unit)) || was_idle(unit, *last)) return;
    raise({unit, AlarmKind::Unchanged, last->step});
  }

  // True if the expert's state holds no more tokens than before: either it received none, or a
  // recovery restored an older version and lost the received tokens.
  bool was_idle(ckpt::UnitId unit, const UnitSum& last) {
    const ckpt::UnitSpec& spec = units_[unit];
    if (!spec.expert) return false;
    const uint32_t layer = spec.layer.value_or(0);
    const auto now = ckpt::counts_of(facts_.tokens, layer, *spec.expert);
    if (!now) return false;
    const ViewPoint commit{last.lineage, last.step};
    auto [counts, added] = counts_.try_emplace(commit);
    if (added) counts->second = tokens_at_(commit);
    const auto then = ckpt::counts_of(counts->second, layer, *spec.expert);
    return then && then->held() == now->held();
  }

  void check_stale() {
    auto saved = facts_.saved.begin();
    for (ckpt::UnitId unit = 0; unit < units_.size(); ++unit) {
      while (saved != facts_.saved.end() && saved->first < unit) ++saved;
      const bool planned = saved != facts_.saved.end() && saved->first == unit;
      if (planned || !units_[unit].expert) continue;
      if (unit < newest_.size() && newest_[unit] && newest_[unit]->step >= facts_.step) continue;
      const auto last = before(unit);
      if (!last && unit >= facts_.base_units) continue;
      const ckpt::Step from = last ? last->step : std::min(facts_.lineage_began, facts_.step);
      if (facts_.step - from > facts_.staleness_max) raise({unit, AlarmKind::Stale, from});
    }
  }

  const SnapshotFacts& facts_;
  const std::vector<ckpt::UnitSpec>& units_;
  const NewestVersions& newest_;
  const std::function<ckpt::ExpertTokenCounts(ViewPoint)>& tokens_at_;
  std::map<ViewPoint, ckpt::ExpertTokenCounts> counts_;
  Judgement judgement_;
};

}  // namespace

Judgement judge(const SnapshotFacts& facts, const std::vector<ckpt::UnitSpec>& units,
                const NewestVersions& newest,
                const std::function<ckpt::ExpertTokenCounts(ViewPoint)>& tokens_at) {
  return Judge(facts, units, newest, tokens_at).run();
}

}  // namespace ckptd

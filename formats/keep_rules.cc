#include "formats/keep_rules.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "formats/base/printable.h"

namespace ckpt {
namespace {

Status check_name(std::string_view what, std::string_view name) {
  const bool printable = std::all_of(
      name.begin(), name.end(), [](char character) { return character > ' ' && character < 127; });
  if (!name.empty() && name.size() <= kKeepNameBytesMax && printable) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "{} '{}': a name has 1 to {} printable ASCII characters, no spaces", what,
                    base::printable(name.substr(0, kKeepNameBytesMax)), kKeepNameBytesMax);
}

}  // namespace

Status check_keep_rules(const KeepRules& rules) {
  if (rules.tags.size() > kKeepNamesMax || rules.best.size() > kKeepNamesMax) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} tags and {} metrics to keep by, the most of each is {}",
                      rules.tags.size(), rules.best.size(), kKeepNamesMax);
  }
  if (rules.within.count() < 0) {
    return make_error(ErrorCode::kInvalidArgument, "keep within {} ns: that is not a duration",
                      rules.within.count());
  }
  for (const std::string& tag : rules.tags) CKPT_TRY(check_name("tag", tag));
  for (const KeepRules::Best& best : rules.best) {
    CKPT_TRY(check_name("metric", best.metric));
    if (best.count == 0) {
      return make_error(ErrorCode::kInvalidArgument, "metric {}: keep how many of the best?",
                        best.metric);
    }
  }
  return {};
}

fb::RulesSetT to_fb(const KeepRules& rules) {
  fb::RulesSetT record;
  record.last = rules.last;
  record.hourly = rules.hourly;
  record.daily = rules.daily;
  record.weekly = rules.weekly;
  record.monthly = rules.monthly;
  record.yearly = rules.yearly;
  record.within_ns = static_cast<uint64_t>(rules.within.count());
  record.every_steps = rules.every_steps;
  record.tags = rules.tags;
  record.best.reserve(rules.best.size());
  for (const KeepRules::Best& best : rules.best) {
    record.best.push_back(std::make_unique<fb::KeepBestT>());
    record.best.back()->metric = best.metric;
    record.best.back()->count = best.count;
    record.best.back()->highest = best.highest;
  }
  return record;
}

Result<KeepRules> from_fb(const fb::RulesSetT& record) {
  if (record.within_ns > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return make_error(ErrorCode::kInvalidArgument, "keep within {} ns: too long", record.within_ns);
  }
  KeepRules rules;
  rules.last = record.last;
  rules.hourly = record.hourly;
  rules.daily = record.daily;
  rules.weekly = record.weekly;
  rules.monthly = record.monthly;
  rules.yearly = record.yearly;
  rules.within = std::chrono::nanoseconds(static_cast<int64_t>(record.within_ns));
  rules.every_steps = record.every_steps;
  rules.tags = record.tags;
  rules.best.reserve(record.best.size());
  for (const auto& best : record.best) {
    rules.best.push_back({best->metric, best->count, best->highest});
  }
  CKPT_TRY(check_keep_rules(rules));
  return rules;
}

}  // namespace ckpt

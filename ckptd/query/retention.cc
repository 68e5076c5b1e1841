// Arguments and documents of what decides how long commits stay: keep, pin, prune.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

#include "ckptd/query/documents.h"
#include "formats/base/printable.h"
#include "formats/selector.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::KeepRules;
using ckpt::make_error;
using Value = nlohmann::json;

constexpr uint64_t kNanoseconds = 1'000'000'000;

// Reads the members of an object one by one; each must have the type that its reader wants.
class RulesReader {
 public:
  explicit RulesReader(const Value& object) : object_(object) {}

  Result<KeepRules> read() {
    if (!object_.is_object()) return bad("rules must be an object");
    KeepRules rules;
    uint64_t within_seconds = 0;
    for (const auto& [name, value] : object_.items()) {
      CKPT_TRY(read_member(name, value, rules, within_seconds));
    }
    if (within_seconds > static_cast<uint64_t>(INT64_MAX) / kNanoseconds) {
      return bad("within_seconds is too long");
    }
    rules.within = std::chrono::nanoseconds(static_cast<int64_t>(within_seconds * kNanoseconds));
    CKPT_TRY(check_keep_rules(rules));
    return rules;
  }

 private:
  template <typename... Args>
  static ckpt::Error bad(fmt::format_string<Args...> format, Args&&... args) {
    return make_error(ErrorCode::kInvalidArgument, "rules: {}",
                      fmt::format(format, std::forward<Args>(args)...));
  }

  static Status read_member(const std::string& name, const Value& value, KeepRules& rules,
                            uint64_t& within_seconds) {
    const std::map<std::string_view, uint32_t*> counts = {
        {"last", &rules.last},     {"hourly", &rules.hourly},   {"daily", &rules.daily},
        {"weekly", &rules.weekly}, {"monthly", &rules.monthly}, {"yearly", &rules.yearly}};
    if (const auto count = counts.find(name); count != counts.end()) {
      return read_number(name, value, *count->second);
    }
    if (name == "within_seconds") return read_number(name, value, within_seconds);
    if (name == "every_steps") return read_number(name, value, rules.every_steps);
    if (name == "tags") return read_tags(value, rules);
    if (name == "best") return read_all_best(value, rules);
    return bad("there is no rule {}", ckpt::base::printable(name));
  }

  template <typename Number>
  static Status read_number(const std::string& name, const Value& value, Number& into) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > std::numeric_limits<Number>::max()) {
      return bad("{} must be a number from 0 to {}", name, std::numeric_limits<Number>::max());
    }
    into = static_cast<Number>(value.get<uint64_t>());
    return {};
  }

  static Status read_tags(const Value& value, KeepRules& rules) {
    if (!value.is_array()) return bad("tags must be a list");
    for (const Value& tag : value) {
      if (!tag.is_string()) return bad("a tag must be a text");
      rules.tags.push_back(tag.get<std::string>());
      CKPT_TRY(ckpt::validate_tag(rules.tags.back()));  // no commit can have another
    }
    return {};
  }

  static Status read_all_best(const Value& value, KeepRules& rules) {
    if (!value.is_array()) return bad("best must be a list");
    for (const Value& one : value) {
      if (!one.is_object() || !one.contains("metric") || !one["metric"].is_string() ||
          !one.contains("count")) {
        return bad("each best is {{metric, count, highest}}");
      }
      KeepRules::Best best;
      best.metric = one["metric"].get<std::string>();
      CKPT_TRY(read_number("count of the best", one["count"], best.count));
      const auto highest = one.find("highest");
      if (highest != one.end() && !highest->is_boolean()) return bad("highest is true or false");
      best.highest = highest != one.end() && highest->get<bool>();
      rules.best.push_back(std::move(best));
    }
    return {};
  }

  const Value& object_;
};

Json point_json(ViewPoint point) { return {{"step", point.step}, {"lineage", point.lineage}}; }

Json kept_json(const PrunePlan::Kept& kept) {
  Json document = point_json(kept.point);
  document["time"] = iso_time(kept.time_ns);
  document["reasons"] = kept.reasons;
  return document;
}

Json removed_json(const PrunePlan::Removed& removed) {
  Json document = point_json(removed.point);
  document["time"] = iso_time(removed.time_ns);
  document["reason"] = removed.reason;
  document["again"] = removed.again;
  document["tags"] = removed.tags;
  document["units_left"] = removed.kept_units.size();
  document["bytes"] = removed.bytes;
  return document;
}

}  // namespace

Json rules_json(const KeepRules& rules) {
  Json best = Json::array();
  for (const KeepRules::Best& one : rules.best) {
    best.push_back({{"metric", one.metric}, {"count", one.count}, {"highest", one.highest}});
  }
  return {{"last", rules.last},
          {"hourly", rules.hourly},
          {"daily", rules.daily},
          {"weekly", rules.weekly},
          {"monthly", rules.monthly},
          {"yearly", rules.yearly},
          {"within_seconds", static_cast<uint64_t>(rules.within.count()) / kNanoseconds},
          {"every_steps", rules.every_steps},
          {"tags", rules.tags},
          {"best", std::move(best)}};
}

Result<KeepRules> QueryArgs::keep_rules(const std::string& name) const {
  return RulesReader(object_[name]).read();
}

Result<KeepArgs> parse_keep_args(const QueryContext& context, std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, {"target", "rules"}));
  KeepArgs keep;
  CKPT_ASSIGN(keep.run, whole_run(context, parsed, "keep"));
  if (parsed.has("rules")) {
    CKPT_ASSIGN(keep.rules, parsed.keep_rules("rules"));
  }
  return keep;
}

QueryAnswer keep_answer(const QueryContext& context, const RunInfo& run) {
  Json pins = Json::array();
  for (const ViewPoint& pin : context.catalog.pins(run.id)) pins.push_back(point_json(pin));
  return {0, dump(Json{{"run", run.name},
                       {"rules", rules_json(context.catalog.keep_rules(run.id))},
                       {"pins", std::move(pins)}})};
}

Result<PinChange> parse_pin_args(const QueryContext& context, std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, {"target", "remove"}));
  CKPT_ASSIGN(const ckpt::Selector selector, parsed.selector("target"));
  if (selector.kind == ckpt::Selector::Kind::kRun) {
    return make_error(ErrorCode::kInvalidArgument, "a commit is pinned, RUN@STEP, not a run");
  }
  PinChange change;
  CKPT_ASSIGN(change.target, resolve_selector(context, selector));
  CKPT_ASSIGN(change.remove, parsed.flag("remove"));
  const std::vector<ViewPoint> pins = context.catalog.pins(change.target.run.id);
  if (change.remove && !std::binary_search(pins.begin(), pins.end(), change.target.point)) {
    return make_error(ErrorCode::kNotFound, "run {} step {}: it is not pinned",
                      change.target.run.name, change.target.point.step);
  }
  return change;
}

Result<PruneArgs> parse_prune_args(const QueryContext& context, std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, {"target", "rules", "dry_run"}));
  PruneArgs prune;
  CKPT_ASSIGN(prune.run, whole_run(context, parsed, "prune"));
  if (parsed.has("rules")) {
    CKPT_ASSIGN(prune.rules, parsed.keep_rules("rules"));
  }
  CKPT_ASSIGN(prune.dry_run, parsed.flag("dry_run"));
  return prune;
}

Result<RemoveArgs> parse_remove_args(const QueryContext& context, std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, {"target", "force", "dry_run"}));
  CKPT_ASSIGN(const ckpt::Selector selector, parsed.selector("target"));
  RemoveArgs remove;
  CKPT_ASSIGN(remove.force, parsed.flag("force"));
  CKPT_ASSIGN(remove.dry_run, parsed.flag("dry_run"));
  if (selector.kind != ckpt::Selector::Kind::kRun) {
    CKPT_ASSIGN(const Resolved resolved, resolve_selector(context, selector));
    remove.run = resolved.run;
    remove.point = resolved.point;
    return remove;
  }
  CKPT_ASSIGN(remove.run, whole_run(context, parsed, "rm"));
  return remove;
}

QueryAnswer prune_answer(const RunInfo& run, const PrunePlan& plan, bool dry_run) {
  Json kept = Json::array();
  for (const PrunePlan::Kept& one : plan.kept) kept.push_back(kept_json(one));
  Json removed = Json::array();
  uint64_t bytes = 0;
  for (const PrunePlan::Removed& one : plan.removed) {
    removed.push_back(removed_json(one));
    bytes += one.bytes;
  }
  return {0, dump(Json{{"run", run.name},
                       {"dry_run", dry_run},
                       {"kept", std::move(kept)},
                       {"removed", std::move(removed)},
                       {"bytes", bytes}})};
}

}  // namespace ckptd

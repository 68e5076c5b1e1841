// Arguments and documents of the retention verbs: keep, pin, prune.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <span>

#include "ckptd/query/documents.h"
#include "ckptd/query/rows.h"
#include "formats/base/hash.h"
#include "formats/base/printable.h"
#include "formats/selector.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::KeepRules;
using ckpt::make_error;
using Value = nlohmann::json;

constexpr uint64_t kNanoseconds = 1'000'000'000;

// Reads the members of an object one by one, and checks the type of each.
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
      CKPT_TRY(ckpt::validate_tag(rules.tags.back()));  // no commit can have an invalid tag
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

// At most a screenful; the rest is only counted.
Json notes_json(const PrunePlan& plan) {
  constexpr size_t kNotesMax = 16;
  Json notes = Json::array();
  for (const std::string& note : plan.notes) {
    if (notes.size() == kNotesMax) break;
    notes.push_back(note);
  }
  if (plan.notes.size() > kNotesMax) {
    notes.push_back(fmt::format("and {} more of the kind", plan.notes.size() - kNotesMax));
  }
  return notes;
}

// A plan that is executed answers once: further pages could not be requested.
Result<PlanPage> plan_page(const QueryContext& context, const QueryArgs& args, bool dry_run) {
  PlanPage page;
  page.paged = args.paged();
  if (page.paged && !dry_run) {
    return make_error(ErrorCode::kInvalidArgument, "only a dry run is answered in pages");
  }
  CKPT_ASSIGN(const Position from, args.position(2));
  if (!from.empty()) page.from = PlanPage::From{.plan = from[0], .row = from[1]};
  CKPT_ASSIGN(page.bytes, args.page_bytes(context.page_bytes_max));
  return page;
}

// Identifies a plan: the plan made for the next page must be the same.
uint64_t plan_hash(const PrunePlan& plan) {
  std::vector<uint64_t> numbers = {plan.kept.size(), plan.removed.size()};
  for (const PrunePlan::Kept& one : plan.kept) {
    numbers.insert(numbers.end(), {one.point.lineage, one.point.step});
  }
  for (const PrunePlan::Removed& one : plan.removed) {
    numbers.insert(numbers.end(),
                   {one.point.lineage, one.point.step, one.kept_units.size(), one.bytes});
  }
  return ckpt::base::hash128(std::as_bytes(std::span(numbers))).low;
}

Page plan_rows(const RunInfo& run, const PrunePlan& plan, bool dry_run, const PlanPage& asked) {
  uint64_t bytes = 0;
  for (const PrunePlan::Removed& one : plan.removed) bytes += one.bytes;
  const size_t all = plan.kept.size() + plan.removed.size();
  size_t row = asked.from ? asked.from->row : 0;
  // Without pages each list gets half of the room, so that both are visible.
  const size_t room = asked.paged ? asked.bytes : asked.bytes / 2;
  Rows kept(Json(), "", room);
  while (row < plan.kept.size() && kept.add_row(kept_json(plan.kept[row]))) ++row;
  const std::string kept_text = std::move(kept).text();
  Json left_out = {{"kept", plan.kept.size() - std::min(row, plan.kept.size())}};
  if (!asked.paged) row = plan.kept.size();
  Rows removed(Json(), "", room - (asked.paged ? std::min(room, kept_text.size()) : 0));
  if (row >= plan.kept.size()) {
    while (row < all && removed.add_row(removed_json(plan.removed[row - plan.kept.size()]))) ++row;
  }
  left_out["removed"] = all - std::max(row, plan.kept.size());
  Page page{.json = {}, .lists = {"kept", "removed"}};
  if (asked.paged && row < all) page.next = {plan_hash(plan), row};
  Json after = {{"bytes", bytes}, {"notes", notes_json(plan)}};
  if (!asked.paged && left_out != Json{{"kept", 0}, {"removed", 0}}) after["left_out"] = left_out;
  page.json = fmt::format(R"({{"run":{},"dry_run":{},"kept":{},"removed":{},{})", dump(run.name),
                          dry_run, kept_text, std::move(removed).text(), dump(after).substr(1));
  return page;
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
  const std::vector<ViewPoint> pins = context.catalog.pins(run.id);
  Rows rows(Json{{"run", run.name}, {"rules", rules_json(context.catalog.keep_rules(run.id))}},
            "pins", context.page_bytes_max);
  size_t listed = 0;
  while (listed < pins.size() && rows.add_row(point_json(pins[listed]))) ++listed;
  const size_t left_out = pins.size() - listed;
  return {0,
          std::move(rows).text(left_out > 0 ? Json{{"pins_left_out", left_out}} : Json::object())};
}

Result<PinChange> parse_pin_args(const QueryContext& context, std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, {"target", "remove"}));
  CKPT_ASSIGN(const ckpt::Selector selector, parsed.selector("target"));
  if (selector.kind == ckpt::Selector::Kind::kRun) {
    return make_error(ErrorCode::kInvalidArgument,
                      "only a commit can be pinned: name one, {0}@STEP or {0}@latest",
                      selector.run);
  }
  PinChange change;
  CKPT_ASSIGN(change.target, resolve_selector(context, selector));
  CKPT_ASSIGN(change.remove, parsed.flag("remove"));
  const std::vector<ViewPoint> pins = context.catalog.pins(change.target.run.id);
  if (change.remove && !std::binary_search(pins.begin(), pins.end(), change.target.point)) {
    return make_error(ErrorCode::kNotFound, "{}: it is not pinned",
                      ckpt::commit_name(change.target.run.name, change.target.point.lineage,
                                        change.target.point.step));
  }
  return change;
}

Result<PruneArgs> parse_prune_args(const QueryContext& context, std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, {"target", "rules", "force", "dry_run",
                                                              "page", "page_bytes"}));
  PruneArgs prune;
  CKPT_ASSIGN(prune.run, whole_run(context, parsed, "prune"));
  if (parsed.has("rules")) {
    CKPT_ASSIGN(prune.rules, parsed.keep_rules("rules"));
  }
  CKPT_ASSIGN(prune.force, parsed.flag("force"));
  CKPT_ASSIGN(prune.dry_run, parsed.flag("dry_run"));
  CKPT_ASSIGN(prune.page, plan_page(context, parsed, prune.dry_run));
  return prune;
}

Result<RemoveArgs> parse_remove_args(const QueryContext& context, std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed,
              QueryArgs::parse(args, {"target", "force", "dry_run", "page", "page_bytes"}));
  CKPT_ASSIGN(const ckpt::Selector selector, parsed.selector("target"));
  RemoveArgs remove;
  CKPT_ASSIGN(remove.force, parsed.flag("force"));
  CKPT_ASSIGN(remove.dry_run, parsed.flag("dry_run"));
  CKPT_ASSIGN(remove.page, plan_page(context, parsed, remove.dry_run));
  if (selector.kind != ckpt::Selector::Kind::kRun) {
    CKPT_ASSIGN(const Resolved resolved, resolve_selector(context, selector));
    remove.run = resolved.run;
    remove.point = resolved.point;
    return remove;
  }
  CKPT_ASSIGN(remove.run, run_not_lineage(context, selector, "rm"));
  return remove;
}

QueryAnswer prune_answer(const RunInfo& run, const PrunePlan& plan, bool dry_run,
                         const PlanPage& page) {
  if (page.from && page.from->plan != plan_hash(plan)) {
    return error_answer(changed_meanwhile(run.name));
  }
  Page rows = plan_rows(run, plan, dry_run, page);
  return {0, page.paged ? envelope(rows) : std::move(rows.json)};
}

}  // namespace ckptd

#include <algorithm>
#include <charconv>

#include "ckptd/catalog/lost_views.h"
#include "ckptd/query/documents.h"
#include "formats/base/printable.h"
#include "formats/json_text.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

bool may_read(const QueryContext& context, const RunInfo& run) {
  return !context.may_read || context.may_read(run);
}

}  // namespace

Result<QueryArgs> QueryArgs::parse(std::string_view text, const std::vector<std::string>& allowed) {
  QueryArgs args;
  args.object_ = nlohmann::json::object();
  if (text.empty()) return args;
  if (const Status json = ckpt::check_json(text); !json.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "arguments: {}", json.error().message);
  }
  args.object_ = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!args.object_.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "arguments must be a JSON object");
  }
  for (const auto& [name, value] : args.object_.items()) {
    if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) {
      return make_error(ErrorCode::kInvalidArgument, "unknown argument {}",
                        ckpt::base::printable(name));
    }
  }
  return args;
}

Result<std::string> QueryArgs::text(const std::string& name) const {
  const auto found = object_.find(name);
  if (found == object_.end() || !found->is_string()) {
    return make_error(ErrorCode::kInvalidArgument, "argument {} must be a text", name);
  }
  return found->get<std::string>();
}

Result<uint64_t> QueryArgs::number(const std::string& name, uint64_t otherwise) const {
  const auto found = object_.find(name);
  if (found == object_.end()) return otherwise;
  if (!found->is_number_unsigned()) {
    return make_error(ErrorCode::kInvalidArgument, "argument {} must be a number from 0 on", name);
  }
  return found->get<uint64_t>();
}

Result<bool> QueryArgs::flag(const std::string& name) const {
  const auto found = object_.find(name);
  if (found == object_.end()) return false;
  if (!found->is_boolean()) {
    return make_error(ErrorCode::kInvalidArgument, "argument {} must be true or false", name);
  }
  return found->get<bool>();
}

Result<ckpt::Selector> QueryArgs::selector(const std::string& name) const {
  CKPT_ASSIGN(const std::string value, text(name));
  return ckpt::parse_selector(value);
}

Result<std::vector<std::string>> QueryArgs::texts(const std::string& name) const {
  std::vector<std::string> values;
  const auto found = object_.find(name);
  if (found == object_.end()) return values;
  bool good = found->is_array();
  for (const auto& value : *found) {
    good = good && value.is_string();
    if (good) values.push_back(value.get<std::string>());
  }
  if (good) return values;
  return make_error(ErrorCode::kInvalidArgument, "argument {} must be a list of texts", name);
}

Result<Position> QueryArgs::position(size_t count) const {
  if (!paged()) return Position();
  CKPT_ASSIGN(const std::string value, text("page"));
  if (value.empty()) return Position();
  const auto wrong = [] {
    return make_error(ErrorCode::kInvalidArgument,
                      "argument page must be empty, or `next` of the page before");
  };
  Position position;
  const char* at = value.data();
  const char* const end = at + value.size();
  while (true) {
    uint64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return wrong();
    position.push_back(number);
    if (rest == end) break;
    if (*rest != '.' || position.size() == count) return wrong();
    at = rest + 1;
  }
  if (position.size() != count) return wrong();
  return position;
}

Result<size_t> QueryArgs::page_bytes(size_t most) const {
  CKPT_ASSIGN(const uint64_t wanted, number("page_bytes", most));
  return std::min<uint64_t>(wanted, most);
}

namespace {

ckpt::Error takes_a_run(std::string_view verb, const ckpt::Selector& selector) {
  return make_error(ErrorCode::kInvalidArgument, "{} takes a run, not {}", verb,
                    to_string(selector));
}

}  // namespace

Result<RunInfo> whole_run(const QueryContext& context, const QueryArgs& args,
                          std::string_view verb) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  if (selector.lineage != 0) return takes_a_run(verb, selector);
  return run_or_lineage(context, selector, verb);
}

Result<RunInfo> run_not_lineage(const QueryContext& context, const ckpt::Selector& selector,
                                std::string_view verb) {
  if (selector.lineage == 0) return selected_run(context, selector);
  return make_error(ErrorCode::kInvalidArgument,
                    "{} takes a run or a commit, not the lineage {}: name {}, or {}@STEP", verb,
                    to_string(selector), selector.run, to_string(selector));
}

Result<RunInfo> run_or_lineage(const QueryContext& context, const ckpt::Selector& selector,
                               std::string_view verb) {
  if (selector.kind != ckpt::Selector::Kind::kRun) return takes_a_run(verb, selector);
  return selected_run(context, selector);
}

Result<RunInfo> selected_run(const QueryContext& context, const ckpt::Selector& selector) {
  CKPT_ASSIGN(RunInfo run, context.catalog.run(selector.run));
  if (!may_read(context, run)) {
    return with_detail(make_error(ErrorCode::kNotFound, "run {}: no such run", selector.run),
                       ckpt::ErrorDetail::kNoSuchRun);
  }
  if (selector.lineage == 0) return run;
  CKPT_ASSIGN(const auto lineages, context.catalog.lineages(run.id));
  const bool known = std::any_of(lineages.begin(), lineages.end(), [&](const Lineage& lineage) {
    return lineage.id == selector.lineage;
  });
  if (known) return run;
  return make_error(ErrorCode::kNotFound,
                    "run {}: no lineage {}; `ckptctl log {} --all` lists them", run.name,
                    selector.lineage, run.name);
}

Result<Resolved> resolve_selector(const QueryContext& context, const ckpt::Selector& selector) {
  CKPT_ASSIGN(RunInfo run, selected_run(context, selector));
  using Kind = ckpt::Selector::Kind;
  if (selector.kind == Kind::kStep) {
    CKPT_ASSIGN(const ViewPoint point,
                context.catalog.resolve_any(run.id, selector.lineage, selector.step));
    return Resolved{std::move(run), point};
  }
  if (selector.kind == Kind::kTag) {
    const auto tags = context.catalog.tags(run.id);
    const auto tag = tags.find(selector.tag);
    if (tag == tags.end()) {
      return make_error(ErrorCode::kNotFound,
                        "run {}: no tag {}; `ckptctl log {} --all` shows tags", run.name,
                        selector.tag, run.name);
    }
    CKPT_ASSIGN(const ViewPoint point,
                context.catalog.resolve_any(run.id, tag->second.lineage, tag->second.step));
    return Resolved{std::move(run), point};
  }
  const auto point = context.catalog.latest_complete(run.id, selector.lineage);
  if (point) return Resolved{std::move(run), *point};
  CKPT_TRY(context.catalog.health());
  if (auto lost = lost_views(context.catalog, run, selector.lineage)) return *std::move(lost);
  if (run.commits > 0) {
    return make_error(ErrorCode::kNotFound, "run {}: no complete view yet", run.name);
  }
  return with_detail(make_error(ErrorCode::kNotFound, "run {}: it has no commit yet", run.name),
                     ckpt::ErrorDetail::kNoCommit);
}

Result<VerifyTarget> parse_verify_args(const QueryContext& context, std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, {"target"}));
  VerifyTarget target;
  if (!parsed.has("target")) {
    target.journal = true;
    for (const RunInfo& run : context.catalog.runs()) {
      if (may_read(context, run)) target.runs.push_back(run.id);
    }
    return target;
  }
  CKPT_ASSIGN(const ckpt::Selector selector, parsed.selector("target"));
  if (selector.kind == ckpt::Selector::Kind::kRun) {
    CKPT_ASSIGN(const RunInfo run, run_not_lineage(context, selector, "verify"));
    target.runs = {run.id};
    return target;
  }
  CKPT_ASSIGN(const Resolved resolved, resolve_selector(context, selector));
  target.runs = {resolved.run.id};
  target.point = resolved.point;
  return target;
}

namespace {

// `untag RUN TAG`, `untag RUN@TAG`, or `untag COMMIT TAG`: the commit must then carry the tag.
Status find_tag_to_remove(const QueryContext& context, const QueryArgs& args,
                          const ckpt::Selector& selector, TagChange& change) {
  using Kind = ckpt::Selector::Kind;
  if (!args.has("tag") && selector.kind == Kind::kTag) {
    change.tag = selector.tag;
  } else if (!args.has("tag")) {
    return make_error(ErrorCode::kInvalidArgument, "untag {}: it needs the tag: {} TAG, or {}@TAG",
                      to_string(selector), selector.run, selector.run);
  } else {
    CKPT_ASSIGN(change.tag, args.text("tag"));
    CKPT_TRY(ckpt::validate_tag(change.tag));
  }
  CKPT_ASSIGN(change.target.run, selected_run(context, selector));
  const RunInfo& run = change.target.run;
  const auto tags = context.catalog.tags(run.id);
  const auto tag = tags.find(change.tag);
  if (tag == tags.end()) {
    return make_error(ErrorCode::kNotFound, "run {}: no tag {}", run.name, change.tag);
  }
  if (selector.kind == Kind::kRun) {
    return selector.lineage == 0 ? Status() : takes_a_run("untag", selector);
  }
  CKPT_ASSIGN(const Resolved commit, resolve_selector(context, selector));
  if (commit.point == tag->second) return {};
  return make_error(ErrorCode::kInvalidArgument, "run {}: tag {} is of {}, not of {}", run.name,
                    change.tag, ckpt::commit_name(run.name, tag->second.lineage, tag->second.step),
                    to_string(selector));
}

}  // namespace

Result<TagChange> parse_tag_args(const QueryContext& context, std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, {"target", "tag", "remove"}));
  TagChange change;
  CKPT_ASSIGN(const ckpt::Selector selector, parsed.selector("target"));
  CKPT_ASSIGN(change.remove, parsed.flag("remove"));
  if (change.remove) {
    CKPT_TRY(find_tag_to_remove(context, parsed, selector, change));
    return change;
  }
  CKPT_ASSIGN(change.tag, parsed.text("tag"));
  CKPT_TRY(ckpt::validate_tag(change.tag));
  CKPT_ASSIGN(change.target, resolve_selector(context, selector));
  const ViewPoint point = change.target.point;
  CKPT_TRY(context.catalog.resolve(change.target.run.id, point.lineage, point.step));
  return change;
}

}  // namespace ckptd

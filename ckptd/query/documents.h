// Private to this folder: the documents, one function per verb.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/query/query.h"

namespace ckptd {

// Fields keep the order in which they are written.
using Json = nlohmann::ordered_json;

// Where a page begins: numbers that only the verb that wrote them reads. Empty: at the beginning.
using Position = std::vector<uint64_t>;

// A document, or as much of it as fits into a page.
struct Page {
  std::string json;
  std::vector<std::string> lists = {};  // members that continue; none: the document is the list
  Position next = {};                   // where the next page begins; empty: last page
};

// The arguments of a verb: an object with no member but the allowed ones.
class QueryArgs {
 public:
  static Result<QueryArgs> parse(std::string_view text, const std::vector<std::string>& allowed);

  bool has(const std::string& name) const { return object_.contains(name); }
  // kInvalidArgument if the member is missing or has another type.
  Result<std::string> text(const std::string& name) const;
  Result<uint64_t> number(const std::string& name, uint64_t otherwise) const;
  Result<bool> flag(const std::string& name) const;                       // missing: false
  Result<std::vector<std::string>> texts(const std::string& name) const;  // missing: none
  // Parses rules as rules_json() writes them; missing members keep nothing.
  Result<ckpt::KeepRules> keep_rules(const std::string& name) const;
  Result<ckpt::Selector> selector(const std::string& name) const;
  // True if the client asks for a page instead of the whole document.
  bool paged() const { return has("page"); }
  // A position of `count` numbers, or an empty one. kInvalidArgument: not a position of this verb.
  Result<Position> position(size_t count) const;
  // Size limit of a page: the requested size, but never more than the daemon allows.
  Result<size_t> page_bytes(size_t most) const;

 private:
  nlohmann::json object_;
};

// The run that `target` names, without a step or lineage; must be readable.
Result<RunInfo> whole_run(const QueryContext& context, const QueryArgs& args,
                          std::string_view verb);
// Same, for a verb that takes commits, too, but no lineage as a whole. `selector` has no step.
Result<RunInfo> run_not_lineage(const QueryContext& context, const ckpt::Selector& selector,
                                std::string_view verb);
// The run of a selector without a step, optionally with a lineage; must be readable.
Result<RunInfo> run_or_lineage(const QueryContext& context, const ckpt::Selector& selector,
                               std::string_view verb);
// The run that a selector names; must be readable. Its lineage, if given, must exist.
Result<RunInfo> selected_run(const QueryContext& context, const ckpt::Selector& selector);

// history.cc
Result<Page> runs_document(const QueryContext& context, const QueryArgs& args);
Result<Page> log_document(const QueryContext& context, const QueryArgs& args);     // log.cc
Result<Page> alarms_document(const QueryContext& context, const QueryArgs& args);  // alarms.cc
Result<Page> schema_document(const QueryContext& context, const QueryArgs& args);
Result<Page> unit_document(const QueryContext& context, const QueryArgs& args);
Result<Page> diff_document(const QueryContext& context, const QueryArgs& args);  // diff.cc
// views.cc
Result<Page> show_document(const QueryContext& context, const QueryArgs& args);
Result<Page> experts_document(const QueryContext& context, const QueryArgs& args);
Result<Page> restore_plan_document(const QueryContext& context, const QueryArgs& args);

// retention.cc
Json rules_json(const ckpt::KeepRules& rules);

// documents.cc: values
// True if the commit records the losses of its experts; otherwise they are unknown.
bool losses_recorded(const CommitInfo& commit);
std::string iso_time(uint64_t time_ns);         // 2026-01-31T12:00:00.000Z
std::string hex32(uint32_t value);              // 8 digits
Json attribute(std::optional<uint64_t> value);  // a number or null
Json tensors_json(const ckpt::UnitSpec& spec);
std::string dump(const Json& document);
// kUnavailable: the data of the previous pages is gone.
ckpt::Error changed_meanwhile(std::string_view what);
// A page as the daemon sends it: {"next": "...", "lists": [...], "document": ...}; `next` is null
// on the last page.
std::string envelope(const Page& page);

}  // namespace ckptd

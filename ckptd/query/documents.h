// Private to this folder: the documents, one function per verb.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/query/query.h"

namespace ckptd {

// Fields keep the order they are written in.
using Json = nlohmann::ordered_json;

// Where a page begins: numbers that only the verb that wrote them reads. None: at the front.
using Position = std::vector<uint64_t>;

// A document, or as much of it as a page has room for.
struct Page {
  std::string json;
  std::vector<std::string> lists = {};  // members that go on; none: the document is the list
  Position next = {};                   // where the next page begins; empty: this is the last
};

// The arguments of a verb: an object that has no member but the allowed ones.
class QueryArgs {
 public:
  static Result<QueryArgs> parse(std::string_view text, const std::vector<std::string>& allowed);

  bool has(const std::string& name) const { return object_.contains(name); }
  // kInvalidArgument if it is missing or of another type.
  Result<std::string> text(const std::string& name) const;
  Result<uint64_t> number(const std::string& name, uint64_t otherwise) const;
  Result<bool> flag(const std::string& name) const;                       // missing: false
  Result<std::vector<std::string>> texts(const std::string& name) const;  // missing: none
  // Rules as rules_json() writes them; members that are missing keep nothing.
  Result<ckpt::KeepRules> keep_rules(const std::string& name) const;
  Result<ckpt::Selector> selector(const std::string& name) const;
  // Is a page asked for, rather than the whole document?
  bool paged() const { return has("page"); }
  // Of `count` numbers, or empty. kInvalidArgument: it is not what this verb has written.
  Result<Position> position(size_t count) const;
  // What a page may take: what is asked for, and never more than the daemon allows.
  Result<size_t> page_bytes(size_t most) const;

 private:
  nlohmann::json object_;
};

// The run that `target` names, without a step or lineage; must be readable.
Result<RunInfo> whole_run(const QueryContext& context, const QueryArgs& args,
                          std::string_view verb);
// The run of a selector without a step, but perhaps with a lineage; must be readable.
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
// Is it known what the commit's experts have lost? Else nobody counts, or nobody said.
bool losses_told(const CommitInfo& commit);
std::string iso_time(uint64_t time_ns);         // 2026-01-31T12:00:00.000Z
std::string hex32(uint32_t value);              // 8 digits
Json attribute(std::optional<uint64_t> value);  // a number or null
Json tensors_json(const ckpt::UnitSpec& spec);
std::string dump(const Json& document);
// kUnavailable: what the pages before were of is not there any more.
ckpt::Error changed_meanwhile(std::string_view what);
// A page as it is sent: {"next": "...", "lists": [...], "document": ...}; `next` is null at the
// end.
std::string envelope(const Page& page);

}  // namespace ckptd

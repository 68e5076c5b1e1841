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

 private:
  nlohmann::json object_;
};

// The run that `target` names, without a step or lineage; must be readable.
Result<RunInfo> whole_run(const QueryContext& context, const QueryArgs& args,
                          std::string_view verb);
// The run that a selector names; must be readable. Its lineage, if given, must exist.
Result<RunInfo> selected_run(const QueryContext& context, const ckpt::Selector& selector);

// history.cc
Result<Json> runs_document(const QueryContext& context, const QueryArgs& args);
Result<Json> log_document(const QueryContext& context, const QueryArgs& args);
Result<Json> alarms_document(const QueryContext& context, const QueryArgs& args);
Result<Json> schema_document(const QueryContext& context, const QueryArgs& args);
Result<Json> unit_document(const QueryContext& context, const QueryArgs& args);
// views.cc; what may be long is text already
Result<std::string> show_document(const QueryContext& context, const QueryArgs& args);
Result<Json> experts_document(const QueryContext& context, const QueryArgs& args);
Result<std::string> diff_document(const QueryContext& context, const QueryArgs& args);
Result<Json> restore_plan_document(const QueryContext& context, const QueryArgs& args);

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

}  // namespace ckptd

#include "ckptd/query/query.h"

#include <array>

#include "ckptd/query/documents.h"

namespace ckptd {
namespace {

using Answer = Result<std::string> (*)(const QueryContext&, const QueryArgs&);

struct Verb {
  std::string_view name;
  std::vector<std::string> args;
  Answer document;
};

template <Result<Json> (*document)(const QueryContext&, const QueryArgs&)>
Result<std::string> dumped(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const Json json, document(context, args));
  return dump(json);
}

const std::array<Verb, 9>& verbs() {
  static const std::array<Verb, 9> all = {
      {{"runs", {"removed"}, dumped<runs_document>},
       {"log", {"target", "limit", "deleted"}, dumped<log_document>},
       {"alarms", {"target", "limit"}, dumped<alarms_document>},
       {"show", {"target", "memory"}, show_document},
       {"schema", {"target"}, dumped<schema_document>},
       {"unit", {"target", "unit"}, dumped<unit_document>},
       {"experts", {"target", "memory"}, dumped<experts_document>},
       {"diff", {"from", "to"}, diff_document},
       {"restore-plan", {"target"}, dumped<restore_plan_document>}}};
  return all;
}

const Verb* find_verb(std::string_view name) {
  for (const Verb& verb : verbs()) {
    if (verb.name == name) return &verb;
  }
  return nullptr;
}

Result<std::string> document_of(const QueryContext& context, const Verb& verb,
                                std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, verb.args));
  auto document = verb.document(context, parsed);
  // An index that could not be read gives no half answers.
  CKPT_TRY(context.catalog.health());
  return document;
}

}  // namespace

bool is_catalog_verb(std::string_view verb) { return find_verb(verb) != nullptr; }

QueryAnswer error_answer(const ckpt::Error& error) {
  return {ckpt::exit_code_for(error.code), dump(Json{{"error", error.message}})};
}

QueryAnswer answer_query(const QueryContext& context, std::string_view verb,
                         std::string_view args) {
  const Verb* known = find_verb(verb);
  if (known == nullptr) {
    return error_answer(
        ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "unknown verb {}", verb));
  }
  auto document = document_of(context, *known, args);
  if (!document.ok()) return error_answer(document.error());
  return {0, std::move(*document)};
}

QueryAnswer verify_answer(const VerifyReport& report) {
  Json errors = Json::array();
  for (const VerifyError& error : report.errors) {
    errors.push_back({{"run", error.run},
                      {"step", error.step},
                      {"lineage", error.lineage},
                      {"unit", error.unit},
                      {"reason", error.reason}});
  }
  Json document = {{"checked_bytes", report.checked_bytes},
                   {"commits", report.commits},
                   {"errors", std::move(errors)}};
  if (report.errors_left_out > 0) document["errors_left_out"] = report.errors_left_out;
  const int exit_code = report.errors.empty() ? 0 : exit_code_for(ckpt::ErrorCode::kCorrupt);
  return {exit_code, dump(document)};
}

}  // namespace ckptd

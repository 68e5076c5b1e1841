#include "ckptd/query/query.h"

#include <array>

#include "ckptd/query/documents.h"
#include "ckptd/query/rows.h"

namespace ckptd {
namespace {

using Answer = Result<Page> (*)(const QueryContext&, const QueryArgs&);

struct Verb {
  std::string_view name;
  std::vector<std::string> args;  // and the arguments of pages
  Answer document;
};

const std::array<Verb, 9>& verbs() {
  static const std::array<Verb, 9> all = {
      {{"runs", {"removed"}, runs_document},
       {"log", {"target", "limit", "before", "deleted", "lineages"}, log_document},
       {"alarms", {"target", "limit"}, alarms_document},
       {"show", {"target", "memory"}, show_document},
       {"schema", {"target"}, schema_document},
       {"unit", {"target", "unit"}, unit_document},
       {"experts", {"target", "memory"}, experts_document},
       {"diff", {"from", "to"}, diff_document},
       {"restore-plan", {"target"}, restore_plan_document}}};
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
  std::vector<std::string> allowed = verb.args;
  allowed.insert(allowed.end(), {"page", "page_bytes"});
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, allowed));
  CKPT_ASSIGN(Page page, verb.document(context, parsed));
  // An index that cannot be read must not give a partial answer.
  CKPT_TRY(context.catalog.health());
  if (parsed.paged()) return envelope(page);
  if (page.next.empty()) return std::move(page.json);
  const auto target = parsed.text(parsed.has("target") ? "target" : "from");
  return ckpt::make_error(
      ckpt::ErrorCode::kResourceExhausted,
      "{}: the answer to {} is longer than the most, {} bytes: ask for it in pages (page), or for "
      "less",
      target.ok() ? "run " + *target : "all runs", verb.name, context.page_bytes_max);
}

// One row of the answer to verify, for a unit.
Json finding_json(const VerifyError& error) {
  return {{"run", error.run},
          {"step", error.step},
          {"lineage", error.lineage},
          {"unit", error.unit},
          {"reason", error.reason}};
}

}  // namespace

bool is_catalog_verb(std::string_view verb) { return find_verb(verb) != nullptr; }

QueryAnswer error_answer(const ckpt::Error& error) {
  Json document{{"error", error.message}};
  if (error.detail != ckpt::ErrorDetail::kNone) document["detail"] = static_cast<int>(error.detail);
  return {ckpt::exit_code_for(error.code), dump(document)};
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

QueryAnswer verify_answer(const VerifyReport& report, size_t page_bytes_max) {
  // Reserves half of the room for unchecked units, if there are any.
  const size_t for_unchecked = report.unchecked.empty() ? 0 : page_bytes_max / 2;
  Json unchecked = Json::array();
  size_t bytes = 0;
  for (const VerifyError& error : report.unchecked) {
    Json row = finding_json(error);
    bytes += dump(row).size() + 1;
    if (bytes > for_unchecked) break;
    unchecked.push_back(std::move(row));
  }
  const uint64_t unchecked_left_out =
      report.unchecked_left_out + report.unchecked.size() - unchecked.size();

  Rows rows(Json{{"checked_bytes", report.checked_bytes}, {"commits", report.commits}}, "errors",
            page_bytes_max - bytes);
  size_t listed = 0;
  for (const VerifyError& error : report.errors) {
    if (!rows.add_row(finding_json(error))) break;
    ++listed;
  }
  const uint64_t left_out = report.errors_left_out + report.errors.size() - listed;
  Json after{{"unchecked", std::move(unchecked)}};
  if (left_out > 0) after["errors_left_out"] = left_out;
  if (unchecked_left_out > 0) after["unchecked_left_out"] = unchecked_left_out;
  const int otherwise = report.unchecked.empty() ? 0 : 1;
  const int exit_code =
      report.errors.empty() ? otherwise : exit_code_for(ckpt::ErrorCode::kCorrupt);
  return {exit_code, std::move(rows).text(after)};
}

}  // namespace ckptd

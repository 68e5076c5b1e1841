#include "client/ctl/pages.h"

#include <algorithm>
#include <utility>

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

// Members that are the same on every page of an answer. Other members may change from page to
// page, for example the contents of the daemon's memory.
constexpr const char* kOfTheAnswer[] = {"run", "lineage", "step", "from", "to"};

ckpt::Error not_understood(std::string_view verb) {
  return make_error(ErrorCode::kVersionMismatch,
                    "{}: a page of the daemon's answer: not understood", verb);
}

// True if `row` continues a layer that did not fit into the previous page.
bool continues(const Json& list, const Json& row) {
  return !list.empty() && row.is_object() && row.contains("layer") && row.contains("experts") &&
         row["experts"].is_array() && list.back().is_object() && list.back().contains("layer") &&
         list.back()["layer"] == row["layer"];
}

void append(Json& list, Json&& rows) {
  for (Json& row : rows) {
    if (continues(list, row) && list.back()["experts"].is_array()) {
      for (Json& expert : row["experts"]) list.back()["experts"].push_back(std::move(expert));
    } else {
      list.push_back(std::move(row));
    }
  }
}

}  // namespace

ckpt::Result<AnswerPage> parse_page(std::string_view verb, Json answer) {
  if (!answer.is_object() || !answer.contains("next") || !answer.contains("lists") ||
      !answer.contains("document") || !answer["lists"].is_array()) {
    return not_understood(verb);
  }
  AnswerPage page;
  page.document = std::move(answer["document"]);
  for (const Json& name : answer["lists"]) {
    if (!name.is_string() || !page.document.is_object()) return not_understood(verb);
    page.lists.push_back(name.get<std::string>());
    const auto list = page.document.find(page.lists.back());
    if (list == page.document.end() || !list->is_array()) return not_understood(verb);
  }
  if (page.lists.empty() && !page.document.is_array()) return not_understood(verb);
  const Json& next = answer["next"];
  if (next.is_null()) return page;
  if (!next.is_string() || next.get_ref<const std::string&>().empty()) return not_understood(verb);
  page.next = next.get<std::string>();
  // A page without a row would allow an endless answer.
  const bool rows = page.lists.empty()
                        ? !page.document.empty()
                        : std::ranges::any_of(page.lists, [&](const std::string& name) {
                            return !page.document[name].empty();
                          });
  if (!rows) return not_understood(verb);
  return page;
}

ckpt::Status PageJoiner::check_same(const Json& document) const {
  for (const char* name : kOfTheAnswer) {
    if (!document.is_object() || !document.contains(name) || !document_.contains(name)) continue;
    if (document[name] == document_[name]) continue;
    return make_error(ErrorCode::kUnavailable,
                      "{}: the pages of the answer are not of one {}: {}, then {}; ask again",
                      verb_, name, document_[name].dump(), document[name].dump());
  }
  return ckpt::ok_status();
}

ckpt::Status PageJoiner::add(AnswerPage page) {
  if (!std::exchange(began_, true)) {
    document_ = std::move(page.document);
    lists_ = std::move(page.lists);
    return ckpt::ok_status();
  }
  if (page.lists != lists_) return not_understood(verb_);
  CKPT_TRY(check_same(page.document));
  if (lists_.empty()) append(document_, std::move(page.document));
  for (const std::string& name : lists_) append(document_[name], std::move(page.document[name]));
  return ckpt::ok_status();
}

}  // namespace ckptctl

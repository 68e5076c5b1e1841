// Pages: an answer that may be longer than a message comes in several, each with a part of its
// lists, and is one document here. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"

namespace ckptctl {

// Ordered: a document is printed as the daemon wrote it.
using Json = nlohmann::ordered_json;

struct AnswerPage {
  Json document;
  std::vector<std::string> lists;  // members that go on in the next page; none: the document itself
  std::string next;                // what to ask the next page with; empty: this is the last
};

// Of what a daemon answers to a question for a page: {"next", "lists", "document"}.
ckpt::Result<AnswerPage> parse_page(std::string_view verb, Json answer);

// Makes one document of pages, in their order. An error: they are not pages of one answer.
class PageJoiner {
 public:
  explicit PageJoiner(std::string_view verb) : verb_(verb) {}
  ckpt::Status add(AnswerPage page);
  Json document() && { return std::move(document_); }

 private:
  ckpt::Status check_same(const Json& document) const;

  std::string verb_;
  Json document_;
  std::vector<std::string> lists_;
  bool began_ = false;
};

}  // namespace ckptctl

// Pages: an answer may be longer than a message. The daemon then sends several pages, each with a
// part of the lists; this code joins them into one document. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"

namespace ckptctl {

// Ordered: a document is printed in the daemon's order.
using Json = nlohmann::ordered_json;

struct AnswerPage {
  Json document;
  std::vector<std::string> lists;  // members continued in the next page; none: the document itself
  std::string next;                // token to request the next page; empty: this is the last page
};

// Parses a daemon's answer to a request for a page: {"next", "lists", "document"}.
ckpt::Result<AnswerPage> parse_page(std::string_view verb, Json answer);

// Joins pages, in order, to one document. An error: the pages belong to different answers.
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

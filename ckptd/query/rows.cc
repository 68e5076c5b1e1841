#include "ckptd/query/rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace ckptd {
namespace {

bool needs_no_escape(std::string_view text) {
  return std::ranges::all_of(text,
                             [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
}

void append_text(std::string& to, std::string_view text) {
  if (!needs_no_escape(text)) {
    to += dump(Json(text));
    return;
  }
  to += '"';
  to += text;
  to += '"';
}

}  // namespace

Rows::Rows(const Json& document, std::string_view name, size_t expected) : text_(dump(document)) {
  text_.reserve(text_.size() + expected * kRowBytes);
  text_.pop_back();
  if (!document.empty()) text_ += ',';
  append_text(text_, name);
  text_ += ":[";
}

void Rows::begin() {
  text_ += in_row_ ? "},{" : "{";
  in_row_ = true;
  has_members_ = false;
}

void Rows::begin_member(std::string_view name) {
  text_ += has_members_ ? ",\"" : "\"";
  has_members_ = true;
  text_ += name;
  text_ += "\":";
}

void Rows::add(std::string_view name, std::optional<uint64_t> value) {
  begin_member(name);
  if (value) {
    const fmt::format_int digits(*value);
    text_.append(digits.data(), digits.size());
  } else {
    text_ += "null";
  }
}

void Rows::add(std::string_view name, std::string_view value) {
  begin_member(name);
  append_text(text_, value);
}

std::string Rows::text() && {
  text_ += in_row_ ? "}]}" : "]}";
  return std::move(text_);
}

}  // namespace ckptd

#include "ckptd/query/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

Rows::Rows(const Json& document, std::string_view name, size_t room, size_t expected)
    : is_member_(!name.empty()), room_(room) {
  if (is_member_) {
    text_ = dump(document);
    text_.pop_back();
    if (!document.empty()) text_ += ',';
    append_text(text_, name);
    text_ += ':';
  }
  text_ += '[';
  rows_begin_ = text_.size();
  text_.reserve(text_.size() + std::min(expected * kRowBytes, room));
}

void Rows::begin_row() {
  row_begin_ = text_.size();
  if (row_begin_ > rows_begin_) text_ += ',';
}

bool Rows::keep_row() {
  if (row_begin_ == rows_begin_ || text_.size() <= room_) return true;
  text_.resize(row_begin_);
  return false;
}

bool Rows::add_row(const Json& row) {
  begin_row();
  text_ += dump(row);
  return keep_row();
}

void Rows::begin() {
  begin_row();
  text_ += '{';
  has_members_ = false;
}

bool Rows::end() {
  text_ += '}';
  return keep_row();
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

std::string Rows::text(const Json& after) && {
  text_ += ']';
  if (!after.empty()) text_ += ',' + dump(after).substr(1);
  if (is_member_ && after.empty()) text_ += '}';
  return std::move(text_);
}

}  // namespace ckptd

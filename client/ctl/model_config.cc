#include "client/ctl/model_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "formats/base/utf8.h"
#include "formats/json_text.h"

namespace ckptctl {
namespace {

// The daemon takes this much metadata with a run.
constexpr size_t kMetadataBytesMax = 1 << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kOfNumbers = "0123456789.eE-";
constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";

// The number in JSON's form that `text` starts with; empty: none.
std::string_view number_of(std::string_view text) {
  size_t at = 0;
  const auto take_any = [&](std::string_view of) {
    const size_t from = at;
    while (at < text.size() && of.find(text[at]) != std::string_view::npos) ++at;
    return at > from;
  };
  const auto take_one = [&](std::string_view of) {
    const bool there = at < text.size() && of.find(text[at]) != std::string_view::npos;
    at += there ? 1 : 0;
    return there;
  };
  constexpr std::string_view kDigits = "0123456789";
  take_one("-");
  if (!take_one("0") && !take_any(kDigits)) return {};
  if (take_one(".") && !take_any(kDigits)) return {};
  if (take_one("eE")) {
    take_one("+-");
    if (!take_any(kDigits)) return {};
  }
  const bool ends = at == text.size() || kOfNumbers.find(text[at]) == std::string_view::npos;
  return ends ? text.substr(0, at) : std::string_view();
}

bool exceeds_double(std::string_view number) {
  return !number.empty() && std::isinf(std::strtod(std::string(number).c_str(), nullptr));
}

// The word outside strings at the start of `text` that Python's json module reads and strict JSON
// lacks; empty: none. `in_number`: the text continues a number, or a sign.
std::string_view loose_word(std::string_view text, bool in_number) {
  for (const std::string_view word : {"NaN", "Infinity"}) {
    if (text.starts_with(word)) return text.substr(0, word.size());
  }
  const std::string_view number = in_number ? std::string_view() : number_of(text);
  return exceeds_double(number) ? number : std::string_view();
}

// Rewrites Python-only JSON as strict JSON, to check only its structure: 0 in place of NaN,
// Infinity and numbers that no double holds; ASCII in place of all else, also of escaped code
// units, which may be half of a pair.
std::string made_strict(std::string_view text) {
  constexpr size_t kUnitDigits = 4;  // of \uXXXX
  std::string out;
  bool in_string = false;
  bool in_number = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\' && at + 1 < text.size()) {
      const std::string_view digits = text.substr(std::min(at + 2, text.size()), kUnitDigits);
      const bool unit = text[at + 1] == 'u' && digits.size() == kUnitDigits &&
                        digits.find_first_not_of(kHexDigits) == std::string_view::npos;
      out += unit ? std::string("?") : std::string(text.substr(at, 2));
      at += unit ? 1 + kUnitDigits : 1;
      continue;
    }
    if (c == '"') in_string = !in_string;
    const std::string_view word =
        in_string ? std::string_view() : loose_word(text.substr(at), in_number);
    in_number = kOfNumbers.find(c) != std::string_view::npos;
    if (!word.empty()) {
      out += '0';
      at += word.size() - 1;
    } else {
      out += static_cast<unsigned char>(c) < 0x80 ? c : '?';
    }
  }
  return out;
}

// The token that `text` starts with: a bracket, a comma, a colon, a string, a number or a word.
std::string_view token(std::string_view text) {
  if (std::string_view("{}[],:").find(text.front()) != std::string_view::npos) {
    return text.substr(0, 1);
  }
  if (text.front() != '"') return text.substr(0, text.find_first_of(" \t\r\n{}[],:"));
  size_t end = 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  return text.substr(0, std::min(end + 1, text.size()));
}

// Tokens of a text that is JSON; the last one is empty.
class Tokens {
 public:
  explicit Tokens(std::string_view json) : rest_(json) { skip_spaces(); }
  std::string_view peek() const { return rest_.empty() ? rest_ : token(rest_); }
  std::string_view take() {
    const std::string_view taken = peek();
    rest_.remove_prefix(taken.size());
    skip_spaces();
    return taken;
  }

 private:
  void skip_spaces() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  std::string_view rest_;
};

// The next value as indented text: two spaces for each level.
std::string indented_value(Tokens& tokens) {
  std::string out;
  size_t depth = 0;
  const auto new_line = [&] { out.append("\n").append(2 * depth, ' '); };
  do {
    const std::string_view now = tokens.take();
    if (now == "}" || now == "]") {
      --depth;
      new_line();
    }
    out += now;
    const bool opens = now == "{" || now == "[";
    const std::string_view next = tokens.peek();
    if (opens && (next == "}" || next == "]")) {
      out += tokens.take();
    } else if (opens) {
      ++depth;
      new_line();
    } else if (now == ",") {
      new_line();
    } else if (now == ":") {
      out += ' ';
    }
  } while (depth > 0 && !tokens.peek().empty());
  return out;
}

}  // namespace

bool same_config(std::string_view text, std::string_view metadata) {
  const std::string own = config_of_metadata(metadata);
  if (own.empty() || !ckpt::check_json(text).ok()) return false;
  using nlohmann::json;
  return json::parse(text, nullptr, false) == json::parse(own, nullptr, false);
}

std::string config_of_metadata(std::string_view metadata) {
  if (!ckpt::check_json(metadata).ok()) return "";
  Tokens tokens(metadata);
  if (tokens.take() != "{") return "";
  while (tokens.peek() != "}" && !tokens.peek().empty()) {
    const std::string_view key = tokens.take();
    if (key == ",") continue;
    tokens.take();  // the colon
    std::string value = indented_value(tokens);
    if (key == "\"hf_config\"") return value + "\n";
  }
  return "";
}

// The parser accepts a byte order mark and stops at a zero byte, so both are checked first.
ckpt::Result<ModelConfig> read_model_config(std::string_view text) {
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "not JSON: byte {} is zero", zero);
  }
  ModelConfig config;
  const bool marked = text.starts_with(kByteOrderMark);
  if (!marked && ckpt::check_json(text).ok()) {
    config.metadata = fmt::format("{{\"hf_config\":{}}}", text);
    const ckpt::Status embedded = ckpt::check_json(config.metadata);
    const bool small = config.metadata.size() <= kMetadataBytesMax;
    if (small && embedded.ok()) return config;
    config.metadata.clear();
    config.note = small ? embedded.error().message : "it is too large";
    return config;
  }
  const std::string_view rest = marked ? text.substr(kByteOrderMark.size()) : text;
  CKPT_TRY(ckpt::check_json(made_strict(rest)));
  config.note = marked                       ? "it begins with a byte order mark"
                : !ckpt::base::is_utf8(rest) ? "it is not UTF-8"
                                             : "it holds what strict JSON lacks: NaN or Infinity, "
                                               "a number that no double holds, or half of a "
                                               "surrogate pair";
  return config;
}

}  // namespace ckptctl

#include "trainer/placement/text_lines.h"

#include <algorithm>
#include <charconv>

#include "formats/base/printable.h"

namespace moetrain {

namespace {

constexpr size_t kQuotedMax = 40;

}  // namespace

std::optional<uint64_t> parse_count(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string quoted(std::string_view text) {
  return "'" + ckpt::base::printable(text, kQuotedMax) + "'";
}

bool TextLines::next() {
  do {
    if (text_.empty()) return false;
    const size_t end = std::min(text_.find('\n'), text_.size());
    line_ = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    ++number_;
  } while (line_.empty());
  rest_ = line_;
  ended_ = false;
  return true;
}

std::optional<std::string_view> TextLines::field() {
  if (ended_) return std::nullopt;
  const size_t end = rest_.find(',');
  const std::string_view field = rest_.substr(0, end);
  ended_ = end == std::string_view::npos;
  if (!ended_) rest_.remove_prefix(end + 1);
  return field;
}

ckpt::Result<uint64_t> TextLines::count(std::string_view what, uint64_t most) {
  const auto text = field();
  if (!text) return refuse(fmt::format("{} is missing", what));
  const auto value = parse_count(*text);
  if (!value) return refuse(fmt::format("{} is {}, which is no count", what, quoted(*text)));
  if (*value > most) return refuse(fmt::format("{} is {}: at most {}", what, *value, most));
  return *value;
}

ckpt::Error TextLines::refuse(const std::string& why) const {
  return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "{} line {}: {}", origin_, number_,
                          why);
}

}  // namespace moetrain

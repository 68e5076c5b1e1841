// Lines of comma-separated fields, one by one, for small text formats that users provide. Any bytes
// are safe. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/base/result.h"

namespace moetrain {

class TextLines {
 public:
  // Both outlive this; `origin`, usually a path, begins every message.
  TextLines(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  // The next line, without its end, LF or CRLF; empty ones are skipped. False after the last one.
  bool next();
  std::string_view line() const { return line_; }

  // The next field of this line; nothing after the last one.
  std::optional<std::string_view> field();
  // That field as a count. `what` names it in the message: kInvalidArgument if it is missing, is no
  // number of digits only, or above `most`.
  ckpt::Result<uint64_t> count(std::string_view what, uint64_t most = UINT64_MAX);

  // kInvalidArgument: "ORIGIN line N: WHY".
  ckpt::Error refuse(const std::string& why) const;

 private:
  std::string_view text_;
  const std::string_view origin_;
  std::string_view line_;
  std::string_view rest_;  // of the line
  uint64_t number_ = 0;
  bool ended_ = true;
};

// Digits only; nothing for anything else, or above 2^64 - 1.
std::optional<uint64_t> parse_count(std::string_view text);
// 'like this', with unprintable bytes replaced, cut to 40 bytes.
std::string quoted(std::string_view text);

}  // namespace moetrain

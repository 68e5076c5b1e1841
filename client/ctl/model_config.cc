#include "client/ctl/model_config.h"

#include <array>

#include "formats/base/utf8.h"
#include "formats/json_text.h"

namespace ckptctl {
namespace {

// The daemon takes this much metadata with a run.
constexpr size_t kMetadataBytesMax = 1 << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// `text` with numbers in place of NaN and Infinity, and ASCII in place of all else: JSON if it is
// JSON but for these.
std::string made_strict(std::string_view text) {
  static constexpr std::array<std::string_view, 2> kNotNumbers = {"NaN", "Infinity"};
  std::string out;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\' && at + 1 < text.size()) {
      out += c;
      out += text[++at];
      continue;
    }
    if (c == '"') in_string = !in_string;
    std::string_view word;
    for (const std::string_view one : kNotNumbers) {
      if (!in_string && text.substr(at).starts_with(one)) word = one;
    }
    if (!word.empty()) {
      out += '0';
      at += word.size() - 1;
    } else {
      out += static_cast<unsigned char>(c) < 0x80 ? c : '?';
    }
  }
  return out;
}

}  // namespace

ckpt::Result<ModelConfig> read_model_config(std::string_view text) {
  ModelConfig config;
  if (const ckpt::Status strict = ckpt::check_json(text); strict.ok()) {
    config.metadata = fmt::format("{{\"hf_config\":{}}}", text);
    const bool small = config.metadata.size() <= kMetadataBytesMax;
    if (small && ckpt::check_json(config.metadata).ok()) return config;
    config.metadata.clear();
    config.note = small ? "it is nested too deep" : "it is too large";
    return config;
  }
  const bool marked = text.starts_with(kByteOrderMark);
  const std::string_view rest = marked ? text.substr(kByteOrderMark.size()) : text;
  CKPT_TRY(ckpt::check_json(made_strict(rest)));
  config.note = marked                       ? "it begins with a byte order mark"
                : !ckpt::base::is_utf8(rest) ? "it is not UTF-8"
                                             : "it holds NaN or Infinity, which JSON lacks";
  return config;
}

}  // namespace ckptctl

#include "formats/selector.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "formats/unit.h"

namespace ckpt {
namespace {

constexpr std::string_view kLatest = "latest";

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value = 0;
  if (!is_digits(text)) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// `part` is what follows the '@'.
Status parse_point(std::string_view part, Selector& selector) {
  if (part == kLatest) {
    selector.kind = Selector::Kind::kLatest;
    return {};
  }
  if (is_digits(part)) {
    const auto step = parse_number<Step>(part);
    if (!step) return make_error(ErrorCode::kInvalidArgument, "step {} is too large", part);
    selector.kind = Selector::Kind::kStep;
    selector.step = *step;
    return {};
  }
  CKPT_TRY(validate_tag(part));
  if (selector.lineage != 0) {
    return make_error(ErrorCode::kInvalidArgument, "a tag names its lineage itself: leave ~{} out",
                      selector.lineage);
  }
  selector.kind = Selector::Kind::kTag;
  selector.tag = part;
  return {};
}

Result<Selector> parse_parts(std::string_view text) {
  Selector selector;
  const size_t at = text.find('@');
  const std::string_view head = text.substr(0, at);
  const size_t tilde = head.find('~');
  selector.run = head.substr(0, tilde);
  if (selector.run.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "the name of the run is missing");
  }
  CKPT_TRY(validate_name("run", selector.run));
  if (tilde != std::string_view::npos) {
    const auto lineage = parse_number<LineageId>(head.substr(tilde + 1));
    if (!lineage || *lineage == 0) {
      return make_error(ErrorCode::kInvalidArgument, "a lineage is a number from 1 on");
    }
    selector.lineage = *lineage;
  }
  if (at == std::string_view::npos) return selector;
  if (at + 1 == text.size()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "nothing follows @: name a step, a tag or latest");
  }
  CKPT_TRY(parse_point(text.substr(at + 1), selector));
  return selector;
}

}  // namespace

Result<Selector> parse_selector(std::string_view text) {
  auto selector = parse_parts(text);
  if (selector.ok()) return selector;
  return make_error(ErrorCode::kInvalidArgument,
                    "selector '{}': {} (RUN, RUN@STEP, RUN@latest, RUN@TAG, RUN~LINEAGE@STEP)",
                    text.substr(0, 256), selector.error().message);
}

Result<Selector> parse_commit_name(std::string_view text, std::string_view run) {
  const size_t mark = text.find_first_of("~@");
  std::string whole(text);
  if (mark == std::string_view::npos) {
    whole = fmt::format("{}@{}", run, text);
  } else if (mark == 0) {
    whole = fmt::format("{}{}", run, text);
  }
  auto selector = parse_parts(whole);
  if (!selector.ok()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "commit '{}': {} (STEP, latest, TAG, ~LINEAGE@STEP, or the same after RUN@)",
                      text.substr(0, 256), selector.error().message);
  }
  if (selector->kind == Selector::Kind::kRun) selector->kind = Selector::Kind::kLatest;
  return selector;
}

std::string to_string(const Selector& selector) {
  std::string text = selector.run;
  if (selector.lineage != 0) text += fmt::format("~{}", selector.lineage);
  switch (selector.kind) {
    case Selector::Kind::kRun:
      break;
    case Selector::Kind::kStep:
      text += fmt::format("@{}", selector.step);
      break;
    case Selector::Kind::kLatest:
      text.append("@").append(kLatest);
      break;
    case Selector::Kind::kTag:
      text.append("@").append(selector.tag);
      break;
  }
  return text;
}

std::string commit_name(std::string_view run, LineageId lineage, Step step) {
  return fmt::format("{}~{}@{}", run, lineage, step);
}

Status validate_tag(std::string_view tag) {
  CKPT_TRY(validate_name("tag", tag));
  if (tag == kLatest || is_digits(tag)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "tag {}: a tag may be neither `latest` nor a number: RUN@{} names {}", tag,
                      tag, tag == kLatest ? "the newest complete view" : "a step");
  }
  return {};
}

}  // namespace ckpt

// An event of the log: the sentence that people read and, for programs, a name and the fields of
// what it is about, so that nobody takes sentences apart. docs/reference/metrics.md
// lists events and fields.
//
//   log_event(spdlog::level::info, "snapshot_durable", {{"run", name}, {"step", key.step}},
//             "run {} step {}: durable", name, key.step);
//
// The text format shows the sentence alone; JSON has the fields as members of the line's object.
#pragma once

#include <spdlog/spdlog.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ckptd {

// A number, a text, a truth, a list of ranks; or nothing, which is null. Refers to texts and lists,
// which outlive the call of log_event().
class LogValue {
 public:
  using Any = std::variant<std::monostate, bool, uint64_t, double, std::string_view,
                           std::span<const uint32_t>>;

  LogValue() = default;
  template <std::unsigned_integral NumberT>
  LogValue(NumberT number) : any_(number) {}  // bool is one of them, and stays what it is
  LogValue(double number) : any_(number) {}
  LogValue(std::string_view text) : any_(text) {}
  LogValue(const char* text) : any_(std::string_view(text)) {}
  LogValue(const std::string& text) : any_(std::string_view(text)) {}
  LogValue(const std::vector<uint32_t>& list) : any_(std::span(list)) {}

  const Any& any() const { return any_; }

 private:
  Any any_;
};

struct LogField {
  std::string_view name;
  LogValue value;
};

// What the line that this thread is writing is about, as long as it lives. The formatter of a
// line asks for it: our logger writes within the call, on the thread of its caller.
class LogEventScope {
 public:
  LogEventScope(std::string_view name, std::initializer_list<LogField> fields);
  ~LogEventScope();
  LogEventScope(const LogEventScope&) = delete;
  LogEventScope& operator=(const LogEventScope&) = delete;

  static const LogEventScope* current();
  std::string_view name() const { return name_; }
  std::span<const LogField> fields() const { return fields_; }

 private:
  std::string_view name_;
  std::span<const LogField> fields_;
};

template <typename... Args>
void log_event(spdlog::level::level_enum level, std::string_view name,
               std::initializer_list<LogField> fields, spdlog::format_string_t<Args...> sentence,
               Args&&... args) {
  const LogEventScope scope(name, fields);
  spdlog::log(level, sentence, std::forward<Args>(args)...);
}

}  // namespace ckptd

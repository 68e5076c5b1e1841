// A log event: a sentence for people and, for programs, a name and the fields of its subject,
// so that programs need not parse sentences. docs/reference/metrics.md lists events and
// fields.
//
//   log_event(spdlog::level::info, "snapshot_durable", {{"run", name}, {"step", key.step}},
//             "run {} step {}: durable", name, key.step);
//
// The text format has only the sentence; JSON has the fields as members of the line's object.
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

// A number, text, boolean or list of ranks; or empty, which is null. Only refers to texts and
// lists; they must outlive the call of log_event().
class LogValue {
 public:
  using Any = std::variant<std::monostate, bool, uint64_t, double, std::string_view,
                           std::span<const uint32_t>>;

  LogValue() = default;
  template <std::unsigned_integral NumberT>
  LogValue(NumberT number) : any_(number) {}  // bool is included, and stays bool
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

// The event of the line that this thread is writing, during this object's lifetime. The formatter
// reads it: the logger formats within the call, on the caller's thread.
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

#include "ckptd/observe/log_format.h"

#include <spdlog/pattern_formatter.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "ckptd/observe/log_event.h"
#include "formats/base/json_dump.h"
#include "formats/base/printable.h"

namespace ckptd {

namespace {

std::string utc(spdlog::log_clock::time_point time) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch());
  const std::time_t seconds = since.count() / 1'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     since.count() % 1'000'000);
}

void add(nlohmann::ordered_json& line, const LogEventScope& event) {
  line["event"] = event.name();
  for (const LogField& field : event.fields()) {
    std::visit(
        [&](const auto& value) {
          auto& member = line[std::string(field.name)];  // null so far
          if constexpr (!std::is_same_v<decltype(value), const std::monostate&>) member = value;
        },
        field.value.any());
  }
}

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto text = [](spdlog::string_view_t view) {
      return std::string(view.data(), view.size());
    };
    nlohmann::ordered_json line;
    line["time"] = utc(message.time);
    line["level"] = text(spdlog::level::to_string_view(message.level));
    line["process"] = ::getpid();
    line["message"] = text(message.payload);
    if (const LogEventScope* event = LogEventScope::current()) add(line, *event);
    const std::string dumped = ckpt::base::dump_json(line) + "\n";
    out.append(dumped.data(), dumped.data() + dumped.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

// One line per message, even with newlines from a client or a file.
class TextFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string payload =
        ckpt::base::escaped({message.payload.data(), message.payload.size()});
    spdlog::details::log_msg escaped = message;
    escaped.payload = payload;
    line_.format(escaped, out);
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<TextFormatter>();
  }

 private:
  spdlog::pattern_formatter line_{"%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc};
};

}  // namespace

std::unique_ptr<spdlog::formatter> make_log_formatter(const std::string& format) {
  if (format == "json") return std::make_unique<JsonFormatter>();
  return std::make_unique<TextFormatter>();
}

}  // namespace ckptd

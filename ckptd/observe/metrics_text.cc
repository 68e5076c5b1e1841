#include "ckptd/observe/metrics_text.h"

#include <fmt/format.h>

namespace ckptd {

namespace {

// Escapes backslash, quote and newline inside a label value.
std::string escape(std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\n') {
      escaped += "\\n";
    } else {
      if (c == '\\' || c == '"') escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

void MetricsText::counter(std::string_view name, std::string_view help, uint64_t value,
                          Labels labels) {
  sample(name, "counter", help, fmt::format("{}", value), labels);
}

void MetricsText::seconds(std::string_view name, std::string_view help,
                          std::chrono::nanoseconds value) {
  const double seconds = std::chrono::duration<double>(value).count();
  sample(name, "counter", help, fmt::format("{}", seconds), {});
}

void MetricsText::gauge(std::string_view name, std::string_view help, double value, Labels labels) {
  sample(name, "gauge", help, fmt::format("{}", value), labels);
}

void MetricsText::sample(std::string_view name, std::string_view type, std::string_view help,
                         std::string_view value, Labels labels) {
  if (last_name_ != name) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    last_name_ = name;
  }
  text_ += name;
  if (labels.size() > 0) {
    std::string list;
    for (const auto& [label, of] : labels) {
      list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", label, escape(of));
    }
    text_ += "{" + list + "}";
  }
  text_ += fmt::format(" {}\n", value);
}

}  // namespace ckptd

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

void MetricsText::histogram(std::string_view name, std::string_view help, const Histogram& values,
                            std::string_view label, std::string_view label_value) {
  head(name, "histogram", help);
  const auto& bounds = Histogram::kBounds;
  uint64_t count = 0;  // up to the bound
  for (size_t i = 0; i < values.counts().size(); ++i) {
    count += values.counts()[i];
    const std::string bound = i < bounds.size() ? fmt::format("{}", bounds[i]) : "+Inf";
    line(fmt::format("{}_bucket", name), fmt::format("{}", count),
         {{label, label_value}, {"le", bound}});
  }
  line(fmt::format("{}_sum", name), fmt::format("{}", values.sum()), {{label, label_value}});
  line(fmt::format("{}_count", name), fmt::format("{}", count), {{label, label_value}});
}

void MetricsText::sample(std::string_view name, std::string_view type, std::string_view help,
                         std::string_view value, Labels labels) {
  head(name, type, help);
  line(name, value, labels);
}

void MetricsText::head(std::string_view name, std::string_view type, std::string_view help) {
  if (last_name_ == name) return;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  last_name_ = name;
}

void MetricsText::line(std::string_view name, std::string_view value, Labels labels) {
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

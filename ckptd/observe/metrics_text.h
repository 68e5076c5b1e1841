// MetricsText: writes metrics in Prometheus' text format (version 0.0.4).
//
// Independent of the daemon: names and numbers in, text out. Samples of one metric are added
// consecutively; its HELP and TYPE lines are written once, before the first.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "ckptd/observe/snapshot_timings.h"

namespace ckptd {

class MetricsText {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // A number that only grows during the daemon's lifetime; `name` ends in "_total".
  void counter(std::string_view name, std::string_view help, uint64_t value, Labels labels = {});
  // Likewise, in seconds.
  void seconds(std::string_view name, std::string_view help, std::chrono::nanoseconds value);
  void gauge(std::string_view name, std::string_view help, double value, Labels labels = {});
  // Durations in seconds, for one value of the label.
  void histogram(std::string_view name, std::string_view help, const Histogram& values,
                 std::string_view label, std::string_view label_value);

  const std::string& text() const { return text_; }

 private:
  void sample(std::string_view name, std::string_view type, std::string_view help,
              std::string_view value, Labels labels);
  // HELP and TYPE, once for all samples of the metric.
  void head(std::string_view name, std::string_view type, std::string_view help);
  void line(std::string_view name, std::string_view value, Labels labels);
  std::string text_;
  std::string last_name_;
};

}  // namespace ckptd

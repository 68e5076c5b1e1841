#include "bench/service/gpu/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace bench::gpu {

namespace {

constexpr size_t kNameColumns = 44;  // as in bench/service/gpu/evidence_rows.sh

// Replaces tabs and line breaks by blanks.
std::string on_one_line(std::string text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' '; };
  std::replace_if(text.begin(), text.end(), is_control, ' ');
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < ' ') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// JSON knows no infinities.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
}

std::string pair_of(const Interval& interval) {
  return fmt::format("[{}, {}]", number(interval.low), number(interval.high));
}

std::string numbers_of(const Row& row) {
  const Paired& paired = *row.paired;
  std::string runs;
  for (size_t i = 0; i < paired.limit.size(); ++i) {
    runs += fmt::format("{}{{\"value\": {}, \"limit\": {}}}", i == 0 ? "" : ", ",
                        number(paired.engine[i]), number(paired.limit[i]));
  }
  return fmt::format(
      ", \"value\": {}, \"limit\": {}, \"ratio_to_limit\": {}, \"ratio_interval\": {}, "
      "\"limit_self_ratio\": {}, \"limit_self_interval\": {}, \"runs\": [{}]",
      number(median(paired.engine)), number(median(paired.limit)), number(paired.ratio),
      pair_of(paired.ratio_interval), number(paired.self_ratio), pair_of(paired.self_interval),
      runs);
}

}  // namespace

Row measured(Row row, const Paired& paired) {
  row.paired = paired;
  row.verdict = row.pass_ratio == 0 ? "measured" : verdict(paired, row.pass_ratio);
  if (row.pass_ratio != 0 && !row.can_show) row.verdict = "inconclusive";
  if (row.verdict == "fail" && !row.must) row.verdict = "below aim";
  if (row.verdict == "inconclusive" && !paired.conclusive()) {
    if (!row.reason.empty()) row.reason += "; ";
    row.reason += "the limit does not repeat itself within 3 %";
  }
  return row;
}

std::string to_line(const Row& row) {
  std::string line = row.what + ": ";
  if (row.paired) {
    line += fmt::format("{:.2f} of {:.2f} {}, {:.3f}: ", median(row.paired->engine),
                        median(row.paired->limit), row.unit, row.paired->ratio);
  }
  line += row.verdict;
  return row.reason.empty() ? line : line + ": " + row.reason;
}

std::string table_head() {
  std::string head = "what";
  head.resize(kNameColumns, ' ');
  return head + "      value      limit  unit     ratio [95 %]           bound  verdict";
}

std::string to_table_line(const Row& row) {
  std::string line = row.what;
  line.resize(std::max(line.size(), kNameColumns), ' ');
  char text[160];
  if (row.paired) {
    const Paired& p = *row.paired;
    char ratio[80];
    char bound[16] = "-";
    std::snprintf(ratio, sizeof ratio, "%5.3f [%5.3f, %5.3f]", p.ratio, p.ratio_interval.low,
                  p.ratio_interval.high);
    if (row.pass_ratio > 0) std::snprintf(bound, sizeof bound, "%.2f", row.pass_ratio);
    std::snprintf(text, sizeof text, " %10.2f %10.2f  %-7s  %-21s  %5s  ", median(p.engine),
                  median(p.limit), row.unit.c_str(), ratio, bound);
  } else {
    std::snprintf(text, sizeof text, " %10s %10s  %-7s  %-21s  %5s  ", "-", "-", "", "-", "-");
  }
  line += text + row.verdict;
  return row.reason.empty() ? line : line + ": " + row.reason;
}

std::string to_json(const Row& row) {
  std::string out = fmt::format(
      "{{\"what\": {}, \"shape\": {}, \"unit\": {}, \"limit_name\": {}, \"pass_ratio\": {}, "
      "\"must\": {}, \"verdict\": {}, \"reason\": {}",
      quoted(row.what), quoted(row.shape), quoted(row.unit), quoted(row.limit_name),
      row.pass_ratio == 0 ? "null" : number(row.pass_ratio), row.must ? "true" : "false",
      quoted(row.verdict), quoted(row.reason));
  if (row.paired) out += numbers_of(row);
  return out + "}";
}

std::string to_record(const Row& row) {
  const bool has_bound = row.pass_ratio > 0 && row.must;
  std::string record = "row";
  for (const std::string& field : {std::string(has_bound ? "bound" : "other"), row.verdict,
                                   row.what, to_table_line(row), to_json(row)}) {
    record += '\t' + on_one_line(field);
  }
  return record;
}

std::string text_member(const std::string& name, const std::string& value) {
  return quoted(name) + ": " + quoted(value);
}

std::string number_member(const std::string& name, uint64_t value) {
  return quoted(name) + ": " + std::to_string(value);
}

}  // namespace bench::gpu

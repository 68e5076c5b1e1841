#include "bench/gpu/report.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace bench::gpu {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

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
      ",\n     \"value\": {}, \"limit\": {}, \"ratio_to_limit\": {}, \"ratio_interval\": {},\n"
      "     \"limit_self_ratio\": {}, \"limit_self_interval\": {},\n     \"runs\": [{}]",
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

void set_fact(Facts& facts, Fact fact) {
  const auto same = [&](const Fact& other) { return other.name == fact.name; };
  const auto found = std::find_if(facts.begin(), facts.end(), same);
  if (found == facts.end()) {
    facts.push_back(std::move(fact));
  } else {
    *found = std::move(fact);
  }
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

std::string summary_of(const std::vector<Row>& rows) {
  const auto count = [&](bool bounded, const char* verdict) {
    return std::count_if(rows.begin(), rows.end(), [&](const Row& row) {
      const bool has_bound = row.pass_ratio > 0 && row.must;
      return has_bound == bounded && row.verdict == verdict;
    });
  };
  return fmt::format(
      "bounds that must hold: {} shown, {} missed, {} inconclusive; all else: {} passed, {} "
      "failed, {} skipped, which shows nothing",
      count(true, "pass"), count(true, "fail"), count(true, "inconclusive"), count(false, "pass"),
      count(false, "fail"), count(false, "skipped"));
}

std::string to_table(const std::vector<Row>& rows) {
  size_t width = 4;
  for (const Row& row : rows) width = std::max(width, row.what.size());
  const auto line = [&](std::string what, const char* rest) {
    what.resize(width, ' ');
    return what + rest + "\n";
  };
  std::string table =
      line("what", "      value      limit  unit     ratio [95 %]           bound  verdict");
  for (const Row& row : rows) {
    char text[160];
    if (row.paired) {
      const Paired& p = *row.paired;
      char bound[16] = "    -";
      if (row.pass_ratio > 0) std::snprintf(bound, sizeof bound, "%5.2f", row.pass_ratio);
      std::snprintf(text, sizeof text, " %10.2f %10.2f  %-7s  %5.3f [%5.3f, %5.3f]  %s  ",
                    median(p.engine), median(p.limit), row.unit.c_str(), p.ratio,
                    p.ratio_interval.low, p.ratio_interval.high, bound);
    } else {
      std::snprintf(text, sizeof text, " %10s %10s  %-7s  %-21s  %5s  ", "-", "-", "", "-", "-");
    }
    std::string rest = text + row.verdict;
    if (!row.reason.empty()) rest += ": " + row.reason;
    table += line(row.what, rest.c_str());
  }
  return table + summary_of(rows) + "\n";
}

std::string to_json(const Facts& facts, const std::vector<Row>& rows) {
  std::string out = "{\n";
  for (const Fact& fact : facts) {
    out += fmt::format("  {}: {},\n", quoted(fact.name),
                       fact.is_number ? fact.value : quoted(fact.value));
  }
  out += "  \"results\": [";
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    out += fmt::format(
        "{}\n    {{\"what\": {}, \"shape\": {}, \"unit\": {}, \"limit_name\": {},\n"
        "     \"pass_ratio\": {}, \"verdict\": {}, \"reason\": {}",
        i == 0 ? "" : ",", quoted(row.what), quoted(row.shape), quoted(row.unit),
        quoted(row.limit_name), row.pass_ratio == 0 ? "null" : number(row.pass_ratio),
        quoted(row.verdict), quoted(row.reason));
    if (row.paired) out += numbers_of(row);
    out += "}";
  }
  return out + "\n  ]\n}\n";
}

std::string file_name_for(const std::string& device, bool whole) {
  std::string name;
  for (const char c : device) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return "gpu-" + name + (whole ? ".json" : "-part.json");
}

ckpt::Status write_file(const std::string& path, const std::string& content) {
  const std::string unfinished = path + ".new";
  std::FILE* const file = std::fopen(unfinished.c_str(), "wb");
  bool written = file != nullptr;
  if (file != nullptr) {
    written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
    written = std::fclose(file) == 0 && written;
  }
  if (written && std::rename(unfinished.c_str(), path.c_str()) == 0) return {};
  const int error = errno;
  (void)std::remove(unfinished.c_str());
  return make_error(ErrorCode::kIo, "{}: cannot be written: {}", path, std::strerror(error));
}

}  // namespace bench::gpu

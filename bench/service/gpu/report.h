// The results of gpu_bench: rows for people, and for the document of ./dev gpu. Needs no library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/common/paired.h"

namespace bench::gpu {

// A row of the table.
struct Row {
  std::string what;              // "pack with CRC32C"
  std::string shape;             // parameters of the bench
  std::string unit;              // of value and limit: "GB/s" (1e9), "TFLOP/s"
  std::string limit_name;        // the reference of the ratio
  double pass_ratio = 0;         // 0: no bound, the ratio is informative
  bool must = true;              // false: the bound is an aim; a miss is no failure
  bool can_show = true;          // false: the run does not meet the bound's conditions
  std::optional<Paired> paired;  // none: not measured
  // "pass", "fail", "below aim", "inconclusive", "measured" (no bound) or "skipped"
  std::string verdict;
  std::string reason;  // explanation, if the numbers need one
};

// A row without figures.
inline Row text_row(std::string what, std::string verdict, std::string reason) {
  Row row;
  row.what = std::move(what);
  row.verdict = std::move(verdict);
  row.reason = std::move(reason);
  return row;
}

// A row with its verdict.
Row measured(Row row, const Paired& paired);

// The row as a progress line: "pack: 1500.00 of 2000.00 GB/s, 0.750: pass".
std::string to_line(const Row& row);
// The row as a line of the table below table_head(), without a line break.
std::string table_head();
std::string to_table_line(const Row& row);
// The row as a JSON object on one line, with each run of each pair.
std::string to_json(const Row& row);
// The row as one line for bench/service/gpu/evidence_rows.sh, separated by tabs: "row"; "bound" if
// the row has a bound that must hold, else "other"; verdict; name; table line; JSON.
std::string to_record(const Row& row);

// Members of the JSON document about a device: "\"device\": \"NVIDIA H200\"".
std::string text_member(const std::string& name, const std::string& value);
std::string number_member(const std::string& name, uint64_t value);

}  // namespace bench::gpu

// What gpu_bench found out: lines of a table for people, and one JSON document. Needs no library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/paired.h"

namespace bench::gpu {

// A line of the table.
struct Row {
  std::string what;              // "pack with CRC32C"
  std::string shape;             // what was run
  std::string unit;              // of value and limit: "GB/s" (1e9), "TFLOP/s"
  std::string limit_name;        // what was measured beside it
  double pass_ratio = 0;         // 0: there is no bound, the ratio is only told
  bool must = true;              // or is the bound an aim, which nothing fails that misses it?
  bool can_show = true;          // or was it not what the bound is about, so that it shows nothing?
  std::optional<Paired> paired;  // none: nothing was measured
  // "pass", "fail", "below aim", "inconclusive", "measured" (no bound) or "skipped"
  std::string verdict;
  std::string reason;  // what the numbers do not explain
};

// A row without figures.
inline Row told(std::string what, std::string verdict, std::string reason) {
  Row row;
  row.what = std::move(what);
  row.verdict = std::move(verdict);
  row.reason = std::move(reason);
  return row;
}

// A row with its verdict.
Row measured(Row row, const Paired& paired);

// Device, driver, commit, ...
struct Fact {
  std::string name;
  std::string value;
  bool is_number = false;  // or a truth value: stands in the document without quotes
};
using Facts = std::vector<Fact>;  // in the order of the document, each name once
// Adds it, or replaces the one of that name.
void set_fact(Facts& facts, Fact fact);

// The row as a line, for whoever looks on: "pack: 1500.00 of 2000.00 GB/s, 0.750: pass".
std::string to_line(const Row& row);
// A line of names, one for each row, and how many bounds were shown.
std::string to_table(const std::vector<Row>& rows);
// "bounds that must hold: 3 shown, 0 missed, 1 inconclusive; ..."
std::string summary_of(const std::vector<Row>& rows);
std::string to_json(const Facts& facts, const std::vector<Row>& rows);
// "NVIDIA H200" -> "gpu-nvidia-h200.json": lower case, no character that a shell would mind.
// "gpu-nvidia-h200-part.json" unless it is the whole evidence, which a part must not replace.
std::string file_name_for(const std::string& device, bool whole);
// Replaces `path` as a whole. kIo with the path.
ckpt::Status write_file(const std::string& path, const std::string& content);

}  // namespace bench::gpu

// ckptbench catalog: time to query, open and rebuild the history of a large model.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/base/result.h"

namespace bench {

struct CatalogOptions {
  uint32_t units = 30'000;
  uint32_t commits = 33;
  uint32_t small_commits = 2'000;  // of two units, in a run of their own; 0: none
  uint32_t repeats = 11;
  std::string engine = "uring";
  std::string directory = ".";
};
// A real ckptd with two trainers: one saved all units in each commit, the other saved them once.
// The bytes of a unit are few, but its entries in journal and catalog have their usual size.
// {bench, machine, shape, versions, rows:[{what, ms, limit_ms, verdict, bytes}],
// versions_per_second (of a rebuild), resident_bytes, resident_bytes_peak, journal_bytes,
// catalog_bytes}. In a row, ms is the median; limit_ms is null without a limit; bytes is the length
// of an answer; cpu_ms is the daemon's CPU time per answer.
ckpt::Result<nlohmann::json> bench_catalog(const CatalogOptions& options);
std::string catalog_text(const nlohmann::json& document);

}  // namespace bench

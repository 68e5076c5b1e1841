// ckptbench export: exports a run as a Hugging Face folder, imports the folder as another run, and
// exports that run. Measures the time of each, and that none needs memory for the whole model.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/base/result.h"

namespace bench {

struct ExportOptions {
  uint64_t bytes = 4ull << 30;
  uint64_t small_bytes = 256ull << 20;  // a second, small size, to compare the memory
  uint64_t shard_bytes = 1ull << 30;
  uint64_t unit_bytes = 16ull << 20;
  std::string engine = "uring";
  std::string directory = ".";
};
// {bench, machine, shape, rows:[{bytes, action, seconds, bytes_per_second, resident_bytes_peak,
// daemon_resident_bytes_peak}], same}. same: both exports have the same bytes.
ckpt::Result<nlohmann::json> bench_export(const ExportOptions& options);
std::string export_text(const nlohmann::json& document);

}  // namespace bench

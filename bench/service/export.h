// ckptbench export: a run written as a Hugging Face folder, that folder imported as another run,
// and this one exported again: how long each takes, and that none needs memory for the model's
// size.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/base/result.h"

namespace bench {

struct ExportOptions {
  uint64_t bytes = 4ull << 30;
  uint64_t small_bytes = 256ull << 20;  // the same with so little, to compare memory with
  uint64_t shard_bytes = 1ull << 30;
  uint64_t unit_bytes = 16ull << 20;
  std::string engine = "uring";
  std::string directory = ".";
};
// {bench, machine, shape, rows:[{bytes, action, seconds, bytes_per_second, resident_bytes_peak,
// daemon_resident_bytes_peak}], same}. same: the second export has the bytes of the first.
ckpt::Result<nlohmann::json> bench_export(const ExportOptions& options);
std::string export_text(const nlohmann::json& document);

}  // namespace bench

// ckptbench save: from begin to durable, against the raw speed of the disk.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/save_run.h"

namespace bench {

struct SaveOptions {
  SaveShape shape;
  int pairs = 12;
  std::string directory = ".";
  bool engine_only = false;
};
ckpt::Result<nlohmann::json> bench_save(const SaveOptions& options);

}  // namespace bench

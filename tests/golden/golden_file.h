// Reads what make_golden.py wrote: tensors by name, the model's config, the optimizer's settings.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "trainer/model/config.h"
#include "trainer/optimizer.h"

namespace moetrain {

struct GoldenTensor {
  std::vector<uint64_t> shape;
  std::vector<double> values;  // F32, F64 and I32 all fit
};

struct GoldenCase {
  ModelConfig config;
  AdamWOptions optimizer;
  double learning_rate = 0;
  uint32_t steps = 0;
  uint32_t micro_batches = 0;
  uint32_t sequences = 0;  // per micro-batch, over all ranks
  std::map<std::string, GoldenTensor> tensors;

  // The tensor; asserts that it is there.
  const std::vector<double>& at(const std::string& name) const;
};

// Any safetensors file of F32, F64 and I32 tensors. `metadata` receives the file's, if asked for.
Result<std::map<std::string, GoldenTensor>> read_tensors(
    const std::string& path, std::map<std::string, std::string>* metadata = nullptr);

Result<GoldenCase> read_golden(const std::string& path);

}  // namespace moetrain

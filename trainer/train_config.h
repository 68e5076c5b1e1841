// TrainConfig: all settings that change the numbers of a run. Two runs with the same TrainConfig,
// corpus, rank count and placement compute the same bits.
//
// It is stored with the run (metadata beside `hf_config`) and in every checkpoint's trainer unit,
// so that a resume needs no flags to continue unchanged, and cannot change it silently.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/model/config.h"
#include "trainer/optimizer.h"

namespace moetrain {

struct TrainConfig {
  ModelConfig model;
  uint64_t seed = 1;           // of initial parameters and of the order of the data
  uint32_t micro_batches = 2;  // per step, one after the other
  uint32_t batch = 4;          // sequences of a micro-batch, divided among the ranks
  AdamWOptions adamw;
  ScheduleOptions schedule;
  Precision precision = Precision::kFp32;

  uint64_t sequences_per_step() const { return uint64_t{micro_batches} * batch; }
  uint64_t tokens_per_step() const { return sequences_per_step() * model.seq_len; }
};
bool operator==(const TrainConfig& a, const TrainConfig& b);

// Checks all fields and their relations, and that `ranks` ranks can share the work: no more of them
// than sequences in a micro-batch. kInvalidArgument names the flag.
Status validate(const TrainConfig& config, uint32_t ranks);

// One line of JSON: {"hf_config": {...}, "training": {...}}. Same config, same text.
std::string to_json(const TrainConfig& config);
// The reverse; `origin` starts the message of an error, which names the field.
Result<TrainConfig> parse_train_config(std::string_view json, const std::string& origin);

// The first field that would change the numbers, by its name in JSON. Values are empty where the
// field is missing.
struct ConfigDifference {
  std::string field, was, is;
};
std::optional<ConfigDifference> first_difference(const TrainConfig& was, const TrainConfig& is);
// In words, the first difference that would change the numbers ("seed 7, not 8"); empty: none.
std::string difference(const TrainConfig& was, const TrainConfig& is);

}  // namespace moetrain

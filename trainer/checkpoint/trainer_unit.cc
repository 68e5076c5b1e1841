// The size of the trainer unit: what units.h needs of it, without its encoding.
#include "formats/base/checked.h"
#include "trainer/checkpoint/expert_stamps.h"
#include "trainer/checkpoint/units.h"

namespace moetrain {

namespace {

constexpr uint64_t kFixedBytes = 8192;  // counters, the configuration's JSON, table overhead
// Four counts, two stamps of four numbers, and 48 bytes for slot entries of 4 bytes; with sharded
// experts 28 of them are the counts of the last steps.
constexpr uint64_t kBytesPerExpert = 80 + 2 * sizeof(ExpertStamp);
constexpr uint64_t kBytesPerLayer = 4096;  // a table for each of many ranks

}  // namespace

uint64_t trainer_unit_bytes(uint32_t layers, uint32_t experts) {
  const uint64_t bytes =
      kFixedBytes + layers * kBytesPerLayer + uint64_t{layers} * experts * kBytesPerExpert;
  return ckpt::base::align_up(bytes, 4096);
}

}  // namespace moetrain

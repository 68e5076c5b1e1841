// Parsers of what a run of the trainer left, and of routing traces.
#include "bench/research/routing_trace.h"
#include "formats/base/assert.h"
#include "formats/base/checked.h"
#include "tests/fuzz/target.h"
#include "trainer/checkpoint/trainer_state.h"

namespace ckpt::fuzz {
namespace {

constexpr uint32_t kLayers = 2;
constexpr uint32_t kExperts = 4;

std::vector<Bytes> trainer_unit_seeds() {
  const size_t count = size_t{kLayers} * kExperts;
  moetrain::TrainerState state;
  state.placement = *moetrain::static_placement(kLayers, kExperts, 2);
  const Bytes fresh = *moetrain::encode(state);
  state.progress = {.step = 12,
                    .applied = 10,
                    .skipped = 2,
                    .skipped_in_a_row = 1,
                    .tokens = 640,
                    .routed_tokens = std::vector<int64_t>(count, 8),
                    .routed_last = std::vector<int64_t>(count, 2)};
  state.config = "{}";
  state.partial = {.snapshots = 3,
                   .k = 2,
                   .k_asked = 1,
                   .lost = {std::vector<int64_t>(count, 1), std::vector<int64_t>(count, 2)}};
  for (int64_t i = 0; i < 2 * static_cast<int64_t>(count); ++i) {
    state.stamps.push_back({1, i, i, i});
  }
  return {fresh, *moetrain::encode(state)};
}
// The buffer ends where its length says, and zeros follow.
void trainer_unit_repair(Bytes& bytes) {
  bytes.resize(moetrain::trainer_unit_bytes(kLayers, kExperts));
  const uint64_t end = base::load<uint32_t>(bytes.data()) + sizeof(uint32_t);
  if (end < bytes.size())
    std::fill(bytes.begin() + static_cast<ptrdiff_t>(end), bytes.end(), std::byte{0});
}
bool trainer_unit_parse(ByteView bytes) {
  const auto state = moetrain::decode_trainer_state(bytes, kLayers, kExperts);
  if (!state.ok()) return false;
  const auto again = moetrain::encode(*state);
  CKPT_ASSERT(!again.ok() || *moetrain::decode_trainer_state(*again, kLayers, kExperts) == *state);
  return true;
}

std::vector<Bytes> routing_seeds() {
  return texts({"iteration,layer,e0,e1\n0,0,3,1\n0,1,2,2\n20,0,5,3\n20,1,8,0\n",
                "iteration,layer,e0\n7,0,9223372036854775807\n"});
}
bool routing_parse(ByteView bytes) {
  const auto trace = bench::parse_routing_trace(as_text(bytes), "trace");
  if (!trace.ok()) return false;
  int64_t all = 0;
  for (const std::vector<int64_t>& sample : trace->samples) {
    CKPT_ASSERT(sample.size() == trace->grid.size());
    int64_t of_layer = 0;
    for (uint32_t expert = 0; expert < trace->grid.experts; ++expert) {
      CKPT_ASSERT(sample[expert] >= 0);
      of_layer += sample[expert];
    }
    all += of_layer;
  }
  CKPT_ASSERT(all == trace->assignments);
  return true;
}

}  // namespace

const std::vector<Target>& trainer_targets() {
  static const std::vector<Target> targets = {
      {"trainer_unit", trainer_unit_seeds, trainer_unit_parse, trainer_unit_repair},
      {"routing", routing_seeds, routing_parse},
  };
  return targets;
}

}  // namespace ckpt::fuzz

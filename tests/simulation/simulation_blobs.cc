// The oracle of blobs: what each attempt declared, and the checks of what a commit has.
#include "tests/simulation/simulation.h"

namespace ckptd::testing {

namespace {

constexpr uint32_t kRanksWithBlobs = 3;

}  // namespace

std::vector<ckpt::BlobSpec> Simulation::blobs_of(uint64_t salt, ckpt::Rank rank) {
  std::vector<ckpt::BlobSpec> blobs;
  const uint64_t drawn = (salt * 8 + rank) * 0x9e3779b97f4a7c15ull >> 40;
  for (uint64_t i = 0; i < drawn % 4; ++i) {
    const uint64_t bytes = (drawn >> (2 + 2 * i)) % 5 * 700;
    blobs.push_back({fmt::format("b{}", i), bytes, rank == 0 && i == 0});
  }
  return blobs;
}

bool Simulation::same_blobs(uint64_t salt, ckpt::Step step, const fb::BlobsListedT& listed,
                            const FakeTrainer::Restored& restored) {
  size_t at = 0;
  for (ckpt::Rank rank = 0; rank < kRanksWithBlobs; ++rank) {
    const auto blobs = blobs_of(salt, rank);
    for (size_t i = 0; i < blobs.size(); ++i, ++at) {
      if (at == listed.blobs.size()) return false;
      const fb::BlobListedT& found = *listed.blobs[at];
      const bool same = found.id == ckpt::blob_id(rank, i) && found.name == blobs[i].name &&
                        found.bytes == blobs[i].bytes && found.global == blobs[i].global;
      if (!same) return false;
      for (uint64_t byte = 0; byte < found.bytes; ++byte) {
        if (restored.bytes[at][byte] != state_byte(found.id, step, salt, byte)) return false;
      }
    }
  }
  return at == listed.blobs.size();
}

void Simulation::check_blobs(FakeTrainer& reader, const Point& point, bool spoiled) {
  fb::ListBlobsT request;
  request.run = "tiny";
  request.lineage = point.first;
  request.step = point.second;
  const auto listed = reader.list_blobs(request);
  if (!listed) {
    const std::string error = reader.error();
    EXPECT_TRUE(spoiled) << "lineage " << point.first << " step " << point.second << ": " << error;
    return;
  }
  FakeTrainer::Restored restored;
  if (!listed->blobs.empty()) restored = reader.restore(reader.whole_blobs(*listed));
  if (!restored.error.empty()) {
    EXPECT_TRUE(spoiled) << restored.error;
    return;
  }
  size_t matching = 0;
  for (const Known& known : begun_[point]) {
    const bool same = same_blobs(known.salt, point.second, *listed, restored);
    if (same) ++matching;
    if (known.announced) {
      EXPECT_TRUE(same) << "lineage " << point.first << " step " << point.second
                        << ": other blobs than were announced";
    }
  }
  EXPECT_GE(matching, 1u) << "lineage " << point.first << " step " << point.second
                          << ": not the blobs of any attempt";
}

}  // namespace ckptd::testing

#include "trainer/parallel/replica_check.h"

#include <map>
#include <string>

#include "formats/base/crc32c.h"

namespace moetrain {
namespace {

constexpr int64_t kNotHeld = -1;

// CRC32C of value, m and v.
Result<uint32_t> hash_of(const OwnedRange& expert, std::vector<std::byte>& room) {
  uint32_t crc = 0;
  for (const Tensor* tensor : {&expert.value, &expert.m, &expert.v}) {
    room.resize(tensor->bytes());
    CKPT_TRY(tensor->read_bytes(room));
    crc = ckpt::base::crc32c(room, crc);
  }
  return crc;
}

// Empty if all holders of an expert have the same.
std::string difference(const std::vector<uint32_t>& holders, std::span<const int64_t> hashes,
                       size_t expert, size_t experts) {
  struct Side {
    size_t ranks = 0;
    std::string names;
  };
  std::map<int64_t, Side> sides;
  for (const uint32_t rank : holders) {
    Side& side = sides[hashes[rank * experts + expert]];
    side.names += fmt::format("{}{}", side.ranks == 0 ? "" : ", ", rank);
    ++side.ranks;
  }
  if (sides.size() < 2) return {};
  std::string text;
  for (const auto& [hash, side] : sides) {
    const bool one = side.ranks == 1;
    text += fmt::format("{}{} {} {} {:08x}", text.empty() ? "" : ", ", one ? "rank" : "ranks",
                        side.names, one ? "has" : "have", static_cast<uint32_t>(hash));
  }
  return text;
}

}  // namespace

Status check_replicas(Comm& comm, Model& model) {
  if (model.experts().ownership().state() == ExpertState::kSharded) return {};  // has none
  const ComputePlacement& placement = model.experts().placement();
  const size_t experts = size_t{placement.layers()} * placement.experts;
  std::vector<std::vector<uint32_t>> holders;
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    for (auto& ranks : holders_of_experts(placement, layer)) holders.push_back(std::move(ranks));
  }
  std::vector<int64_t> own(experts, kNotHeld);
  std::vector<std::byte> room;
  for (const OwnedRange& expert : model.experts().owned()) {
    const size_t at = size_t{expert.layer} * placement.experts + expert.expert;
    if (holders[at].size() < 2) continue;
    CKPT_ASSIGN(own[at], hash_of(expert, room));
  }
  std::vector<int64_t> all(experts * comm.size());
  CKPT_TRY(comm.all_gather(own, all));
  for (size_t at = 0; at < experts; ++at) {
    if (holders[at].size() < 2) continue;
    const std::string differs = difference(holders[at], all, at, experts);
    if (differs.empty()) continue;
    return ckpt::make_error(ckpt::ErrorCode::kCorrupt,
                            "layers.{}.experts.{}: its replicas differ: {}", at / placement.experts,
                            at % placement.experts, differs);
  }
  return {};
}

}  // namespace moetrain

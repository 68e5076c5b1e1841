#include "trainer/placement/token_shares.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

constexpr int64_t kTokensEnd = int64_t{1} << 31;  // products of two counts fit 64 bits

// One source's `rest` tokens, in proportion to the slots' rooms, which become smaller.
void share_in_proportion(int64_t rest, std::vector<int64_t>& room, std::span<int64_t> shares) {
  const int64_t all = std::accumulate(room.begin(), room.end(), int64_t{0});
  CKPT_ASSERT(rest <= all);
  std::vector<std::pair<int64_t, size_t>> remainders;  // negative, so that the largest is first
  int64_t left = rest;
  for (size_t slot = 0; slot < room.size(); ++slot) {
    const int64_t product = rest * room[slot];
    shares[slot] += product / all;
    left -= product / all;
    if (product % all != 0) remainders.emplace_back(-(product % all), slot);
  }
  // The remainders sum to `left` times `all`, so there are more of them than tokens left. Rounded
  // up a share is within its room, which is an integer no smaller than the exact share.
  std::ranges::sort(remainders);
  for (int64_t i = 0; i < left; ++i) ++shares[remainders.at(static_cast<size_t>(i)).second];
}

}  // namespace

std::vector<int64_t> slot_quotas(int64_t tokens, size_t slots, uint32_t turn) {
  const auto count = static_cast<int64_t>(slots);
  std::vector<int64_t> quotas(slots, tokens / count);
  for (int64_t i = 0; i < tokens % count; ++i) ++quotas[(turn + static_cast<size_t>(i)) % slots];
  return quotas;
}

std::vector<int64_t> share_tokens(std::span<const int64_t> tokens,
                                  std::span<const uint32_t> slot_ranks, uint32_t turn) {
  const size_t slots = slot_ranks.size();
  CKPT_ASSERT(slots > 0);
  const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
  CKPT_ASSERT(all < kTokensEnd);
  std::vector<int64_t> shares(tokens.size() * slots);
  std::vector<int64_t> room = slot_quotas(all, slots, turn);
  std::vector<int64_t> rest(tokens.begin(), tokens.end());
  for (size_t slot = 0; slot < slots; ++slot) {
    const size_t own = slot_ranks[slot];
    const int64_t stays = std::min(rest.at(own), room[slot]);
    shares[own * slots + slot] = stays;
    rest[own] -= stays;
    room[slot] -= stays;
  }
  std::vector<int64_t> before;
  for (size_t source = 0; source < rest.size(); ++source) {
    if (rest[source] == 0) continue;
    const std::span<int64_t> of_source(shares.data() + source * slots, slots);
    before.assign(of_source.begin(), of_source.end());
    share_in_proportion(rest[source], room, of_source);
    for (size_t slot = 0; slot < slots; ++slot) room[slot] -= of_source[slot] - before[slot];
  }
  return shares;
}

std::vector<int64_t> share_tokens_by_node(std::span<const int64_t> tokens,
                                          std::span<const uint32_t> slot_ranks,
                                          std::span<const uint32_t> node_of_rank, uint32_t turn) {
  CKPT_ASSERT(node_of_rank.size() == tokens.size());
  const size_t slots = slot_ranks.size();
  std::vector<int64_t> shares(tokens.size() * slots);
  std::vector<int64_t> left(tokens.begin(), tokens.end());  // of nodes that are not served yet
  std::vector<int64_t> of_node;
  std::vector<uint32_t> ranks;  // of the slots that serve the node
  std::vector<size_t> serving;
  const auto serve = [&] {
    const std::vector<int64_t> part = share_tokens(of_node, ranks, turn);
    for (size_t source = 0; source < tokens.size(); ++source) {
      for (size_t i = 0; i < serving.size(); ++i) {
        shares[source * slots + serving[i]] += part[source * serving.size() + i];
      }
    }
  };
  std::vector<bool> served(slots);
  for (size_t first = 0; first < slots; ++first) {
    if (served[first]) continue;
    const uint32_t node = node_of_rank[slot_ranks[first]];
    of_node.assign(tokens.size(), 0);
    for (size_t source = 0; source < tokens.size(); ++source) {
      if (node_of_rank[source] == node) of_node[source] = std::exchange(left[source], 0);
    }
    ranks.clear();
    serving.clear();
    for (size_t slot = first; slot < slots; ++slot) {
      if (node_of_rank[slot_ranks[slot]] != node) continue;
      served[slot] = true;
      ranks.push_back(slot_ranks[slot]);
      serving.push_back(slot);
    }
    serve();
  }
  if (std::ranges::all_of(left, [](int64_t count) { return count == 0; })) return shares;
  of_node = std::move(left);
  ranks.assign(slot_ranks.begin(), slot_ranks.end());
  serving.resize(slots);
  std::iota(serving.begin(), serving.end(), size_t{0});
  serve();
  return shares;
}

}  // namespace moetrain

#include "tests/support/nccl_double/exchange.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace nccl_double {

void die(const char* what) {
  std::fprintf(stderr, "nccl_double: %s\n", what);
  std::abort();
}

namespace {

// Time passes on the streams of the rank's peers that are there, and what they give comes.
void nudge_peers_of(int rank, Group& group) {
  if (group.nudging) return;
  group.nudging = true;
  for (const auto& [peer, comm] : group.members) {
    if (peer == rank || comm == nullptr) continue;
    if (!cuda_emulator::device().streams.contains(comm->stream)) continue;
    cuda_emulator::nudge(comm->stream);
  }
  group.nudging = false;
}

bool is_there(const Member& member, const Share& share) {
  Group& group = *member.group;
  if (share.is_sum) return group.sums[share.number].size() == static_cast<size_t>(member.ranks);
  for (size_t peer = 0; peer < share.slices.size(); ++peer) {
    if (share.slices[peer].received == 0) continue;
    if (group.mail[{static_cast<int>(peer), member.rank}].empty()) return false;
  }
  return true;
}

void give(const Member& member, const Share& share) {
  Group& group = *member.group;
  for (size_t peer = 0; peer < share.slices.size(); ++peer) {
    const Slice& slice = share.slices[peer];
    if (slice.sent == 0) continue;
    Bytes taken(slice.from, slice.from + slice.sent);
    if (share.is_sum) {
      group.sums[share.number][member.rank] = std::move(taken);
    } else {
      group.mail[{member.rank, static_cast<int>(peer)}].push_back(std::move(taken));
    }
  }
}

void add_up(const std::map<int, Bytes>& given, const Slice& into) {
  std::vector<float> total(into.received / sizeof(float));
  std::vector<float> each(total.size());
  bool first = true;
  for (const auto& [rank, bytes] : given) {
    if (bytes.size() != into.received) die("ranks add up different numbers");
    std::memcpy(each.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < total.size(); ++i) total[i] = first ? each[i] : total[i] + each[i];
    first = false;
  }
  std::memcpy(into.to, total.data(), into.received);
}

void get(const Member& member, const Share& share) {
  Group& group = *member.group;
  if (share.is_sum) return add_up(group.sums[share.number], share.slices[0]);
  for (size_t peer = 0; peer < share.slices.size(); ++peer) {
    const Slice& slice = share.slices[peer];
    if (slice.received == 0) continue;
    std::deque<Bytes>& mail = group.mail[{static_cast<int>(peer), member.rank}];
    if (mail.front().size() != slice.received) die("a rank receives other than what was sent");
    std::memcpy(slice.to, mail.front().data(), slice.received);
    mail.pop_front();
  }
}

}  // namespace

void queue(const std::shared_ptr<Member>& member, Share share, cudaStream_t stream) {
  if (share.is_sum) {
    share.number = member->sums++;
    auto& sums = member->group->sums;
    if (sums.size() <= share.number) sums.resize(share.number + 1);
  }
  ++member->unfinished;
  cuda_emulator::enqueue(stream, [member, share] {
    if (!member->aborted) give(*member, share);
  });
  const auto ready = [member, share] {
    if (member->aborted || is_there(*member, share)) return true;
    nudge_peers_of(member->rank, *member->group);
    return is_there(*member, share);
  };
  cuda_emulator::enqueue_when(stream, ready, [member, share] {
    --member->unfinished;
    if (member->aborted) return;
    if (!is_there(*member, share)) die("somebody waits without a bound for a peer");
    get(*member, share);
  });
}

}  // namespace nccl_double

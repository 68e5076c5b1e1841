#include "ckptd/server/parked_descriptors.h"

#include <sys/socket.h>

#include <utility>

#include "ckptd/server/socket_io.h"

namespace ckptd {

namespace {

using ckpt::base::UniqueFd;

bool open_pair(UniqueFd& in, UniqueFd& out) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return false;
  }
  in.reset(ends[0]);
  out.reset(ends[1]);
  return true;
}

}  // namespace

bool ParkedDescriptors::park(UniqueFd& fd) {
  if (!park_in(0, fd, 1)) return false;
  ++size_;
  return true;
}

bool ParkedDescriptors::park_in(size_t level, UniqueFd& fd, size_t descriptors) {
  if (level == kLevels) return false;
  Pair& pair = pairs_[level];
  if (!pair.out.valid() && !open_pair(pair.in, pair.out)) return false;
  const std::byte byte{};
  auto sent = send(pair.in.get(), {&byte, 1}, fd.get());
  if (sent.ok() && !sent->has_value()) {
    if (!park_in(level + 1, pair.out, pair.descriptors)) return false;
    pair = Pair();
    if (!open_pair(pair.in, pair.out)) return false;
    sent = send(pair.in.get(), {&byte, 1}, fd.get());
  }
  if (!sent.ok() || !sent->has_value()) return false;
  fd.reset();
  pair.descriptors += descriptors;
  return true;
}

ParkedDescriptors::Lot ParkedDescriptors::take() {
  for (Pair& pair : pairs_) {
    if (pair.descriptors == 0) continue;
    Pair taken = std::exchange(pair, Pair());
    size_ -= taken.descriptors;
    return {.fd = std::move(taken.out), .descriptors = taken.descriptors};
  }
  return {};
}

void ParkedDescriptors::abandon() {
  for (Pair& pair : pairs_) (void)pair.out.release();
  size_ = 0;
}

}  // namespace ckptd

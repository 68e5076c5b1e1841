#include "formats/wire/protocol.h"

#include <algorithm>

namespace ckpt::wire {
namespace {

constexpr uint32_t kWithoutRanges = 2;  // the last version whose Hello has no range

}  // namespace

ProtocolRange offered_by(const fb::HelloT& hello) {
  if (hello.protocol_min == 0 && hello.protocol_max == 0) {
    return {hello.protocol_version, hello.protocol_version};
  }
  return {hello.protocol_min, hello.protocol_max};
}

void offer(ProtocolRange range, fb::HelloT& hello) {
  hello.protocol_min = range.min;
  hello.protocol_max = range.max;
  hello.protocol_version = range.contains(kWithoutRanges) ? kWithoutRanges : range.max;
}

Result<uint32_t> agree(ProtocolRange daemon, ProtocolRange client) {
  const uint32_t version = std::min(daemon.max, client.max);
  if (daemon.contains(version) && client.contains(version)) return version;
  // An invalid range comes from a broken client, which is then the side to upgrade.
  const bool daemon_is_older = client.min <= client.max && daemon.max < client.min;
  return make_error(ErrorCode::kVersionMismatch,
                    "protocol versions do not overlap: ckptd speaks {}, the client {}; upgrade {}",
                    to_text(daemon), to_text(client),
                    daemon_is_older ? "ckptd" : "the client (libckpt)");
}

std::string to_text(ProtocolRange range) {
  if (range.min == range.max) return std::to_string(range.max);
  return fmt::format("{} to {}", range.min, range.max);
}

}  // namespace ckpt::wire

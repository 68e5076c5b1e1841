#include "tests/simulation/left_out.h"

#include <optional>
#include <utility>

#include "ckptd/safeguards.h"

namespace ckptd {
namespace {

std::optional<Safeguard> missing;

constexpr std::pair<std::string_view, Safeguard> kNames[] = {
    {"segment-sync", Safeguard::kSegmentSync},       {"commit-order", Safeguard::kCommitOrder},
    {"payload-crc", Safeguard::kPayloadCrc},         {"extent-place", Safeguard::kExtentPlace},
    {"tombstone-first", Safeguard::kTombstoneFirst}, {"same-bytes", Safeguard::kComparedBytes},
    {"held-versions", Safeguard::kHeldVersions},     {"refused-again", Safeguard::kRefusedAgain},
    {"unread-stays", Safeguard::kUnreadStays},
};

}  // namespace

bool left_out(Safeguard safeguard) { return safeguard == missing; }

namespace testing {

bool leave_out(std::string_view safeguard) {
  for (const auto& [name, known] : kNames) {
    if (name == safeguard) missing = known;
  }
  return missing.has_value();
}

void put_back() { missing.reset(); }

}  // namespace testing
}  // namespace ckptd

// Protocol versions of wire.fbs, and how a client and a daemon agree on one.
//
// Hello has the versions that the client speaks (protocol_min to protocol_max). The daemon chooses
// the highest common version and returns it in Welcome; it holds for the connection. Both sides
// speak at least the last two versions, so either can be upgraded first while the other runs.
//
// Raise the version if a peer of the previous version, which ignores unknown fields, would break
// something that the sender relies on. Keep it if nothing is lost: a field that is advice, a field
// whose absence means the old behavior, or a kind of message that is sent only to a peer that
// requested it (an unknown kind ends the connection). New fields and kinds go to the end of their
// table or union. A newer side acts on the agreed version (Session::protocol), not on its own.
//   2: OpenRestore.exact, BeginSnapshot.staleness_max, Hello.alarms.
//   3: Hello.protocol_min and protocol_max; HandBack and Hello.arena_ticket: an arena is handed
//   back
//      on a socket of its own. Version 2 sends the arena's memfd with Hello, and still may.
//   4: BeginSnapshot.blobs and ListBlobs. A client sends them only to a daemon of this version.
//   5: BeginSnapshot.grown, RegisterUnits.grown and EpochStarted.grown, likewise.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/result.h"
#include "formats/wire/wire_generated.h"

namespace ckpt::wire {

inline constexpr uint32_t kProtocolVersion = 5;     // the newest one that this build speaks
inline constexpr uint32_t kProtocolVersionMin = 2;  // the oldest one
inline constexpr uint32_t kProtocolOfBlobs = 4;
inline constexpr uint32_t kProtocolOfGrowth = 5;

// The socket for HandBack: the path of the daemon's socket with this at its end.
inline constexpr std::string_view kArenaSocketSuffix = ".arena";

struct ProtocolRange {
  uint32_t min = kProtocolVersionMin;
  uint32_t max = kProtocolVersion;
  bool contains(uint32_t version) const { return min <= version && version <= max; }
};

// The versions that the client's greeting offers. Before version 3 a client spoke exactly one.
ProtocolRange offered_by(const fb::HelloT& hello);
// Writes the range into a greeting, so that daemons of version 2 understand it, too.
void offer(ProtocolRange range, fb::HelloT& hello);

// The version that a daemon and a client of these ranges use. kVersionMismatch: they share none;
// the message names both ranges and the side to upgrade.
Result<uint32_t> agree(ProtocolRange daemon, ProtocolRange client);

// "2 to 5", or "2" where it is one version.
std::string to_text(ProtocolRange range);

}  // namespace ckpt::wire

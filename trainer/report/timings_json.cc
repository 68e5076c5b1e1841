#include "trainer/report/timings_json.h"

#include <cmath>

namespace moetrain::report {

namespace {

// Beyond any snapshot, and exact as a double.
constexpr double kNsMax = 1e15;

}  // namespace

nlohmann::ordered_json timings_json(const ckpt::SnapshotTimings& timings) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::object();
  for (const ckpt::SnapshotPart& part : ckpt::kSnapshotParts) {
    parts[std::string(part.name)] = static_cast<double>(timings.*part.ns) / 1e6;
  }
  return parts;
}

ckpt::SnapshotTimings read_timings(Fields& checkpoint) {
  ckpt::SnapshotTimings timings;
  if (!checkpoint.has("parts_ms")) return timings;
  Fields parts = checkpoint.object("parts_ms");
  for (const ckpt::SnapshotPart& part : ckpt::kSnapshotParts) {
    const std::string name(part.name);
    const double ns = std::round(parts.number_or(name.c_str(), 0) * 1e6);
    if (ns >= 0 && ns <= kNsMax) {
      timings.*part.ns = static_cast<uint64_t>(ns);
    } else {
      parts.fail(name.c_str(), "is no duration");
    }
  }
  checkpoint.absorb(parts);
  return timings;
}

}  // namespace moetrain::report

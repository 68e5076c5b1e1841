// Parts of a checkpoint's time as JSON (report.h), in milliseconds.
#pragma once

#include <nlohmann/json.hpp>

#include "formats/base/snapshot_timings.h"
#include "trainer/report/json_fields.h"

namespace moetrain::report {

nlohmann::ordered_json timings_json(const ckpt::SnapshotTimings& timings);

// The member "parts_ms" of a checkpoint; older reports have none. Errors are recorded in
// `checkpoint`.
ckpt::SnapshotTimings read_timings(Fields& checkpoint);

}  // namespace moetrain::report

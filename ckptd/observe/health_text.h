// Health and RunProgress as text: the bodies of /healthz and /readyz, and the metrics. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "ckptd/observe/health.h"
#include "ckptd/observe/metrics_text.h"
#include "ckptd/observe/run_progress.h"

namespace ckptd {

// Age of the run's newest durable commit; 0 if its time is in the future.
uint64_t age_ns(const RunProgress::Durable& durable, uint64_t now_ns);

// One line per current condition: "disk_full for 3 min 5 s: CAUSE; REMEDY".
std::string health_lines(const Health& health, uint64_t now_ns);
// "run tiny: step 60 is durable, 12 s old, trained" for at most `most` runs, chosen by
// RunProgress::latest(). A full disk is named without numbers, because the lines of the conditions
// have them.
std::string progress_lines(const RunProgress& progress, uint64_t now_ns, size_t most);

// ckptd_condition{name}, ckptd_condition_begun_total{name}, ckptd_can_save.
void add_health(MetricsText& text, const Health& health);
// Step, age and failures of the most recently changed runs, at most `most`.
void add_progress(MetricsText& text, const RunProgress& progress, uint64_t now_ns, size_t most);

}  // namespace ckptd

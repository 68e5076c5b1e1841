// Lines of `--metrics`: one JSON object per step, snapshot and re-plan. Pure: events in, text out.
//
// The lines are without their newline. docs/reference/moetrain.md names the fields.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/elastic/event_kinds.h"

namespace moetrain {

std::string step_metrics(const EventHeader& at, const StepEvent& step, uint64_t tokens);
std::string snapshot_metrics(const EventHeader& at, const TakingEvent& taking);
std::string replan_metrics(const EventHeader& at, const ReplannedEvent& replanned);

}  // namespace moetrain

#include "trainer/rank/schedule_tracer.h"

#include <utility>

namespace moetrain {

void ScheduleTracer::begin_step() { state_.held.model->profile().keep_spans(traces()); }

void ScheduleTracer::step_done(uint64_t step) {
  if (!traces()) return;
  ++traced_;
  const StepProfile& profile = state_.held.model->profile();
  ScheduleEvent event{.spans = {}, .left_out = profile.spans_left_out()};
  event.spans.reserve(profile.spans().size());
  for (const ActivitySpan& span : profile.spans()) {
    event.spans.push_back({static_cast<int64_t>(span.activity), static_cast<int64_t>(span.lane),
                           int64_t{span.layer}, span.begin_ns, span.end_ns});
  }
  state_.events.write({.step = step}, std::move(event));
}

}  // namespace moetrain

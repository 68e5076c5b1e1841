// ScheduleTrace: the file of --schedule-trace, in Chrome's trace event format, which Perfetto and
// chrome://tracing show. Pure: events in, JSON out.
//
// One process per rank, with two threads: 0 computes, 1 communicates beside it. Each activity is a
// complete event ("ph": "X"), "layer 3 restore" for instance; a job that is queued for thread 1 is
// an instant ("ph": "i") of thread 0. `args` has step and layer. Times are in microseconds since
// the first one. Events of a thread are in the order in which they ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/elastic/event_kinds.h"

namespace moetrain {

class ScheduleTrace {
 public:
  void add(const EventHeader& at, const ScheduleEvent& schedule);

  // One JSON document with a final newline; without events, too.
  std::string json() const;

 private:
  struct Step {
    uint32_t rank = 0;
    uint64_t step = 0;
    ScheduleEvent schedule;
  };
  std::vector<Step> steps_;
};

}  // namespace moetrain

// NodeTrace: when each node of a cluster is present. Recorded (spot instances) or synthetic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"

namespace moetrain::simulate {

using ckpt::Result;
using ckpt::Status;

// Time in the simulator: whole microseconds since the trace began, so that times add up exactly.
using Micros = int64_t;
inline constexpr Micros kSecond = 1'000'000;

// 100 days. Steps are counted one by one where tests compare; this keeps every sum far from 2^63.
inline constexpr Micros kTraceMax = 100 * 24 * 3600 * kSecond;
inline constexpr uint32_t kNodesMax = 100'000;     // a size class above the largest clusters
inline constexpr uint32_t kEventsMax = 1'000'000;  // of one trace; 344 in the P3 recording

struct NodeEvent {
  Micros at = 0;
  uint32_t node = 0;  // position in NodeTrace::names
  bool add = true;    // true: it joins; false: it is gone
  bool operator==(const NodeEvent&) const = default;
};

struct NodeTrace {
  std::vector<NodeEvent> events;  // in the order of time; a node's adds and removes alternate
  std::vector<std::string> names;
  Micros end = 0;  // the simulation stops here
  bool operator==(const NodeTrace&) const = default;
};

// Lines `milliseconds,add|remove,node`, times not falling, node names of [A-Za-z0-9._-]; empty
// lines are skipped. The trace ends with its last event, whose effects are not simulated; end_at()
// can extend it. kInvalidArgument names `origin` and the line: not three fields, an invalid or
// falling time, another word than add or remove, a node that is removed while absent or added while
// present, or no event at all.
Result<NodeTrace> parse_trace(std::string_view text, std::string_view origin);

// Ends the trace at `end`: drops later events; added time has no events. kInvalidArgument unless
// `end` is above 0 and at most kTraceMax.
Status end_at(NodeTrace& trace, Micros end);

// Limits the cluster to `nodes_max` (>= 1) nodes. A node that joins a full cluster is a spare, and
// takes the place of the next lost node, the longest waiting spare first. Nodes that are never in
// use are removed from the trace.
void cap_nodes(NodeTrace& trace, uint32_t nodes_max);

struct SyntheticTrace {
  uint32_t nodes = 1;           // present from the beginning
  Micros between_failures = 0;  // mean, of the whole cluster; > 0
  bool exponential = false;     // else one every `between_failures`
  Micros repair = -1;           // the node is back after this; 0: at once; negative: never
  uint32_t nodes_min = 0;       // no failure may leave fewer
  Micros duration = 0;          // > 0
  uint64_t seed = 1;
};
// Failures hit one of the present nodes, each with the same probability. kInvalidArgument for
// values out of range.
Result<NodeTrace> make_trace(const SyntheticTrace& options);

}  // namespace moetrain::simulate

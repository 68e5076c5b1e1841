// NodeTrace: when which node of a cluster is there. A recording (spot instances), or made up.
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
  bool add = true;    // it is there from now on; else it is gone
  bool operator==(const NodeEvent&) const = default;
};

struct NodeTrace {
  std::vector<NodeEvent> events;  // in the order of time; a node's adds and removes alternate
  std::vector<std::string> names;
  Micros end = 0;  // the simulation stops here
  bool operator==(const NodeTrace&) const = default;
};

// Lines `milliseconds,add|remove,node`, times not falling, node names of [A-Za-z0-9._-]; empty
// lines are skipped. The trace ends with its last event, whose consequences nobody sees: end_at()
// says otherwise. kInvalidArgument names `origin` and the
// line: not three fields, a time that is none or goes back, another word than add or remove, a node
// that is removed and not there, or added and there already, or nothing at all.
Result<NodeTrace> parse_trace(std::string_view text, std::string_view origin);

// Ends the trace at `end`: what comes later is dropped, and nothing happens in what is added.
// kInvalidArgument unless `end` is above 0 and at most kTraceMax.
Status end_at(NodeTrace& trace, Micros end);

// A cluster of at most `nodes_max` (>= 1) nodes: who comes when all places are taken is a spare,
// and takes the place of the next node in use that is lost, the longest waiting spare first. Nodes
// that are never in use are no part of the trace any more.
void cap_nodes(NodeTrace& trace, uint32_t nodes_max);

struct SyntheticTrace {
  uint32_t nodes = 1;           // there from the beginning
  Micros between_failures = 0;  // mean, of the whole cluster; > 0
  bool exponential = false;     // else one every `between_failures`
  Micros repair = -1;           // the node is back after this; 0: at once; negative: never
  uint32_t nodes_min = 0;       // no failure may leave fewer
  Micros duration = 0;          // > 0
  uint64_t seed = 1;
};
// Failures hit one of the nodes that are there, each with the same probability. kInvalidArgument
// for values out of range.
Result<NodeTrace> make_trace(const SyntheticTrace& options);

}  // namespace moetrain::simulate

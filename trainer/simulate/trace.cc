#include "trainer/simulate/trace.h"

#include <algorithm>
#include <charconv>
#include <list>
#include <map>
#include <optional>
#include <queue>

#include "formats/base/printable.h"
#include "trainer/simulate/random.h"

namespace moetrain::simulate {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr size_t kNameBytesMax = 128;
constexpr int64_t kMillisecondsMax = kTraceMax / 1000;

struct Line {
  std::string_view time, action, node;
};

std::optional<Line> split(std::string_view line) {
  const size_t first = line.find(',');
  if (first == std::string_view::npos) return std::nullopt;
  const size_t second = line.find(',', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  if (line.find(',', second + 1) != std::string_view::npos) return std::nullopt;
  return Line{line.substr(0, first), line.substr(first + 1, second - first - 1),
              line.substr(second + 1)};
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '_' || c == '-';
         });
}

// Parses a trace line by line. apply() returns an error text; empty: the line is valid.
class TraceReader {
 public:
  Result<NodeTrace> read(std::string_view text, std::string_view origin) {
    size_t number = 0;
    while (!text.empty()) {
      ++number;
      const size_t length = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, length);
      text.remove_prefix(std::min(length + 1, text.size()));
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (line.empty()) continue;
      const std::string wrong = apply(line);
      if (!wrong.empty()) {
        return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}", origin, number, wrong);
      }
    }
    if (trace_.events.empty()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}: no events; lines are milliseconds,add|remove,node", origin);
    }
    trace_.end = trace_.events.back().at;
    return std::move(trace_);
  }

 private:
  std::string apply(std::string_view line) {
    const std::optional<Line> parts = split(line);
    if (!parts) {
      return fmt::format("'{}' is not milliseconds,add|remove,node",
                         ckpt::base::printable(line, 80));
    }
    int64_t milliseconds = 0;
    const std::string_view time = parts->time;
    const auto [stop, error] =
        std::from_chars(time.data(), time.data() + time.size(), milliseconds);
    if (error != std::errc() || stop != time.data() + time.size() || milliseconds < 0 ||
        milliseconds > kMillisecondsMax) {
      return fmt::format("time '{}': must be 0 to {} milliseconds", ckpt::base::printable(time, 40),
                         kMillisecondsMax);
    }
    const Micros at = milliseconds * 1000;
    if (!trace_.events.empty() && at < trace_.events.back().at) {
      return fmt::format("time {} is before the line above, {}", milliseconds,
                         trace_.events.back().at / 1000);
    }
    if (parts->action != "add" && parts->action != "remove") {
      return fmt::format("'{}' is neither add nor remove",
                         ckpt::base::printable(parts->action, 40));
    }
    if (!is_name(parts->node)) {
      return fmt::format("node '{}': a name is 1 to {} of [A-Za-z0-9._-]",
                         ckpt::base::printable(parts->node, 40), kNameBytesMax);
    }
    return set(parts->node, parts->action == "add", at);
  }

  std::string set(std::string_view name, bool add, Micros at) {
    if (trace_.events.size() == kEventsMax) return fmt::format("more than {} events", kEventsMax);
    auto known = nodes_.find(name);
    if (known == nodes_.end()) {
      if (!add) return fmt::format("node {} is removed and was never added", name);
      if (trace_.names.size() == kNodesMax) return fmt::format("more than {} nodes", kNodesMax);
      known = nodes_.emplace(name, static_cast<uint32_t>(trace_.names.size())).first;
      trace_.names.emplace_back(name);
      there_.push_back(false);
    }
    const uint32_t node = known->second;
    if (there_[node] == add) {
      return fmt::format("node {} is {}", name,
                         add ? "added and is there already" : "removed and is not there");
    }
    there_[node] = add;
    trace_.events.push_back({at, node, add});
    return {};
  }

  NodeTrace trace_;
  std::map<std::string, uint32_t, std::less<>> nodes_;
  std::vector<bool> there_;
};

Status check_duration(Micros duration) {
  if (duration > 0 && duration <= kTraceMax) return {};
  return make_error(ErrorCode::kInvalidArgument, "a trace of {} s: more than 0, at most {} days",
                    duration / kSecond, kTraceMax / kSecond / 86400);
}

Status check(const SyntheticTrace& options) {
  if (options.nodes == 0 || options.nodes > kNodesMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} nodes: 1 to {}", options.nodes, kNodesMax);
  }
  CKPT_TRY(check_duration(options.duration));
  if (options.between_failures <= 0 ||
      options.duration / options.between_failures > kEventsMax / 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a failure every {} us in {} s: must be above 0, for at most {} failures",
                      options.between_failures, options.duration / kSecond, kEventsMax / 2);
  }
  return {};
}

}  // namespace

Result<NodeTrace> parse_trace(std::string_view text, std::string_view origin) {
  return TraceReader().read(text, origin);
}

Status end_at(NodeTrace& trace, Micros end) {
  CKPT_TRY(check_duration(end));
  std::erase_if(trace.events, [&](const NodeEvent& event) { return event.at > end; });
  trace.end = end;
  return {};
}

void cap_nodes(NodeTrace& trace, uint32_t nodes_max) {
  NodeTrace capped{.events = {}, .names = {}, .end = trace.end};
  constexpr uint32_t kUnnamed = UINT32_MAX;
  std::vector<uint32_t> number(trace.names.size(), kUnnamed);  // in `capped`
  std::vector<bool> in_use(trace.names.size());
  std::list<uint32_t> spares;
  uint32_t used = 0;
  for (size_t at = 0; at < trace.events.size(); ++at) {
    const NodeEvent& event = trace.events[at];
    if (event.add) {
      spares.push_back(event.node);
    } else if (in_use[event.node]) {
      in_use[event.node] = false;
      --used;
      capped.events.push_back({event.at, number[event.node], false});
    } else {
      spares.remove(event.node);
    }
    // Spares take places only after all events of this moment.
    if (at + 1 < trace.events.size() && trace.events[at + 1].at == event.at) continue;
    for (; used < nodes_max && !spares.empty(); ++used) {
      const uint32_t node = spares.front();
      spares.pop_front();
      if (number[node] == kUnnamed) {
        number[node] = static_cast<uint32_t>(capped.names.size());
        capped.names.push_back(std::move(trace.names[node]));
      }
      in_use[node] = true;
      capped.events.push_back({event.at, number[node], true});
    }
  }
  trace = std::move(capped);
}

Result<NodeTrace> make_trace(const SyntheticTrace& options) {
  CKPT_TRY(check(options));
  NodeTrace trace;
  trace.end = options.duration;
  trace.names.reserve(options.nodes);
  std::vector<uint32_t> there;
  there.reserve(options.nodes);
  for (uint32_t node = 0; node < options.nodes; ++node) {
    trace.names.push_back(fmt::format("node{}", node));
    trace.events.push_back({0, node, true});
    there.push_back(node);
  }
  Random random(options.seed);
  std::queue<NodeEvent> repairs;  // all take equally long: they end in order
  const auto mean = static_cast<double>(options.between_failures);
  double clock = 0;
  while (trace.events.size() < kEventsMax) {
    clock += options.exponential ? random.exponential(mean) : mean;
    const auto at = static_cast<Micros>(std::llround(std::min(clock, 2.0 * kTraceMax)));
    for (; !repairs.empty() && repairs.front().at <= std::min(at, trace.end); repairs.pop()) {
      trace.events.push_back(repairs.front());
      there.push_back(repairs.front().node);
    }
    if (at >= trace.end) break;
    if (there.empty() || there.size() <= options.nodes_min) continue;
    const size_t hit = random.below(there.size());
    const uint32_t node = there[hit];
    there[hit] = there.back();
    there.pop_back();
    trace.events.push_back({at, node, false});
    if (options.repair >= 0) repairs.push({at + options.repair, node, true});
  }
  return trace;
}

}  // namespace moetrain::simulate

#include "trainer/placement/plan_files.h"

#include <algorithm>
#include <map>
#include <utility>

#include "trainer/placement/routing_csv.h"
#include "trainer/placement/text_lines.h"

namespace moetrain {

using ckpt::ErrorCode;

Result<std::vector<std::vector<uint64_t>>> parse_loads_csv(std::string_view csv,
                                                           std::string_view origin,
                                                           std::optional<uint64_t> iteration) {
  RoutingCsv trace(csv, origin);
  std::vector<std::vector<uint64_t>> wanted;
  for (;;) {
    CKPT_ASSIGN(auto sample, trace.next());
    if (!sample) break;
    if (!iteration || sample->iteration == *iteration) wanted = std::move(sample->layers);
  }
  if (!wanted.empty()) return wanted;
  return ckpt::make_error(ErrorCode::kNotFound, "{}: there is no iteration {}", origin, *iteration);
}

Result<std::vector<uint64_t>> parse_loads(std::string_view text, std::string_view origin) {
  std::vector<uint64_t> loads;
  for (;;) {
    const size_t end = text.find(',');
    const auto load = parse_count(text.substr(0, end));
    if (!load) {
      return ckpt::make_error(ErrorCode::kInvalidArgument,
                              "{}: the load of expert {} is {}, which is no count", origin,
                              loads.size(), quoted(text.substr(0, end)));
    }
    loads.push_back(*load);
    if (end == std::string_view::npos) return loads;
    text.remove_prefix(end + 1);
  }
}

Result<NodeOfProcess> parse_nodes(std::string_view csv, std::string_view origin, uint32_t ranks) {
  TextLines lines(csv, origin);
  NodeOfProcess node_of;
  std::map<std::string_view, int32_t> nodes;
  for (bool first = true; lines.next(); first = false) {
    if (first && lines.line() == "rank,node") continue;
    CKPT_ASSIGN(const uint64_t rank, lines.count("the rank"));
    const auto name = lines.field();
    if (!name || name->empty()) return lines.refuse(fmt::format("rank {} has no node", rank));
    if (lines.field()) return lines.refuse("must be rank,node");
    if (rank >= ranks) {
      return lines.refuse(fmt::format("there is no rank {}, only 0 to {}", rank, ranks - 1));
    }
    if (rank >= node_of.size()) node_of.resize(rank + 1, kOwnNode);
    if (node_of[rank] != kOwnNode) {
      return lines.refuse(fmt::format("rank {} has a line already", rank));
    }
    const auto next = static_cast<int32_t>(nodes.size());
    node_of[rank] = nodes.try_emplace(*name, next).first->second;
  }
  return node_of;
}

Result<std::vector<uint32_t>> parse_domains(std::string_view csv, std::string_view origin,
                                            uint32_t ranks) {
  CKPT_ASSIGN(NodeOfProcess node_of, parse_nodes(csv, origin, ranks));
  node_of.resize(ranks, kOwnNode);
  const auto missing = std::ranges::find(node_of, kOwnNode);
  if (missing != node_of.end()) {
    return ckpt::make_error(ErrorCode::kInvalidArgument, "{}: rank {} of {} is missing", origin,
                            missing - node_of.begin(), ranks);
  }
  return number_domains(std::vector<int64_t>(node_of.begin(), node_of.end()));
}

}  // namespace moetrain

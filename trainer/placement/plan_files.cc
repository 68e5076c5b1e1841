#include "trainer/placement/plan_files.h"

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

Result<std::vector<uint32_t>> parse_domains(std::string_view csv, std::string_view origin,
                                            uint32_t ranks) {
  TextLines lines(csv, origin);
  std::vector<std::optional<std::string_view>> node_of(ranks);
  for (bool first = true; lines.next(); first = false) {
    if (first && lines.line() == "rank,node") continue;
    CKPT_ASSIGN(const uint64_t rank, lines.count("the rank"));
    const auto node = lines.field();
    if (!node || node->empty()) return lines.refuse(fmt::format("rank {} has no node", rank));
    if (lines.field()) return lines.refuse("must be rank,node");
    if (rank >= ranks) {
      return lines.refuse(fmt::format("there is no rank {}, only 0 to {}", rank, ranks - 1));
    }
    if (node_of[rank]) return lines.refuse(fmt::format("rank {} has a line already", rank));
    node_of[rank] = *node;
  }
  std::map<std::string_view, uint32_t> domains;
  std::vector<uint32_t> domain_of_rank;
  domain_of_rank.reserve(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (!node_of[rank]) {
      return ckpt::make_error(ErrorCode::kInvalidArgument, "{}: rank {} of {} is missing", origin,
                              rank, ranks);
    }
    const auto next = static_cast<uint32_t>(domains.size());
    domain_of_rank.push_back(domains.try_emplace(*node_of[rank], next).first->second);
  }
  return domain_of_rank;
}

}  // namespace moetrain

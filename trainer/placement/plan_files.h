// The text files of `moetrain plan`, and the domains of `run`. Pure: text in, values or an error
// that names the line out. Any bytes are safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/base/result.h"
#include "trainer/placement/domains.h"

namespace moetrain {

using ckpt::Result;

// One sample of a routing trace (routing_csv.h) as [layer][expert]: tokens. The last one, unless an
// iteration is named (kNotFound if it is not there). `origin` starts the message.
Result<std::vector<std::vector<uint64_t>>> parse_loads_csv(std::string_view csv,
                                                           std::string_view origin,
                                                           std::optional<uint64_t> iteration);

// "120,80,40": one layer's loads, as on a command line.
Result<std::vector<uint64_t>> parse_loads(std::string_view text, std::string_view origin);

// Lines `rank,node`, which may begin with just that; a node is any text without a comma. A rank, a
// number below `ranks`, has one line or none. [rank]: the number of its node, as far as the file
// goes.
Result<NodeOfProcess> parse_nodes(std::string_view csv, std::string_view origin, uint32_t ranks);

// The same, where every rank has a line. [rank]: its domain, numbered in the order of ranks.
Result<std::vector<uint32_t>> parse_domains(std::string_view csv, std::string_view origin,
                                            uint32_t ranks);

}  // namespace moetrain

// The flags of `moetrain plan`, and the request that they make.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/placement/policy.h"

namespace moetrain {

struct PlanFlags {
  std::string policy = "frontier";
  PlacementRequest request;
  std::optional<std::string> loads;
  std::string loads_file;
  std::optional<uint64_t> iteration;
  std::string domains_file;
  std::string current_file;
  std::vector<std::string> recovery;
  std::string svg;
  bool frontier = false;
  bool json = false;
};

// Refuses flags that have no effect with the chosen policy. kInvalidArgument names the flag.
Status check_plan_flags(const PlanFlags& flags, PolicyName policy);

// Fills in flags.request from the files and lists that the flags name. kInvalidArgument names the
// flag, or the file and its line; kNotFound: a file cannot be opened.
Status fill_request(PlanFlags& flags);

}  // namespace moetrain

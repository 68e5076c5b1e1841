// keep, prune, pin, unpin, gc: how long commits stay. Private to this folder.
#pragma once

#include <string>
#include <vector>

#include "client/ctl/link.h"

namespace ckptctl {

class Builder;
void add_keeping(Builder& build);

// Rules as they stand on a command line.
struct RuleFlags {
  uint32_t last = 0;
  uint32_t hourly = 0;
  uint32_t daily = 0;
  uint32_t weekly = 0;
  uint32_t monthly = 0;
  uint32_t yearly = 0;
  std::string within;  // "7d"
  uint64_t every_steps = 0;
  std::vector<std::string> tags;
  std::vector<std::string> best;  // "loss:3", "accuracy:2:highest"
};
// As the daemon takes them; null if no flag was given. kInvalidArgument quotes what is wrong.
Result<Json> rules_document(const RuleFlags& flags);

}  // namespace ckptctl

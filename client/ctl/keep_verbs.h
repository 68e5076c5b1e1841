// keep, prune, pin, unpin, gc: retention of commits. Private to this folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/ctl/link.h"

namespace ckptctl {

class Builder;
void add_keeping(Builder& build);

// Retention rules from a command line.
struct RuleFlags {
  std::optional<uint32_t> last;
  std::optional<uint32_t> hourly;
  std::optional<uint32_t> daily;
  std::optional<uint32_t> weekly;
  std::optional<uint32_t> monthly;
  std::optional<uint32_t> yearly;
  std::optional<std::string> within;  // "7d"
  std::optional<uint64_t> every_steps;
  std::vector<std::string> tags;
  std::vector<std::string> best;  // "loss:3", "accuracy:2:highest"
};
// The rules in the daemon's JSON form; null if no flag was given. kInvalidArgument quotes the flag.
Result<Json> rules_document(const RuleFlags& flags);

}  // namespace ckptctl

// keep, prune, pin, unpin, gc: how long commits stay. Private to this folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/ctl/link.h"

namespace ckptctl {

class Builder;
void add_keeping(Builder& build);

// Rules as they stand on a command line.
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
// As the daemon takes them; null if no flag was given. kInvalidArgument quotes what is wrong.
Result<Json> rules_document(const RuleFlags& flags);

}  // namespace ckptctl

// Rights: the permissions of a user for another user's run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "formats/wire/records_generated.h"

namespace ckpt {

enum class Right : uint8_t {
  kRead,    // see it, restore from it
  kCommit,  // train it: join its groups, save
  kPrune,   // decide what is kept: rules, pins, tags, prune, single commits
};

// The rights to commit or prune include the right to read.
struct Rights {
  bool read = false;
  bool commit = false;
  bool prune = false;

  bool any() const { return read || commit || prune; }
  bool has(Right right) const {
    if (right == Right::kRead) return any();
    return right == Right::kCommit ? commit : prune;
  }
  bool operator==(const Rights&) const = default;
};
using Grants = std::map<uint32_t, Rights>;  // by uid; none without a right

const char* right_name(Right right);  // "read", "commit", "prune"
// kInvalidArgument quotes an unknown name.
Result<Rights> parse_rights(const std::vector<std::string>& names);
std::vector<std::string> right_names(const Rights& rights);

Rights from_fb(const fb::GrantedT& record);
// Without its run and time.
fb::GrantedT to_fb(uint32_t uid, const Rights& rights);

}  // namespace ckpt

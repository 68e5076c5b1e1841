// The rules of a run for pruning: restic's rules, and two of our own: every N steps, and the best
// by a metric. ckptd/retention/policy.h defines them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "formats/wire/records_generated.h"

namespace ckpt {

// A list of names on a command line; each is compared with every tag and metric of a run.
inline constexpr size_t kKeepNamesMax = 64;
inline constexpr size_t kKeepNameBytesMax = 128;

struct KeepRules {
  struct Best {
    std::string metric;
    uint32_t count = 0;
    bool highest = false;  // else the lowest are the best
    bool operator==(const Best&) const = default;
  };
  // How many; 0: the rule keeps nothing.
  uint32_t last = 0;
  uint32_t hourly = 0;
  uint32_t daily = 0;
  uint32_t weekly = 0;
  uint32_t monthly = 0;
  uint32_t yearly = 0;
  std::chrono::nanoseconds within{0};  // of the newest commit's date; 0: none
  uint64_t every_steps = 0;            // 0: none
  std::vector<std::string> tags;
  std::vector<Best> best;

  bool operator==(const KeepRules&) const = default;
  // True if a rule uses the dates of commits.
  bool by_time() const {
    return within.count() > 0 || hourly > 0 || daily > 0 || weekly > 0 || monthly > 0 || yearly > 0;
  }
  // True if the rules keep nothing.
  bool empty() const { return *this == KeepRules(); }
};

// kInvalidArgument names the fault: a name that is empty, too long or not printable, too many
// names, a negative duration, a `best` of zero commits.
Status check_keep_rules(const KeepRules& rules);

// Run and time of the record are left to the caller.
fb::RulesSetT to_fb(const KeepRules& rules);
// Checks the record, because it comes from outside.
Result<KeepRules> from_fb(const fb::RulesSetT& record);

}  // namespace ckpt

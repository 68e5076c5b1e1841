#include "ckptd/codec/unit_kinds.h"

#include <map>
#include <string_view>

#include "ckptd/limits.h"

namespace ckptd {
namespace {

static_assert(limits::kUnitKindsMax <= 256);

// Replaces each number by a star.
std::string kind_name(std::string_view unit) {
  std::string name;
  for (const char letter : unit) {
    const bool digit = letter >= '0' && letter <= '9';
    if (!digit) {
      name += letter;
    } else if (name.empty() || name.back() != '*') {
      name += '*';
    }
  }
  return name;
}

}  // namespace

UnitKinds::UnitKinds(const std::vector<ckpt::UnitSpec>& units) {
  std::map<std::string, uint8_t> known;
  kinds_.reserve(units.size());
  for (const ckpt::UnitSpec& unit : units) {
    std::string name = kind_name(unit.name);
    const auto found = known.find(name);
    if (found != known.end()) {
      kinds_.push_back(found->second);
      continue;
    }
    if (names_.size() == limits::kUnitKindsMax) {
      names_.back() = "(others)";
    } else {
      known.emplace(name, static_cast<uint8_t>(names_.size()));
      names_.push_back(std::move(name));
    }
    kinds_.push_back(static_cast<uint8_t>(names_.size() - 1));
  }
}

}  // namespace ckptd

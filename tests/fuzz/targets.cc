#include "tests/fuzz/target.h"

namespace ckpt::fuzz {
namespace {

std::vector<const Target*> all_targets() {
  std::vector<const Target*> all = {&canary()};
  for (const auto* some : {&format_targets(), &daemon_targets(), &text_targets()}) {
    for (const Target& target : *some) all.push_back(&target);
  }
  return all;
}

}  // namespace

const Target* find_target(std::string_view name) {
  for (const Target* target : all_targets()) {
    if (target->name == name) return target;
  }
  return nullptr;
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const Target* target : all_targets()) names.emplace_back(target->name);
  return names;
}

}  // namespace ckpt::fuzz

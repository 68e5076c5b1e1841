#include "tests/fuzz/target.h"

namespace ckpt::fuzz {
namespace {

std::vector<const Target*> all_targets() {
  std::vector<const Target*> all = {&canary()};
  for (const auto* some : {&format_targets(), &daemon_targets(), &text_targets(),
                           &model_file_targets(), &trainer_targets()}) {
    for (const Target& target : *some) all.push_back(&target);
  }
  return all;
}

}  // namespace

std::vector<Bytes> texts(std::initializer_list<std::string_view> all) {
  std::vector<Bytes> seeds;
  for (const std::string_view text : all) {
    const ByteView bytes = as_bytes(text);
    seeds.emplace_back(bytes.begin(), bytes.end());
  }
  return seeds;
}

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

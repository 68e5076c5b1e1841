// Cases for a second implementation of the selectors, client/python/ckptd/selection.py: inputs from
// a seed, and what this implementation chooses. tests/python/test_selection.py replays them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "trainer/partial/selector.h"

namespace moetrain {
namespace {

// choose SELECTOR K BOUND | UNSAVED AGE RISK TURN, ... | EXPERT, ...
std::string selection_case(std::mt19937& random, Selector selector) {
  const uint32_t experts = 1 + random() % 24;
  const uint32_t k = 1 + random() % experts;
  const uint32_t needed = (experts + k - 1) / k;
  const SelectionOptions options{selector, k, needed + static_cast<uint32_t>(random() % 8)};
  const uint64_t oldest = 1 + random() % (options.staleness_max + 3);  // some are overdue
  std::vector<uint32_t> turn(experts);
  for (uint32_t expert = 0; expert < experts; ++expert) {
    turn[expert] = expert;
    std::swap(turn[expert], turn[random() % (expert + 1)]);
  }
  std::vector<ExpertCandidate> candidates(experts);
  std::vector<std::string> candidate_texts;
  for (uint32_t expert = 0; expert < experts; ++expert) {
    ExpertCandidate& one = candidates[expert];
    one.unsaved_tokens = static_cast<int64_t>(random() % 4 == 0 ? 1000 : random() % 100000);
    one.age = 1 + random() % oldest;
    one.loss_probability = 1.0 / static_cast<double>(1 + random() % 3);
    one.turn = turn[expert];
    candidate_texts.push_back(
        fmt::format("{} {} {} {}", one.unsaved_tokens, one.age, one.loss_probability, one.turn));
  }
  const auto chosen = select_experts(options, candidates, k_within_bound(options, candidates));
  return fmt::format("choose {} {} {} | {} | {}\n", selector_name(selector), k,
                     options.staleness_max, fmt::join(candidate_texts, ", "),
                     fmt::join(chosen, ", "));
}

// turns LAYER K | RANK RANK ..., ... of each expert | TURN, ...
std::string turns_case(std::mt19937& random) {
  const uint32_t experts = 1 + random() % 16;
  LayerSlots slots(1 + random() % 6);
  for (uint32_t expert = 0; expert < experts; ++expert) {
    for (uint32_t replica = 1 + random() % 2; replica > 0; --replica) {
      slots[random() % slots.size()].push_back(expert);
    }
  }
  const uint32_t layer = random() % 5;
  const uint32_t k = 1 + random() % experts;
  std::vector<std::string> holder_texts;
  for (const auto& ranks : holders(slots, experts)) {
    holder_texts.push_back(fmt::format("{}", fmt::join(ranks, " ")));
  }
  return fmt::format("turns {} {} | {} | {}\n", layer, k, fmt::join(holder_texts, ", "),
                     fmt::join(turns(slots, experts, layer, k), ", "));
}

std::string all_cases() {
  std::mt19937 random(14);
  std::string text;
  for (int round = 0; round < 40; ++round) {
    for (const Selector selector : kSelectors) text += selection_case(random, selector);
    if (round % 2 == 0) text += turns_case(random);
  }
  return text;
}

TEST(SelectionCasesTest, FileMatchesThisImplementation) {
  const std::string path = CKPT_SELECTION_CASES;
  if (const char* anew = std::getenv("CKPT_WRITE_SELECTION_CASES"); anew != nullptr) {
    std::ofstream(anew) << all_cases();
  }
  std::ifstream file(path);
  std::stringstream found;
  found << file.rdbuf();
  EXPECT_TRUE(found.str() == all_cases())
      << path << " differs; CKPT_WRITE_SELECTION_CASES=FILE writes it anew";
}

}  // namespace
}  // namespace moetrain

// Routing: how many tokens of every sequence the router sends to every expert. Made up, from a skew
// that all sequences share and noise of each sequence's own; a pure function of step and layer.
//
// The k-th most popular expert of a layer has a weight of k^-zipf; which expert that is, is drawn
// anew for every layer and stays. In a sequence each weight is multiplied by exp(noise * g), g
// normal. Shares above 1/top_k are cut: a token goes to an expert once.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/simulate/sharded/sharded_model.h"

namespace moetrain::simulate::sharded {

// [row][expert]: tokens that are sent to an expert; a row is a sequence, or a rank.
using TokenCounts = std::vector<std::vector<double>>;

class Routing {
 public:
  Routing(const ShardedModel& model, const Shape& shape);

  // Tokens of all sequences of a step in one layer. Rows sum to sequence_tokens * top_k. Equal for
  // all systems.
  TokenCounts sequences(uint64_t step, uint32_t layer) const;

 private:
  uint32_t experts_;
  uint32_t sequences_;
  double tokens_;   // of a sequence, times top_k
  double at_most_;  // share of an expert
  double noise_;
  uint64_t seed_;
  std::vector<std::vector<double>> log_weights_;  // [layer][expert]
};

// Shares proportional to the weights, none above `at_most`; what is cut goes to the others in
// proportion. Sums to 1 if at_most * size >= 1.
void to_shares(std::vector<double>& weights, double at_most);

// Rows `first` to `first + count * together` as `count` sums of `together` rows each.
TokenCounts add_rows(const TokenCounts& rows, size_t first, size_t count, size_t together);

}  // namespace moetrain::simulate::sharded

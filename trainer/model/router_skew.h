// RouterSkew: makes routing as uneven as a bench wants it (`--router-skew Z`), whatever was learnt.
//
// Adds to the logits of every layer's router: expert of popularity rank i (from 0; the order is
// another one in each layer, and for each router_skew_order) gets -Z ln(i + 1), and every
// (position, token, expert) a Gumbel noise of its own. The largest of such sums is expert i with a
// probability that goes with (i + 1)^-Z (the Gumbel-max trick), so first choices follow Zipf's law
// as far as the learnt logits are small; further choices are without replacement. All of it is a
// function of the text alone, never of ranks or time: runs with a skew reproduce like others.
#pragma once

#include <span>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/model/config.h"

namespace moetrain {

// [tokens, experts], what is added to the logits of `layer` for these tokens, whole sequences.
std::vector<float> skew_logits(const ModelConfig& config, uint32_t layer,
                               std::span<const int32_t> tokens);

}  // namespace moetrain

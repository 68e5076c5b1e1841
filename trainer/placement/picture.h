// Pictures of a placement: the experts and the load of every rank. Pure: values in, text out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/placement/judge.h"

namespace moetrain {

struct PictureOptions {
  int columns = 80;         // of the terminal
  bool unicode = true;      // blocks and dots, else ASCII
  uint32_t ranks_max = 32;  // of more ranks, the most loaded ones are shown
  double full_bar = 0;      // tokens; 0: those of the most loaded rank
};

// Balance, recovery and the state to move, in a few lines; with several layers a line for each.
std::string judgement_text(const Judgement& judgement, const PlacementRequest& request);

// One layer: a line for each rank with the experts in its slots and a bar of its load; the mark on
// the bars is the mean.
std::string placement_picture(const LayerSlots& slots, const LayerJudgement& judgement,
                              const PictureOptions& options);

// One layer, whose experts move between ranks. Every expert has a slot before and after.
struct LayerChange {
  std::vector<uint64_t> loads;  // tokens of every expert
  LayerSlots before;
  LayerSlots after;
};

// placement_picture() of both, under the same loads and on the same scale.
std::string change_picture(const LayerChange& change, const PictureOptions& options);

// One layer as a whole SVG document: a column for each rank, one part for each slot, as high as its
// tokens, a line at the mean. Parts name expert and rank when pointed at.
std::string placement_svg(const LayerSlots& slots, const std::vector<uint64_t>& loads,
                          const std::string& title);

// The same of a layer before and, below, after.
std::string change_svg(const LayerChange& change, const std::string& title);

}  // namespace moetrain

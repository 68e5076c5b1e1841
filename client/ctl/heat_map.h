// Heat map of the answer to `experts`: a row for each layer, a cell for each expert, coloured by
// the expert's staleness, or by the tokens that it would lack or has lost.
#pragma once

#include <string>
#include <vector>

#include "client/ctl/link.h"

namespace ckptctl {

enum class HeatBy { kStaleness, kLostTokens, kLostSoFar };

// One expert in the map.
struct HeatCell {
  // No counts: unknown; no version: missing; no such expert: absent.
  enum class Kind { kAbsent, kKnown, kUnknown, kMissing };
  Kind kind = Kind::kAbsent;
  uint64_t value = 0;  // steps or tokens, if known
};
struct HeatRow {
  uint64_t layer = 0;
  std::vector<HeatCell> cells;  // by expert number; omitted numbers are absent
};
struct HeatMap {
  std::string title;  // "tiny~1@1200: tokens each expert would lack"
  std::string unit;   // "steps", "tokens"
  std::vector<HeatRow> rows;
  size_t experts = 0;  // of the layer with the most experts
  uint64_t most = 0;   // the largest known value
  // Sentence instead of the map if all cells are equal, as in a full checkpoint: "none of 8 experts
  // would lack a token". Empty if the cells differ.
  std::string alike;
};
HeatMap heat_map(const Json& document, HeatBy by);

// 0: nothing is lost or stale; else 1 to kHeatLevels - 1, in equal steps up to `most`.
inline constexpr int kHeatLevels = 8;
int heat_level(uint64_t value, uint64_t most);

struct HeatStyle {
  int columns = 80;        // of the terminal; wide layers are split into several blocks
  bool wraps_text = true;  // if false, a sentence stays on one line
  bool colour = true;      // if false, characters from '.' to '@'
};
// The style of stdout: colour on a terminal, unless NO_COLOR is set or TERM is dumb.
HeatStyle terminal_style();

// The map with a legend, or the sentence `alike` if all cells are equal. Every line fits the
// columns.
std::string heat_map_text(const HeatMap& map, const HeatStyle& style);
// A whole SVG document; each cell shows its expert and value as a tooltip.
std::string heat_map_svg(const HeatMap& map);

}  // namespace ckptctl

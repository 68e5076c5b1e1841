#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "client/ctl/heat_map.h"

namespace ckptctl {
namespace {

// Viridis, as in the terminal.
constexpr std::array<std::string_view, kHeatLevels> kFillColours = {
    "#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"};
constexpr std::string_view kUnknown = "#b8b8b8";
constexpr std::string_view kMissing = "#d7263d";

// All values in pixels.
constexpr size_t kLeft = 64;
constexpr size_t kTop = 58;
constexpr size_t kGap = 1;
constexpr size_t kLabelHeight = 13;
constexpr size_t kLegendCell = 18;
constexpr size_t kWidthMin = 560;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char character : text) {
    if (character == '&') {
      out += "&amp;";
    } else if (character == '<') {
      out += "&lt;";
    } else if (character == '>') {
      out += "&gt;";
    } else {
      out += character;
    }
  }
  return out;
}

std::string_view colour_of(const HeatCell& cell, uint64_t most) {
  if (cell.kind == HeatCell::Kind::kMissing) return kMissing;
  if (cell.kind == HeatCell::Kind::kUnknown) return kUnknown;
  return kFillColours[static_cast<size_t>(heat_level(cell.value, most))];
}

std::string cell_text(const HeatCell& cell, std::string_view unit) {
  if (cell.kind == HeatCell::Kind::kMissing) return "no version";
  if (cell.kind == HeatCell::Kind::kUnknown) return "not counted";
  return fmt::format("{} {}", cell.value, unit);
}

std::string text_at(size_t x, size_t y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

std::string cells(const HeatMap& map, size_t cell) {
  std::string out;
  const size_t every = (kLabelHeight + cell - 1) / cell;  // avoids overlapping labels
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const HeatRow& layer = map.rows[row];
    const size_t y = kTop + row * cell;
    if (row % every == 0) {
      out += text_at(kLeft - 6, y + cell / 2 + 4, "end", fmt::format("{}", layer.layer));
    }
    for (size_t expert = 0; expert < layer.cells.size(); ++expert) {
      const HeatCell& one = layer.cells[expert];
      if (one.kind == HeatCell::Kind::kAbsent) continue;
      out += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\">"
          "<title>layer {} expert {}: {}</title></rect>\n",
          kLeft + expert * cell, y, cell - kGap, cell - kGap, colour_of(one, map.most), layer.layer,
          expert, cell_text(one, map.unit));
    }
  }
  return out;
}

// Expert numbers, spaced so that they do not overlap.
std::string expert_numbers(const HeatMap& map, size_t cell) {
  std::string out;
  const size_t every = std::max<size_t>(1, (36 + cell - 1) / cell);
  for (size_t expert = 0; expert < map.experts; expert += every) {
    out += text_at(kLeft + expert * cell + cell / 2, kTop - 6, "middle", fmt::format("{}", expert));
  }
  return out;
}

std::string legend(const HeatMap& map, size_t y) {
  std::string out;
  const auto box = [&](size_t x, std::string_view colour) {
    out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"12\" fill=\"{}\"/>\n", x, y,
                       kLegendCell, colour);
  };
  for (size_t level = 0; level < kFillColours.size(); ++level) {
    box(kLeft + level * kLegendCell, kFillColours[level]);
  }
  const size_t end = kLeft + kFillColours.size() * kLegendCell;
  out += text_at(kLeft, y + 26, "start", "0");
  out += text_at(end, y + 26, "end", fmt::format("{} {}", map.most, map.unit));
  box(end + 40, kUnknown);
  out += text_at(end + 64, y + 11, "start", "not counted");
  box(end + 160, kMissing);
  out += text_at(end + 184, y + 11, "start", "no version");
  return out;
}

}  // namespace

std::string heat_map_svg(const HeatMap& map) {
  // Cells are as large as a picture of the widest layer allows.
  const size_t cell = std::clamp<size_t>(960 / std::max<size_t>(1, map.experts), 5, 28);
  const size_t width = std::max(kWidthMin, kLeft + map.experts * cell + 24);
  const size_t legend_y = kTop + map.rows.size() * cell + 20;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      width, legend_y + 42);
  out += fmt::format("<text x=\"{}\" y=\"22\" font-size=\"15\">{}</text>\n", kLeft,
                     escaped(map.title));
  if (!map.alike.empty()) out += text_at(kLeft, 38, "start", map.alike);
  out += text_at(kLeft - 6, kTop - 6, "end", "layer");
  out += expert_numbers(map, cell) + cells(map, cell) + legend(map, legend_y);
  return out + "</svg>\n";
}

}  // namespace ckptctl

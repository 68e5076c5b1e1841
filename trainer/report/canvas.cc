#include "trainer/report/canvas.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "trainer/report/text.h"

namespace moetrain::report {
namespace {

// Bits of the braille pattern by dot column and dot row (Unicode, "Braille Patterns").
constexpr std::array<std::array<uint8_t, 4>, 2> kBrailleBits = {
    {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};

}  // namespace

Canvas::Canvas(int columns, int rows, bool unicode)
    : columns_(std::max(columns, 1)),
      rows_(std::max(rows, 1)),
      unicode_(unicode),
      cells_(static_cast<size_t>(columns_) * static_cast<size_t>(rows_)) {}

void Canvas::dot(int x, int y) {
  if (x < 0 || y < 0 || x >= dot_columns() || y >= dot_rows()) return;
  Cell& target = cells_[index(x / dots_x(), y / dots_y())];
  const auto column = static_cast<size_t>(x % dots_x());
  const auto row = static_cast<size_t>(y % dots_y());
  target.dots = static_cast<uint8_t>(target.dots | kBrailleBits[column][row]);
}

// Bresenham's algorithm, all octants.
void Canvas::line(int x0, int y0, int x1, int y1) {
  const int dx = std::abs(x1 - x0);
  const int dy = -std::abs(y1 - y0);
  const int step_x = x0 < x1 ? 1 : -1;
  const int step_y = y0 < y1 ? 1 : -1;
  int error = dx + dy;
  while (true) {
    dot(x0, y0);
    if (x0 == x1 && y0 == y1) return;
    const int doubled = 2 * error;
    if (doubled >= dy) {
      error += dy;
      x0 += step_x;
    }
    if (doubled <= dx) {
      error += dx;
      y0 += step_y;
    }
  }
}

void Canvas::text(int column, int row, std::string_view text) {
  while (!text.empty()) {
    const std::string character = clip(text, 1);
    text.remove_prefix(character.size());
    if (inside(column, row)) cells_[index(column, row)].characters = character;
    ++column;
  }
}

bool Canvas::empty(int column, int row) const {
  if (!inside(column, row)) return false;
  const Cell& here = cells_[index(column, row)];
  return here.dots == 0 && here.characters.empty();
}

std::string Canvas::row_text(int row) const {
  std::string text;
  for (int column = 0; column < columns_; ++column) {
    const Cell& here = cells_[index(column, row)];
    if (!here.characters.empty()) {
      text += here.characters;
    } else if (here.dots == 0) {
      text += ' ';
    } else if (unicode_) {
      append_utf8(text, 0x2800U + here.dots);
    } else {
      text += '*';
    }
  }
  return text;
}

}  // namespace moetrain::report

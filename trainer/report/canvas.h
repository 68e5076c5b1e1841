// Canvas: a grid of terminal cells to draw lines and text on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetrain::report {

// Cells hold dots (2 x 4 braille dots per cell, or one '*' per cell in ASCII) or one character of
// text; text covers dots drawn before and after. Drawing outside the grid is clipped.
class Canvas {
 public:
  Canvas(int columns, int rows, bool unicode);

  int columns() const { return columns_; }
  int rows() const { return rows_; }
  // The grid of dots, from the top left.
  int dot_columns() const { return columns_ * dots_x(); }
  int dot_rows() const { return rows_ * dots_y(); }

  void dot(int x, int y);
  void line(int x0, int y0, int x1, int y1);
  void text(int column, int row, std::string_view text);
  bool empty(int column, int row) const;

  // One row, trailing blanks kept.
  std::string row_text(int row) const;

 private:
  int dots_x() const { return unicode_ ? 2 : 1; }
  int dots_y() const { return unicode_ ? 4 : 1; }
  struct Cell {
    uint8_t dots = 0;        // braille bits, U+2800 + dots
    std::string characters;  // one code point; covers the dots
  };
  size_t index(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }
  bool inside(int column, int row) const {
    return column >= 0 && column < columns_ && row >= 0 && row < rows_;
  }

  int columns_;
  int rows_;
  bool unicode_;
  std::vector<Cell> cells_;
};

}  // namespace moetrain::report

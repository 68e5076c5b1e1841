#include "client/ctl/table.h"

#include <algorithm>

#include "formats/base/assert.h"

namespace ckptctl {
namespace {

// Columns on a terminal: characters, not bytes of UTF-8.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  CKPT_ASSERT(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    widths.push_back(width(columns_[i].title));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string pad(widths[i] - width(cells[i]), ' ');
      if (i > 0) out += "  ";
      out += columns_[i].align == Align::kRight ? pad + cells[i] : cells[i] + pad;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  };
  line(titles);
  for (const auto& row : rows_) line(row);
  return text;
}

}  // namespace ckptctl

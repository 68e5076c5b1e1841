// Tables for users: columns as wide as their widest cell, numbers aligned to the right.
#pragma once

#include <string>
#include <vector>

namespace ckptctl {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // Title line and rows, each ended by a newline.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ckptctl

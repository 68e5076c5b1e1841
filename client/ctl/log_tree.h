// Draws the commits of a log as a tree: the current line of history in the first column, each other
// line as a branch beside the commit that it was forked from. Pure.
//
//   * tiny@100
//   | * tiny~1@60
//   |/
//   * tiny@40
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/ctl/pages.h"

namespace ckptctl {

struct TreeLine {
  std::string drawing;        // text before the commit's name
  std::optional<size_t> row;  // row of the log; none: a line that only joins two columns
};

// `log` is the daemon's answer to `log`, newest commit first. Every row is drawn once. A row whose
// parent is not listed begins a tree of its own.
std::vector<TreeLine> log_tree(const Json& log);

}  // namespace ckptctl

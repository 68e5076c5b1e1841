#include "client/ctl/log_tree.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

namespace ckptctl {
namespace {

constexpr size_t kNone = SIZE_MAX;

uint64_t number(const Json& object, const char* name) {
  if (!object.is_object()) return 0;
  const auto found = object.find(name);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

struct Node {
  size_t parent = kNone;
  size_t newest = 0;             // row of the newest commit that builds on this one
  bool current = false;          // part of the current line of history
  std::vector<size_t> children;  // newest first
  size_t next = kNone;           // the child that continues in the same column
};

class Tree {
 public:
  explicit Tree(const Json& log) : nodes_(log.size()) {
    link_parents(log);
    choose_columns(log);
  }

  std::vector<TreeLine> draw() {
    std::vector<size_t> roots;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].parent == kNone) roots.push_back(i);
    }
    std::ranges::sort(roots, [&](size_t a, size_t b) { return before(a, b); });
    for (const size_t root : roots) draw_line(root, "");
    return std::move(lines_);
  }

 private:
  // Steps of each lineage, and the rows that list them.
  using Lineages = std::map<uint64_t, std::map<uint64_t, size_t>>;

  // The newest listed commit of the lineage at or before the step.
  static size_t find(const Lineages& lineages, uint64_t lineage, uint64_t step) {
    const auto found = lineages.find(lineage);
    if (found == lineages.end()) return kNone;
    const auto after = found->second.upper_bound(step);
    return after == found->second.begin() ? kNone : std::prev(after)->second;
  }

  void link_parents(const Json& log) {
    Lineages lineages;
    for (size_t i = 0; i < log.size(); ++i) {
      lineages[number(log[i], "lineage")].emplace(number(log[i], "step"), i);
    }
    for (size_t i = 0; i < log.size(); ++i) {
      const uint64_t step = number(log[i], "step");
      size_t parent = kNone;
      if (step > 0) parent = find(lineages, number(log[i], "lineage"), step - 1);
      if (parent == kNone && log[i].is_object()) {
        const Json fork = log[i].value("forked_from", Json());
        if (fork.is_object()) {
          parent = find(lineages, number(fork, "lineage"), number(fork, "step"));
        }
      }
      // An invalid answer must not create a cycle.
      if (parent != kNone && precedes(log[parent], log[i])) nodes_[i].parent = parent;
    }
  }

  // Order of history: a lineage forks from an older one. Rows are in the order of commits, in which
  // a snapshot may overtake an earlier one.
  static bool precedes(const Json& a, const Json& b) {
    return std::pair(number(a, "lineage"), number(a, "step")) <
           std::pair(number(b, "lineage"), number(b, "step"));
  }

  void choose_columns(const Json& log) {
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].newest = i;
    const size_t tip = newest_of_current_line(log);
    if (tip != kNone) nodes_[tip].current = true;
    std::vector<size_t> children_first(nodes_.size());
    std::iota(children_first.begin(), children_first.end(), size_t{0});
    std::ranges::sort(children_first, [&](size_t a, size_t b) { return precedes(log[b], log[a]); });
    for (const size_t i : children_first) {
      const size_t at = nodes_[i].parent;
      if (at == kNone) continue;
      nodes_[at].children.push_back(i);
      nodes_[at].newest = std::min(nodes_[at].newest, nodes_[i].newest);
      nodes_[at].current = nodes_[at].current || nodes_[i].current;
    }
    for (Node& node : nodes_) {
      std::ranges::sort(node.children, [&](size_t a, size_t b) { return before(a, b); });
      if (!node.children.empty()) node.next = node.children.front();
    }
  }

  // A commit whose name has no lineage is in the current line of history.
  static size_t newest_of_current_line(const Json& log) {
    for (size_t i = 0; i < log.size(); ++i) {
      if (!log[i].is_object()) continue;
      const Json name = log[i].value("name", Json());
      if (name.is_string() && name.get_ref<const std::string&>().find('~') == std::string::npos) {
        return i;
      }
    }
    return log.empty() ? kNone : 0;
  }

  // Order of lines side by side: the current one first, then by their newest commit.
  bool before(size_t a, size_t b) const {
    if (nodes_[a].current != nodes_[b].current) return nodes_[a].current;
    return nodes_[a].newest < nodes_[b].newest;
  }

  // Draws the line that begins with this commit, newest commit first, with its branches.
  void draw_line(size_t first, const std::string& column) {
    std::vector<size_t> line;
    for (size_t at = first; at != kNone; at = nodes_[at].next) line.push_back(at);
    for (auto at = line.rbegin(); at != line.rend(); ++at) {
      const std::vector<size_t>& children = nodes_[*at].children;
      for (size_t i = 1; i < children.size(); ++i) {
        draw_line(children[i], column + "| ");
        lines_.push_back({column + "|/", std::nullopt});
      }
      lines_.push_back({column + "* ", *at});
    }
  }

  std::vector<Node> nodes_;  // by row
  std::vector<TreeLine> lines_;
};

}  // namespace

std::vector<TreeLine> log_tree(const Json& log) {
  if (!log.is_array()) return {};
  return Tree(log).draw();
}

}  // namespace ckptctl
